"""Which numbers of a plan are legal: each rule once, as a predicate on one plan or on columns of many.

`make_plan` raises the error of the first rule that a plan breaks (`check`); a search asks which rows of its columns
break none (`legal`), and which words contradict one another before it has chosen numbers (`contradiction`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from math import prod
from operator import or_
from typing import TYPE_CHECKING

from ..errors import NotBuiltError, PlanError, SlipstickError
from ..graph import Workload
from ..records import dataclass
from ..schedules.registry import can_run, check_schedule
from .case import Above, PlanCase, divisors, nearest
from .layout.ranks import shapes_of
from .legality import check_exchange, check_family
from .words import Family

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Far above any machine; it keeps every search over divisors short and every product exact.
LARGEST = 10**9


class _Above(int):
    """A degree above one that is not chosen yet; messages say so."""

    def __format__(self, spec: str) -> str:
        return "above 1"


@dataclass(frozen=True, slots=True)
class PlanRule:
    """What cannot be (`broken`), of one plan or row by row, and what is said then of the case `c` and its family `f`.

    {near} are the nearest of all values that are `allowed` of the number `of` which the rule is about.
    """

    told: str
    broken: Callable[[PlanCase, Family], bool]
    error: type[SlipstickError] = PlanError
    of: str = ""
    allowed: Callable[[PlanCase], Sequence[int]] = lambda _: ()

    def refusal(self, case: PlanCase) -> SlipstickError:
        """Return the error of a plan that breaks the rule."""
        near = nearest(getattr(case, self.of), self.allowed(case)) if self.of else ""
        wrong = ", ".join(f"{name}={value}" for name, value in case.counts if _beyond(value))
        return self.error(self.told.format(c=case, f=case.family, near=near, wrong=wrong))


def _beyond(value: int) -> bool:
    return (value < 1) | (value > LARGEST)


# What words ask of one another and of which degrees are above one.
TOGETHER = (
    PlanRule(
        "--expert-popularity with --cp {c.cp} in decode and whole experts over tp: not modelled; what is: --etp "
        "{c.tp}, --expert-imbalance",
        lambda c, f: (
            (c.cp > 1)
            & (c.tp > 1)
            & (f.workload is Workload.DECODE and f.ep and not f.etp and bool(f.expert_popularity))
        ),
        NotBuiltError,
    ),
    PlanRule(
        "--recompute-every with --pp {c.pp} (groups of layers inside of stages): not modelled in this version; what "
        "is: --recompute full of all layers, --recompute-layers, --recompute-modules, --recompute ops",
        lambda c, f: (c.pp > 1) & (f.recompute_every > 1),
        NotBuiltError,
    ),
    PlanRule(
        "async_tp hides the gathers and scatters of sp, which is off: add --sp or leave --async-tp out",
        lambda c, f: (c.tp > 1) & (f.async_tp and not f.sp),
    ),
    PlanRule(
        "dp-shard={c.dp_shard} shards states, and zero=0 shards none; allowed: --zero 1, 2, 3",
        lambda c, f: c.train and f.hsdp and not f.zero,
    ),
    PlanRule(
        "cp_ulysses={c.cp_ulysses} lies inside --cp-method ring or allgather, not {f.cp}",
        lambda c, f: (c.cp_ulysses > 1) & (not f.usp or f.cp not in ("ring", "allgather")),
    ),
    PlanRule(
        "etp={c.etp}: experts are split over all tp={c.tp} ranks or not at all; legal etp: {c.legal_etp}",
        lambda c, f: False if c.etp is None or f.etp_dp else (c.etp != 1) & (c.etp != c.tp),
    ),
    PlanRule(
        "etp={c.etp} with tp={c.tp} needs a family with etp=False, this one has etp=True",
        lambda c, f: False if c.etp is None or f.etp_dp or not f.etp else c.etp != c.tp,
    ),
    PlanRule(
        "etp={c.etp} with tp={c.tp} needs a family with etp=True, this one has etp=False",
        lambda c, f: False if c.etp is None or f.etp_dp or f.etp else c.etp != 1,
    ),
    # Each rank routes its own tokens, or every rank would run all experts on the same ones.
    PlanRule(
        "etp=1 with tp={c.tp}: each rank routes its own tokens, which takes --sp; or use --etp {c.tp}",
        lambda c, f: (c.tp > 1) & (c.train and not f.etp and not f.sp),
    ),
    PlanRule(
        "etp=1 with tp={c.tp} and ep=1: every rank would run all experts on the same tokens; deal them out with --ep "
        "{c.tp}, or split them with --etp {c.tp}",
        lambda c, f: (c.tp > 1) & (not c.train and not f.etp and not f.sp and not f.ep),
    ),
    PlanRule(
        "a family of etp=False with tp=1: nothing splits experts; use Family(etp=True), or --sp",
        lambda c, f: (c.tp == 1) & (c.train and not f.etp_dp and not f.etp and not f.sp),
    ),
    # Experts split over ranks of data parallelism, which gather their tokens.
    PlanRule(
        "--etp {c.etp} above --tp {c.tp} in training: not modelled; legal etp: {c.legal_etp}",
        lambda c, f: f.etp_dp and c.train,
        NotBuiltError,
    ),
    *(
        PlanRule(
            f"--etp {{c.etp}} above --tp {{c.tp}} with {what}: not modelled; what is: all of dp's experts split "
            "(--ep 1), or distributed whole (--etp 1 or {c.tp}, with --ep)",
            broken,
            NotBuiltError,
        )
        for what, broken in (
            ("--sp", lambda _, f: f.etp_dp and f.sp),
            ("--ep above 1", lambda _, f: f.etp_dp and (f.ep or not f.etp)),
        )
    ),
)
# What numbers ask of one another; a rule may read what those before it have made sure of.
NUMBERS = (
    PlanRule(
        f"{{wrong}}: degrees, batches and lengths are 1 to {LARGEST}",
        lambda c, _: reduce(or_, [_beyond(value) for _, value in c.counts]),
    ),
    PlanRule(
        f"kv={{c.kv_len}}: the cached context is 0 to {LARGEST} tokens",
        lambda c, _: (c.kv_len < 0) | (c.kv_len > LARGEST),
    ),
    PlanRule(
        "cp_ulysses={c.cp_ulysses} does not divide cp={c.cp}; legal cp_ulysses: {near}",
        lambda c, _: c.cp % c.cp_ulysses != 0,
        of="cp_ulysses",
        allowed=lambda c: divisors(c.cp),
    ),
    PlanRule(
        "tp={c.tp} x pp={c.pp} x cp={c.cp} = {c.ranks} does not divide gpus={c.num_gpus}; legal products: {near}",
        lambda c, _: c.num_gpus % c.ranks != 0,
        of="ranks",
        allowed=lambda c: divisors(c.num_gpus),
    ),
    PlanRule(
        "tp={c.tp} x pp={c.pp} x cp={c.cp} x dp={c.dp} = {c.asked}, not gpus={c.num_gpus}; with these degrees "
        "dp={c.replicas}, or use --gpus {c.asked}",
        lambda c, _: c.asked != c.num_gpus,
    ),
    PlanRule(
        "etp={c.etp}: experts are split over tp={c.tp} ranks, over these times ranks of dp={c.replicas}, or not at "
        "all; legal etp: {c.legal_etp}",
        lambda c, f: f.etp_dp and (c.inside <= c.tp) | (c.inside % c.tp != 0) | (c.tp * c.replicas % c.inside != 0),
    ),
    PlanRule(
        "capacity_factor={c.capacity_factor:g}: rows an expert takes over the mean, above 0 up to 1000",
        lambda c, _: c.capacity_factor is not None and not 0 < c.capacity_factor <= 1000,
        of="capacity_factor",
    ),
    PlanRule(
        "a family with capacity={f.capacity} and capacity_factor={c.capacity_factor}: give both",
        lambda c, f: (c.capacity_factor is not None) != f.capacity,
    ),
    PlanRule(
        "expert_imbalance={c.expert_imbalance:g}: the busiest of ep={c.ep} ranks gets 1 to {c.ep} times the mean rows",
        lambda c, _: (c.expert_imbalance > c.ep) | (not c.expert_imbalance >= 1),
        of="ep",
    ),
    PlanRule(
        "expert_imbalance={c.expert_imbalance:g} needs a family with imbalance=True",
        lambda c, f: c.expert_imbalance > 1 and not f.imbalance,
    ),
    PlanRule(
        "ep={c.ep} lies inside data parallelism and does not divide dp={c.replicas}; legal ep: {near}{c.or_whole}",
        lambda c, _: (c.spread == 1) & (c.replicas % c.ep != 0),
        of="ep",
        allowed=lambda c: divisors(c.replicas),
    ),
    PlanRule(
        "ep={c.ep}: with etp=1 experts are sharded over all tp={c.tp} ranks, then over ranks of dp={c.replicas}; "
        "legal ep: {near}",
        lambda c, _: (c.ep % c.spread != 0) | (c.spread * c.replicas % c.ep != 0),
        of="ep",
        allowed=lambda c: [1, *(c.tp * d for d in divisors(c.replicas))],
    ),
    PlanRule(
        "dp-shard={c.dp_shard} lies inside data parallelism and does not divide dp/ep={c.outside}; legal dp-shard: "
        "{near}",
        lambda c, _: c.outside % c.dp_shard != 0,
        of="dp_shard",
        allowed=lambda c: divisors(c.outside),
    ),
    PlanRule(
        "placement={f.placement}: {c.misfit}",
        lambda c, f: reduce(or_, (prod(s) != c.groups[a] for a, s in shapes_of(f.placement).items()), False),
    ),
    PlanRule(
        "gbs={c.batch} is not a multiple of mbs={c.micro_batch} x dp={c.replicas} = {c.step}; nearest: {c.near_batch}",
        lambda c, _: c.batch % c.step != 0,
        of="batch",
    ),
    PlanRule(
        "{f.workload} runs one batch of mbs={c.micro_batch} x dp={c.replicas} = {c.step}, not gbs={c.batch}",
        lambda c, _: False if c.train else c.batch != c.step,
        of="batch",
    ),
)


def check(case: PlanCase) -> None:
    """Raise the error of the first rule that a plan breaks, its schedule's last."""
    _check_said(case)
    _check(case, NUMBERS)
    schedule = case.family.schedule
    check_schedule(schedule, case.batch // case.step, case.pp, case.family.pipeline.chunks_of(case.vpp))


def legal(case: PlanCase, *names: str) -> NDArray[np.bool_]:
    """Return which rows of columns break no rule of numbers, or of those about some names where any are given."""
    import numpy as np

    holds = np.ones(np.shape(case.num_gpus), dtype=np.bool_)
    with np.errstate(divide="ignore"):
        for rule in NUMBERS if names else (*TOGETHER, *NUMBERS):
            if not names or rule.of in names:
                holds = holds & ~np.asarray(rule.broken(case, case.family), dtype=np.bool_)
        return holds if names else holds & _scheduled(case, holds)


def contradiction(family: Family, above: Above) -> str:
    """Return why a family contradicts itself or asks for what is not modelled, as `make_plan` has it; else nothing.

    >>> contradiction(Family(offload=("optimizer", "params"), zero=1), Above(False, False, False, False))
    'offload of params goes with zero=3, where they lie in shards, not zero=1'
    """
    degrees = (above.tp, above.pp, above.cp, above.ep, family.usp, family.hsdp)
    tp, pp, cp, ep, up, shard = (_Above(2) if one else 1 for one in degrees)
    try:
        _check_said(PlanCase(family=family, tp=tp, pp=pp, cp=cp, ep=ep, cp_ulysses=up, dp_shard=shard))
    except (PlanError, NotBuiltError) as error:
        return str(error)
    return ""


def _check_said(case: PlanCase) -> None:
    """Raise the error of the first rule of words that a plan breaks."""
    _check(case, TOGETHER)
    _check_words(case.family)


def _check(case: PlanCase, rules: Sequence[PlanRule]) -> None:
    family = case.family
    for rule in rules:
        if rule.broken(case, family):
            raise rule.refusal(case)


@lru_cache(maxsize=1024)
def _check_words(family: Family) -> None:
    """Raise what words ask of one another alone: many plans are of one family."""
    check_family(family)
    check_exchange(family)


def _scheduled(case: PlanCase, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which of some rows a schedule can run; rows of equal micro-batches, stages and chunks are asked once."""
    import numpy as np

    schedule, shape = case.family.schedule, rows.shape
    columns = [np.broadcast_to(one, shape) for one in (case.batch // case.step, case.pp, case.vpp)]
    triples, place = np.unique(np.stack(columns)[:, rows], axis=1, return_inverse=True)
    runs = [can_run(schedule, num, pp, case.family.pipeline.chunks_of(vpp)) for num, pp, vpp in triples.T.tolist()]
    answer = np.zeros(len(rows), dtype=np.bool_)
    answer[rows] = np.array(runs, dtype=np.bool_)[place.reshape(-1)]
    return answer
