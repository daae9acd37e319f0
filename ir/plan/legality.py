"""Which plans are legal: what words ask of one another, with a message and the nearest that is legal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from ..errors import NotBuiltError, PlanError, SlipstickError, UnknownNameError
from ..graph import Workload
from ..schedules.registry import schedule_kind
from .degrees import divisors
from .degrees import nearest as _near
from .optimizer_states import check_states
from .precision import check_precision
from .words import (
    AXES,
    LAYOUTS,
    OFFLOAD,
    ORDER,
    RECOMPUTE,
    SERVING_KERNELS,
    WORDS,
    Family,
    PlanWords,
    rank_order,
)  # fmt: skip

# Far above any machine; it keeps every search over divisors short and every product exact.
LARGEST = 10**9
# Counts of devices, sequences and tokens.
_COUNTS = tuple(row for row in WORDS.values() if row.kind is int and row.field in PlanWords.__annotations__)


@dataclass(frozen=True, slots=True)
class Above:
    """Which degrees are above one: what a family is made for, and so the same for a whole table of plans."""

    tp: bool
    pp: bool
    cp: bool
    ep: bool

    @classmethod
    def all(cls) -> Iterator[Above]:
        """Yield all sixteen."""
        for bits in range(16):
            yield cls(bool(bits & 1), bool(bits & 2), bool(bits & 4), bool(bits & 8))


@dataclass(frozen=True, slots=True)
class Rule:
    """What does not go together in a family with some degrees above one, and what is said then; {cp} is the degree."""

    broken: Callable[[Family, Above], bool]
    told: str
    error: type[SlipstickError] = PlanError


TOGETHER = (
    Rule(
        lambda f, above: above.cp and f.workload is Workload.DECODE,
        "--cp {cp} in decode: not modelled in this version; what is: --tp, --ep, --dp, --pp",
        NotBuiltError,
    ),
    Rule(
        lambda f, above: above.pp and f.recompute_every > 1,
        "--recompute-every with --pp {pp} (groups of layers inside of stages): not modelled in this version; what is: "
        "--recompute full of all layers, --recompute-layers, --recompute-modules, --recompute ops",
        NotBuiltError,
    ),
    Rule(
        lambda f, above: f.async_tp and above.tp and not f.sp,
        "async_tp hides the gathers and scatters of sp, which is off: add --sp or leave --async-tp out",
    ),
    Rule(
        lambda f, above: f.hsdp and not f.zero and f.workload is Workload.TRAIN,
        "dp-shard{dp_shard} shards states, and zero=0 shards none; allowed: --zero 1, 2, 3",
    ),
    # Each rank routes its own tokens, or every rank would run all experts on the same ones.
    Rule(
        lambda f, above: above.tp and not f.etp and not f.sp and f.workload is Workload.TRAIN,
        "etp=1 with tp={tp}: each rank routes its own tokens, which takes --sp; or use --etp {tp}",
    ),
    Rule(
        lambda f, above: above.tp and not f.etp and not f.sp and f.workload is not Workload.TRAIN and not f.ep,
        "etp=1 with tp={tp} and ep=1: every rank would run all experts on the same tokens; "
        "deal them out with --ep {tp}, or split them with --etp {tp}",
    ),
)


def check_together(family: Family, above: Above, degrees: Mapping[str, str]) -> None:
    """Raise the error of the first rule that a family breaks; `degrees` are as people write them, for its message."""
    for rule in TOGETHER:
        if rule.broken(family, above):
            raise rule.error(rule.told.format_map(degrees))
    check_family(family)


def check_family(family: Family) -> None:
    """Raise UnknownNameError for a word that a family does not know, PlanError for options that do not go together."""
    _check_words(family)
    _check_workload(family)
    check_recompute(family.recompute, family.recompute_modules, family.recompute_layers, family.recompute_every)
    check_offload(family.offload)
    _check_data(family)
    check_precision(family)
    check_states(*family.states)
    if sorted(rank_order(family.order)) != sorted(AXES):
        named = ", ".join(ORDER.split("-"))
        raise PlanError(f"order={family.order} must name each of {named} once, innermost first: {ORDER}")
    if family.recompute == "none" and not family.early_stop:
        raise PlanError(
            "no-early-stop says how much is recomputed, and recompute=none: use --recompute, or leave it out"
        )


def _check_workload(family: Family) -> None:
    """Refuse what inference has no use for; a flag is never ignored."""
    if family.mla != "latent" and family.workload is not Workload.DECODE:
        raise PlanError(f"mla={family.mla} says how a decode step attends, and this is {family.workload}: leave it out")
    if family.workload is Workload.TRAIN:
        return
    given = ", ".join(_of_training(family))
    if given:
        raise PlanError(
            f"{given}: of training only; {family.workload} keeps no gradients and no activations: leave it out"
        )
    if family.workload is Workload.DECODE and (family.sp or family.async_tp):
        what = "sp" if family.sp else "async-tp"
        raise PlanError(f"{what} splits the sequence, of which a decode step has one token: leave it out")


def _of_training(family: Family) -> Iterator[str]:
    """What a family says of gradients, states and kept activations."""
    if family.pipeline.split_backward:
        yield f"schedule={family.schedule}"
    if family.kernels not in (*SERVING_KERNELS, "plain"):
        yield f"kernels={family.kernels}"
    for name, row in WORDS.items():
        if row.word.of_training and (value := getattr(family, row.field)) != row.default:
            yield f"{name.replace('_', '-')}={row.written(value)}"
    yield from ["dp-shard"] if family.hsdp else []


def _check_words(family: Family) -> None:
    """Raise UnknownNameError for a value that is none of the choices of its word."""
    for row in WORDS.values():
        if row.word.noun and getattr(family, row.field) not in row.word.choices:
            raise UnknownNameError.of(row.word.noun, getattr(family, row.field), row.word.choices)
    schedule_kind(family.schedule)
    if family.pp_layout not in LAYOUTS and not all(n.strip().isdigit() for n in family.pp_layout.split(",")):
        raise UnknownNameError.of("pipeline layout", family.pp_layout, (*LAYOUTS, "layers a stage as 9,8,8,7"))


def _check_data(family: Family) -> None:
    """Refuse what a ZeRO stage has no use for; a flag is never ignored."""
    if family.zero not in range(4):
        raise PlanError(f"zero={family.zero}; allowed: 0, 1, 2, 3")
    if "params" in family.offload and family.zero != 3:
        raise PlanError(f"offload of params goes with zero=3, where they lie in shards, not zero={family.zero}")
    if family.reshard != "layer" and family.zero != 3:
        raise PlanError(
            f"reshard={family.reshard} says how long ZeRO 3 keeps gathered parameters, and zero={family.zero} "
            "gathers none: use --zero 3, or leave it out"
        )


def check_recompute(policy: str, modules: Sequence[str] = (), layers: int = 0, every: int = 1) -> None:
    """Check what is recomputed; UnknownNameError for a policy, PlanError for options that do not go together."""
    if policy not in RECOMPUTE:
        raise UnknownNameError.of("recompute policy", policy, RECOMPUTE)
    if layers < 0 or every < 1:
        raise PlanError(f"recompute layers={layers} every={every}: layers are 1 or more (0: all), every is 1 or more")
    if modules and policy != "selective":
        named = ",".join(modules)
        raise PlanError(f"recompute modules {named} go with the policy 'selective', not '{policy}'")
    if (layers or every > 1) and policy != "full":
        raise PlanError(f"recompute layers and every go with the policy 'full', not '{policy}'")
    if layers and every > 1:
        raise PlanError(f"recompute layers={layers} or every={every}, not both: the first layers, or groups of layers")


def check_offload(what: Sequence[str]) -> None:
    """Check what lies in host memory; UnknownNameError, NotBuiltError or PlanError for what cannot."""
    for name in what:
        if name == "gradients":
            raise NotBuiltError(
                "--offload gradients: sums of gradients stay on the device; what can go: " + ", ".join(OFFLOAD)
            )
        if name not in OFFLOAD:
            raise UnknownNameError.of("thing to offload", name, OFFLOAD)
    if "params" in what and "optimizer" not in what:
        raise PlanError("offload of params goes with that of the optimizer, which then updates them where they lie")


def check_etp(family: Family, tp: int, etp: int | None, replicas: int = 1) -> int:
    """Return the tensor-parallel degree inside experts; PlanError unless it is 1 or tp, as the family has it.

    In training whole experts need the tokens of a rank to be its own: sequence parallelism. In inference each rank may
    run its own experts on the tokens that all of them have; and experts may be split over data-parallel ranks too.
    """
    if family.etp_dp:
        return _check_etp_dp(family, tp, etp, replicas)
    own = tp if family.etp else 1
    if etp is not None and etp not in (1, tp):
        raise PlanError(f"etp={etp}: experts are split over all tp={tp} ranks or not at all; legal etp: {_both(tp)}")
    if etp is not None and etp != own:
        raise PlanError(f"etp={etp} with tp={tp} needs a family with etp={tp == etp}, this one has etp={family.etp}")
    if not family.etp and not family.sp and tp == 1 and family.workload is Workload.TRAIN:
        raise PlanError("a family of etp=False with tp=1: nothing splits experts; use Family(etp=True), or --sp")
    return own


def _check_etp_dp(family: Family, tp: int, etp: int | None, replicas: int) -> int:
    """Experts split over tp and over ranks of data parallelism, which gather their tokens."""
    legal = [tp * d for d in divisors(replicas)]
    if family.workload is Workload.TRAIN:
        raise NotBuiltError(f"--etp {etp} above --tp {tp} in training: not modelled; legal etp: {_both(tp)}")
    if not family.etp or family.ep or family.sp:
        what = "--sp" if family.sp else "--ep above 1"
        raise NotBuiltError(
            f"--etp {etp} above --tp {tp} with {what}: not modelled; what is: all of dp's experts split (--ep 1), or "
            f"dealt out whole (--etp 1 or {tp}, with --ep)"
        )
    if etp is None or etp <= tp or etp not in legal:
        raise PlanError(
            f"etp={etp}: experts are split over tp={tp} ranks, over these times ranks of dp={replicas}, or not at "
            f"all; legal etp: {', '.join(map(str, sorted({1, *legal})))}"
        )
    return etp


def _both(tp: int) -> str:
    return "1" if tp == 1 else f"1, {tp}"


def check_ep(family: Family, tp: int, ep: int, replicas: int) -> None:
    """Raise PlanError unless ep divides the ranks over which experts are dealt out, the nearest legal ones named."""
    if family.etp or tp == 1 or (ep == 1 and not family.ep):
        if replicas % ep:
            raise PlanError(
                f"ep={ep} lies inside data parallelism and does not divide dp={replicas}; "
                f"legal ep: {_near(ep, divisors(replicas))}"
            )
        return
    legal = [tp * d for d in divisors(replicas)]
    if ep not in legal:
        raise PlanError(
            f"ep={ep}: with etp=1 experts are dealt out over all tp={tp} ranks, then over ranks of dp={replicas}; "
            f"legal ep: {_near(ep, [1, *legal])}"
        )


def check_load(family: Family, ep: int, capacity_factor: float | None, imbalance: float) -> None:
    """Raise PlanError for a capacity or an imbalance that cannot be, or that the family has no symbol for."""
    if capacity_factor is not None and not (isfinite(capacity_factor) and 0 < capacity_factor <= 1000):
        raise PlanError(f"capacity_factor={capacity_factor:g}: rows an expert takes over the mean, above 0 up to 1000")
    if (capacity_factor is not None) != family.capacity:
        raise PlanError(f"a family with capacity={family.capacity} and capacity_factor={capacity_factor}: give both")
    if not 1 <= imbalance <= max(ep, 1):
        raise PlanError(
            f"expert_imbalance={imbalance:g}: the busiest of ep={ep} ranks gets 1 to {ep} times the mean rows"
        )
    if imbalance > 1 and not family.imbalance:
        raise PlanError(f"expert_imbalance={imbalance:g} needs a family with imbalance=True")


def check_exchange(family: Family) -> None:
    """Raise PlanError for options of the exchange of rows that make no sense, or without expert parallelism."""
    if family.routing_nodes < 0:
        raise PlanError(f"routing_nodes={family.routing_nodes}: nodes a token is sent to at most, 0 for no limit")
    _check_gathering(family)
    unused = list(_exchange_options(family))
    if unused and not family.ep:
        raise PlanError(f"{', '.join(unused)}: without expert parallelism no rows travel; use --ep above 1")


def _check_gathering(family: Family) -> None:
    """Gathered tokens keep their type and go to all ranks; gradients of gathers are not modelled."""
    if family.exchange == "alltoall":
        return
    if family.workload is Workload.TRAIN:
        raise NotBuiltError(f"ep_exchange={family.exchange} in training: not modelled; what is: alltoall")
    sent = [text for text in _exchange_options(family) if text.startswith(("dispatch_dtype", "routing_nodes"))]
    if sent:
        raise PlanError(f"{', '.join(sent)}: of rows that are sent, and ep_exchange={family.exchange} sends none")


def _exchange_options(family: Family) -> Iterator[str]:
    if family.imbalance:
        yield "expert_imbalance"
    if family.dispatch_dtype != "same":
        yield f"dispatch_dtype={family.dispatch_dtype}"
    if family.routing_nodes:
        yield f"routing_nodes={family.routing_nodes}"
    if family.exchange != "alltoall":
        yield f"ep_exchange={family.exchange}"


def expert_options(family: Family, ep: int) -> list[str]:
    """Return what a plan asks of experts, as people write it: all of it needs a model that has some."""
    asked = [
        (f"ep={ep}", ep > 1),
        ("etp=1", not family.etp),
        ("etp above tp", family.etp_dp),
        ("capacity_factor", family.capacity),
    ]
    return [text for text, given in asked if given] + list(_exchange_options(family))


def inner_ep(ep: int, tp: int, etp: int, family: Family) -> int:
    """Return the part of `ep` (or of `etp`, where that is above tp) inside dp: experts lie over tp first."""
    if family.etp_dp:
        return etp // tp
    return ep // tp if ep > 1 and not family.etp else ep


def check_ulysses(cp: int, inner: int, family: Family) -> None:
    """Of `cp` ranks, groups of `inner` exchange sequence for heads, and the others pass or gather keys and values."""
    if inner < 1 or cp % inner:
        raise PlanError(f"cp_ulysses={inner} does not divide cp={cp}; legal cp_ulysses: {_near(inner, divisors(cp))}")
    if inner > 1 and not (family.usp and family.cp in ("ring", "allgather")):
        raise PlanError(f"cp_ulysses={inner} lies inside --cp-method ring or allgather, not {family.cp}")


def check_shard(dp_shard: int, outside: int) -> None:
    """The shard group lies inside what is left of data parallelism outside `ep`."""
    if outside % dp_shard:
        raise PlanError(
            f"dp-shard={dp_shard} lies inside data parallelism and does not divide dp/ep={outside}; "
            f"legal dp-shard: {_near(dp_shard, divisors(outside))}"
        )


def replicas_of(num_gpus: int, model: tuple[int, int, int], dp: int | None) -> int:
    """Return the data-parallel degree that tp, pp and cp leave; PlanError when it is no whole one, or not `dp`."""
    tp, pp, cp = model
    ranks = tp * pp * cp
    if num_gpus % ranks:
        raise PlanError(
            f"tp={tp} x pp={pp} x cp={cp} = {ranks} does not divide gpus={num_gpus}; "
            f"legal products: {_near(ranks, divisors(num_gpus))}"
        )
    replicas = num_gpus // ranks
    if dp is not None and dp != replicas:
        raise PlanError(
            f"tp={tp} x pp={pp} x cp={cp} x dp={dp} = {ranks * dp}, not gpus={num_gpus}; "
            f"with these degrees dp={replicas}, or use --gpus {ranks * dp}"
        )
    return replicas


def check_batch(batch: int, micro_batch: int, dp: int, family: Family) -> None:
    """Raise PlanError unless the batch is whole micro-batches of all replicas; of inference, one each."""
    step = micro_batch * dp
    if batch % step:
        below, above = batch // step * step, (batch // step + 1) * step
        nearest = " or ".join(f"--gbs {b}" for b in (below, above) if b > 0)
        raise PlanError(f"gbs={batch} is not a multiple of mbs={micro_batch} x dp={dp} = {step}; nearest: {nearest}")
    if family.workload is not Workload.TRAIN and batch != step:
        raise PlanError(f"{family.workload} runs one batch of mbs={micro_batch} x dp={dp} = {step}, not gbs={batch}")


def check_numbers(words: PlanWords, kv_len: int) -> None:
    """Raise PlanError for a number that is too small or too large for anything."""
    given = {row.name: getattr(words, row.field) for row in _COUNTS}
    named = {name.replace("_", "-"): 1 if number is None else number for name, number in given.items()}
    wrong = [f"{name}={value}" for name, value in {**named, "gpus": words.num_devices}.items()
             if not 1 <= value <= LARGEST]  # fmt: skip
    if wrong:
        raise PlanError(f"{', '.join(wrong)}: degrees, batches and lengths are 1 to {LARGEST}")
    if not 0 <= kv_len <= LARGEST:
        raise PlanError(f"kv={kv_len}: the cached context is 0 to {LARGEST} tokens")
