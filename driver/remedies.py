"""Changes of a plan that does not fit with which it would, each estimated, the fastest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby

import numpy as np

from ..ir.errors import SlipstickError
from ..ir.graph import Workload
from ..ir.layers import num_layers
from ..ir.plan import Family, Plan, PlanTable, PlanWords, divisors
from ..ir.plan.plan import plan_of
from ..ir.plan.word import changed
from ..ir.records import dataclass
from ..ir.sizes.fixed_sizes import check_sizes
from ..passes.manager import Prefixes
from .estimate import Estimate, Lowered, compiled, evaluate, pipeline_for, screen

# So many remedies are enough to choose from.
ENOUGH = 3
# Multiples of the GPUs that are tried where nothing fits on those of the plan.
_MORE_GPUS = (2, 4, 8, 16, 32, 64)
# Kinds of recomputation that leave less, and the words that say which layers or results.
_STRONGER: Mapping[str, Sequence[str]] = {
    "none": ("selective", "ops", "full"),
    "selective": ("full",),
    "ops": ("full",),
    "save": ("full",),
    "full": ("full",),
}
_OF_RECOMPUTATION = (
    "recompute_modules",
    "recompute_layers",
    "recompute_by_chunk",
    "recompute_every",
    "recompute_save",
    "recompute_save_rest",
)
# Types of a cache of half the bytes or fewer, the most common first.
_SMALL_CACHES = ("fp8", "int8", "fp4")


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of a plan: its words by their fields, the plan that they make, and what that takes.

    `step_time_s` is None where the plan does not fit either; `lowered` is what it was priced with.
    """

    words: Mapping[str, object]
    plan: Plan
    lowered: Lowered
    peak_mem_bytes: float
    step_time_s: float | None = None


def find_remedies(
    answer: Estimate, asked: PlanWords | None = None, is_said: Callable[[Remedy], bool] = lambda _: True
) -> Sequence[Remedy]:
    """Return the changes with which a plan fits, the fastest first, or the one that comes nearest where none does.

    Of changes of the same words the fastest counts, and none that another one is a part of. More GPUs are tried where
    nothing fits on those of the plan, and several changes together where too few fit alone.

    Args:
        answer: a plan that does not fit.
        asked: words as its user said them; what these leave open is decided anew. None for all words of the plan.
        is_said: whether there are words for a change; others are left out.
    """
    words = answer.plan.words if asked is None else asked
    search = _Search(answer, words, is_said)
    num = answer.plan.num_gpus
    tried = search.priced(_single_changes(answer, words, num))
    if _count(tried) < ENOUGH:
        tried += search.priced(_joint_changes(answer, words, num))
    for more in (num * times for times in _MORE_GPUS):
        if _count(tried):
            break
        changes = ({}, *_single_changes(answer, words, more), *_joint_changes(answer, words, more))
        tried += search.priced({**change, "num_gpus": more} for change in changes)
    fitting = [remedy for remedy in tried if remedy.step_time_s is not None]
    if not fitting:
        return sorted(tried, key=lambda remedy: remedy.peak_mem_bytes)[:1]
    return _undominated(fitting)


def _count(remedies: Iterable[Remedy]) -> int:
    """Return how many kinds of changes fit."""
    return len({frozenset(remedy.words) for remedy in remedies if remedy.step_time_s is not None})


def _undominated(remedies: Sequence[Remedy]) -> Sequence[Remedy]:
    """Return the fastest remedy of each set of words, but for those that change more than another one must."""
    ranked = sorted(remedies, key=lambda remedy: remedy.step_time_s or 0.0)
    fastest: dict[frozenset[str], Remedy] = {}
    for remedy in ranked:
        fastest.setdefault(frozenset(remedy.words), remedy)
    return [remedy for names, remedy in fastest.items() if not any(other < names for other in fastest)]


class _Search:
    """Prices changes of a plan, what their graphs have in common lowered once."""

    def __init__(self, answer: Estimate, asked: PlanWords, is_said: Callable[[Remedy], bool]) -> None:
        self._answer, self._asked, self._is_said = answer, asked, is_said
        self._source, self._system = answer.table.lowered.source, answer.table.system
        self._prefixes = Prefixes(self._source)
        self._lowered: dict[Family, Lowered] = {}

    def priced(self, changes: Iterable[Mapping[str, object]]) -> list[Remedy]:
        """Return the remedies of changes that are legal; those that do not fit have no time."""
        made = [one for change in changes if (one := self._made(change)) is not None]
        made.sort(key=lambda one: str(one[1].family))
        return [
            remedy
            for family, group in groupby(made, key=lambda one: one[1].family)
            for remedy in self._of_family(family, list(group))
            if self._is_said(remedy)
        ]

    def _made(self, change: Mapping[str, object]) -> tuple[Mapping[str, object], Plan] | None:
        """Return the words of a change and the plan that they make for the same batch; None where that is none."""
        now, train = self._answer.plan, self._answer.plan.family.workload is Workload.TRAIN
        batch = {"global_batch": now.global_batch if train else None}
        same = {"num_gpus": now.num_gpus, "seq_len": now.seq_len, "kv_len": now.kv_len, "dp": None}
        try:
            plan = plan_of(changed(self._asked, {**same, **batch, **change}), self._system.stack)
            check_sizes(self._source, plan)
        except SlipstickError:
            return None
        if plan == now or plan.pp * plan.vpp > max(num_layers(self._source), 1):
            return None
        # What would follow from the change alone, and was said or is not to move.
        own = {"dp": plan.dp} if self._asked.dp not in (None, plan.dp) else {}
        follows = train and self._asked.global_batch is None and plan.micro_batch * plan.dp != now.global_batch
        return {**change, **own, **(batch if follows else {})}, plan

    def _of_family(self, family: Family, made: Sequence[tuple[Mapping[str, object], Plan]]) -> Iterator[Remedy]:
        if self._is_hopeless(family, [plan for _, plan in made]):
            return
        with suppress(SlipstickError):
            lowered = self._lower(family)
            table = PlanTable.of([plan for _, plan in made])
            screened = screen(lowered, self._system, table)
            times = np.full(len(made), np.nan)
            if (ready := screened.fitting()) is not None:
                priced = evaluate(lowered, self._system, ready.plans, self._answer.table.convention, ready)
                times[screened.fits] = priced.metrics["step_time_s"]
            for k, (words, plan) in enumerate(made):
                if screened.legal[k]:
                    time_s = float(times[k]) if screened.fits[k] else None
                    yield Remedy(words, plan, lowered, float(screened.peak_mem_bytes[k]), time_s)

    def _lower(self, family: Family) -> Lowered:
        if family not in self._lowered:
            done = self._prefixes.run(pipeline_for(family))
            self._lowered[family] = compiled(self._source, family, *done)
        return self._lowered[family]

    def _is_hopeless(self, family: Family, plans: Sequence[Plan]) -> bool:
        """Return whether weights alone are too large in the plan, and a change leaves them as they are.

        Without stages, weights of a device depend on tensor parallelism and, from stage 3 on, on ZeRO; neither on
        micro-batches nor on recomputation.
        """
        now = self._answer.plan
        kept = family.zero < 3 and now.family.zero < 3 and all((p.tp, p.pp, p.ep) == (now.tp, 1, now.ep) for p in plans)
        return kept and bool(self._answer.memory_bytes["weights"] > self._system.chip.hbm_bytes)


def _single_changes(answer: Estimate, asked: PlanWords, num_gpus: int) -> Iterator[Mapping[str, object]]:
    """Yield changes of one thing: the micro-batch, ZeRO, recomputation, tensor parallelism, what is offloaded."""
    plan, family = answer.plan, answer.plan.family
    yield from ({"micro_batch": m} for m in divisors(plan.micro_batch) if m < plan.micro_batch)
    yield from _wider(plan, asked, num_gpus)
    if family.workload is Workload.DECODE and family.kv_dtype not in _SMALL_CACHES:
        yield {"kv_dtype": _SMALL_CACHES[0]}
    if family.workload is not Workload.TRAIN:
        return
    if family.zero == 3 and family.reshard != "layer":
        yield {"reshard": "layer"}
    if num_gpus > plan.tp * plan.pp:
        yield from ({"zero": z} for z in (1, 2, 3) if z > family.zero)
    yield from (_recompute(asked, kind) for kind in _STRONGER[family.recompute])
    yield from _offloads(answer)


def _joint_changes(answer: Estimate, asked: PlanWords, num_gpus: int) -> Iterator[Mapping[str, object]]:
    """Yield changes of several things, which leave less on a device."""
    plan, family = answer.plan, answer.plan.family
    if family.workload is not Workload.TRAIN:
        return
    full = _recompute(asked, "full")
    zero = {"zero": 3} if num_gpus > plan.tp * plan.pp and family.zero < 3 else {}
    small = {"micro_batch": 1} if plan.micro_batch > 1 else {}
    for base in ({**full, **zero}, {**zero, **small}, {**full, **small}, {**full, **zero, **small}):
        for wide in ({}, *_wider(plan, asked, num_gpus)):
            yield {**base, **wide}
        yield from ({**base, **away} for away in _offloads(answer))
    replicated = {"zero": 1} if family.zero > 1 else {}
    for p in (degree for degree in divisors(num_gpus) if degree > plan.pp):
        for wide in ({}, *_wider(plan, asked, num_gpus)):
            yield from ({**wide, **small, **replicated, **more, "pp": p} for more in ({}, full))


def _wider(plan: Plan, asked: PlanWords, num_gpus: int) -> Iterator[Mapping[str, object]]:
    """Yield larger tensor-parallel degrees, with sequence parallelism where the plan had nothing to split."""
    sp = {"sp": True} if plan.family.workload is Workload.TRAIN and asked.sp is False and plan.tp == 1 else {}
    yield from ({"tp": t, **sp} for t in divisors(num_gpus) if t > plan.tp)


def _offloads(answer: Estimate) -> Iterator[Mapping[str, object]]:
    """Yield what may go to the host, where the machine has one."""
    family, system = answer.plan.family, answer.table.system
    if system.chip.host_link is None or system.host is None:
        return
    for what in (("optimizer",), ("optimizer", "params")):
        if not {*what} <= {*family.offload}:
            yield {"offload": tuple(dict.fromkeys((*what, *family.offload)))}


def _recompute(asked: PlanWords, kind: str) -> Mapping[str, object]:
    """Return words that recompute so in all layers; those of another kind are taken back."""
    usual = PlanWords()
    others = (name for name in _OF_RECOMPUTATION if getattr(asked, name) != getattr(usual, name))
    return {"recompute": kind, **{name: getattr(usual, name) for name in others}}
