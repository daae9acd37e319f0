"""Node times to the step: parts that add up to the whole, as arrays over plans."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...backends.pricing.timing import Timing
from ...ir.graph import Workload
from ...ir.placement import EP, TP, AxisGroup
from ...ir.plan import PlanTable
from ...ir.records import dataclass
from ..schedules.pipeline import ClassTimes, Paced, Pipelines
from ..schedules.together import alone
from .account import Account, total_of
from .beside import MESSAGE, WINDOW
from .overlap import hidden_behind_products
from .policy import StepPolicy
from .stage_time import HIDDEN, Spent, StagePasses, StageTime, StageTimer
from .stages import Staging
from .step_program import Bookings, Label, StepProgram
from .stragglers import STRAGGLERS, waited_for_stragglers

Array = NDArray[np.float64]
Found = dict[tuple[str, str, str], Array]
_USUAL = StepPolicy()
_OF_A_STAGE: tuple[Callable[[StagePasses], Array], ...] = (
    lambda stage: stage.forward_s,
    lambda stage: stage.backward_s,
    lambda stage: stage.wgrad_s,
)


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """Seconds a step, plan by plan. `breakdown` adds up to `time_s`; hidden communication is not part of it.

    The breakdown is that of the stage that sets the pace; what it waits for others is the bubble. `forward_s` and
    `backward_s` are of one micro-batch on that stage; `stages` has what each class of stages spends.
    """

    breakdown: Mapping[str, Array]
    hidden_comm_s: Mapping[str, Array]
    forward_s: Array
    backward_s: Array
    stages: tuple[StageTime, ...] = ()

    @property
    def time_s(self) -> Array:
        """The step: the sum of the breakdown."""
        return total_of(self.breakdown)

    @property
    def total_hidden_comm_s(self) -> Array:
        """Communication between devices that hides; copies to and from the host are no communication."""
        parts = [v for k, v in self.hidden_comm_s.items() if k.startswith("comm.")]
        return np.asarray(sum(parts, np.zeros_like(self.forward_s)))

    @property
    def exposed_comm_s(self) -> Array:
        """Communication that nothing hides."""
        parts = [v for k, v in self.breakdown.items() if k.startswith("comm.")]
        return np.asarray(sum(parts[1:], parts[0])) if parts else np.zeros_like(self.forward_s)


def roll_up(
    timing: Timing, plans: PlanTable, staging: Staging, policy: StepPolicy = _USUAL, program: StepProgram | None = None
) -> StepSeconds:
    """Add up a step.

    Of the SMs that communication takes while it hides behind computation, what they keep from computing is done after
    it, in `compute.lent_sms`, on each stage. Blocks taken apart for `async_tp` move by copy engines.

    Every micro-batch runs forward and backward in full on every stage; the slowest stage sets the pace, and what it
    waits for others as the schedule has it is the bubble: see `cost/schedules/pipeline.py`; of equal stages under 1F1B
    (pp - 1)/vpp micro-batches (Narayanan et al., arXiv 2104.04473).
    Tensor-parallel communication is exposed; taken apart (`async_tp`), it hides behind the products next to it, and
    where the stack overlaps it, behind work that does not depend on it.
    Data-parallel messages inside a phase (ZeRO 2 and 3) run behind that phase's computation. Parameters gathered once a
    step run behind the forward phase of the first micro-batch: exposed is what does not fit there, and at least the
    first message, without which nothing starts. Gradients reduced once a step run behind the backward phase of the last
    micro-batch: exposed is what does not fit there, and at least the last message, which only starts when the backward
    phase ends. The optimizer follows, and the gather of what it updated. Copies to and from the host are a stream a
    direction: see `cost/step/copies.py`. No phase of a micro-batch is faster than the host issues it: see `StepPolicy`.
    In training all wait for the slowest rank: see `cost/step/stragglers.py`.
    """
    return alone(rolled_up(timing, plans, staging, policy, program))


def rolled_up(
    timing: Timing, plans: PlanTable, staging: Staging, policy: StepPolicy = _USUAL, program: StepProgram | None = None
) -> Generator[Pipelines, Paced, StepSeconds]:
    """Add up a step as `roll_up` does, and ask in between how long its pipelines take: see `together`."""
    program = program or StepProgram.of(timing.program)
    timer = StageTimer(spent_by_regions(timing, plans, policy, program), staging, plans, policy, program)
    train = timing.program.graph.workload is Workload.TRAIN
    return (yield from piped([timer] * staging.num_classes, train=train))


def piped(timers: Sequence[StageTimer], *, train: bool) -> Generator[Pipelines, Paced, StepSeconds]:
    """Add up a step whose classes of stages have a timer each, of one table of plans and its stages: see `roll_up`."""
    staging, plans = timers[0].staging, timers[0].plans
    passes = [timer.passes(k) for k, timer in enumerate(timers)]
    # The schedule is run elsewhere, with those of other tables together: a search asks for many small ones at once.
    paced = (yield _pipelines(passes, plans, staging)) if train else _passed_on(passes, staging)
    # In inference one batch passes through all stages, and no micro-batch follows it.
    micro_batch_s = paced.total_s / plans.num_micro_batches if train else paced.total_s
    stages = [timer.stage(one, micro_batch_s) for timer, one in zip(timers, passes, strict=True)]
    # The parts of a step are those of the stage that sets the pace: parts of different stages would not add up.
    best = _at(stages, paced.pace)
    step = best.micro.times(plans.num_micro_batches if train else np.ones(len(plans)))
    # All stages start their reductions and the optimizer behind their last micro-batch; the step ends with the one
    # that takes longest.
    step.join(_dearest([s.once for s in stages], staging))
    if train or np.any(paced.bubble_s > 0.0):
        step.add("bubble", paced.bubble_s)
    spread = max(timer.policy.rank_spread for timer in timers)
    if train and spread > 0.0:
        step.add(STRAGGLERS, waited_for_stragglers(step, plans, spread))
    return StepSeconds(
        in_reading_order(step.exposed),
        step.hidden,
        best.forward_s,
        best.backward_s,
        tuple(stages),
    )


def spent_by_regions(timing: Timing, plans: PlanTable, policy: StepPolicy, program: StepProgram) -> Spent:
    """Seconds of one run of each region by phase and part, with what hides in it of messages apart."""
    booked = program.booked(plans.family)
    return _with_hidden(timing.sums(booked.label, once=True), timing, plans, policy, booked)


def in_reading_order(parts: Mapping[str, Array]) -> Mapping[str, Array]:
    """Sort parts of a step: compute by class, communication, copies to the host, the host, bubble, optimizer."""
    rank = {"compute": 0, "comm": 1, "offload": 2, "host": 3, "bubble": 4, STRAGGLERS: 5, "optimizer": 6}
    return dict(sorted(parts.items(), key=lambda kv: (rank[kv[0].split(".")[0]], kv[0])))


def _pipelines(stages: Sequence[StagePasses], plans: PlanTable, staging: Staging) -> Pipelines:
    """The stages through which the micro-batches of a step run, as the schedule orders them."""
    zero = np.zeros(len(plans))
    there = [staging.is_there(k) for k in range(len(stages))]
    forward, backward, wgrad = (
        np.stack([np.where(t, get(s), zero) for t, s in zip(there, stages, strict=True)]) for get in _OF_A_STAGE
    )
    times = ClassTimes(forward, backward - wgrad, wgrad, np.zeros_like(forward))
    schedules = [(kind.name, rows) for kind, rows in plans.schedules()]
    return Pipelines(schedules, times, staging.rows, staging.which, staging.chunks, plans.num_micro_batches)


def _passed_on(stages: Sequence[StagePasses], staging: Staging) -> Paced:
    """One batch passes through all stages in turn: the slowest one, and what the others take as its bubble."""
    seconds = np.stack([np.where(staging.is_there(k), s.forward_s + s.backward_s, 0.0) for k, s in enumerate(stages)])
    # Row by row: a sum over an axis takes another order where there is one plan.
    total_s = np.asarray(sum(seconds * staging.number[staging.which].T))
    most = seconds.max(axis=0)
    return Paced(total_s, (total_s - most) / staging.chunks, seconds.argmax(axis=0), most)


def _at(stages: Sequence[StageTime], pace: NDArray[np.intp]) -> StageTime:
    """Return the stage that sets the pace, plan by plan."""
    best = stages[0]
    for cls, stage in enumerate(stages[1:], 1):
        here = pace == cls
        best = StageTime(
            best.forward.where(here, stage.forward),
            best.backward.where(here, stage.backward),
            best.once,
            np.where(here, stage.wgrad_s, best.wgrad_s),
        )
    return best


def _with_hidden(spent: Spent, timing: Timing, plans: PlanTable, policy: StepPolicy, booked: Bookings) -> Spent:
    """Book what products, or work beside them, hide of messages apart from what is left exposed."""
    found = dict(spent)
    axes: dict[str, float] = {TP: policy.overlap.tp, EP: policy.overlap.ep}
    if plans.family.async_tp:
        axes[TP] = 0.0
        hidden = hidden_behind_products(timing, plans, [pair for pair, _ in booked.pairs], policy.overlap.frozen)
        for pair, phase in booked.pairs:
            _move(found, pair.region, phase, TP, hidden[pair.region, pair.message])
    if any(axes.values()):
        labels = booked.beside_pairs if plans.family.async_tp else booked.beside
        _hide_beside(found, timing.sums(labels, once=True), axes)
    return found


def _hide_beside(found: Found, sums: Mapping[Label, Array], axes: Mapping[str, float]) -> None:
    """Hide messages behind what may run beside them, region by region and phase by phase.

    What may hide messages of two axes hides no more of both together than it takes itself.
    """
    for region, phase in dict.fromkeys((region, phase) for region, phase, _ in sums):
        here = {what: s for (r, p, what), s in sums.items() if (r, p) == (region, phase)}
        hidden: dict[str, Array] = {}
        for axis, share in axes.items():
            beside = _beside(here, (axis,))
            if share > 0.0 and f"{MESSAGE}{axis}" in here and beside:
                left = total_of(_beside(here, (axis, *hidden))) - sum(hidden.values())
                # What work has hidden of another axis is used up: it hides one message at a time.
                window = np.minimum(total_of(beside), left)
                hidden[axis] = np.minimum(here[f"{MESSAGE}{axis}"] * share, window)
                _move(found, region, phase, axis, hidden[axis])


def _beside(here: Mapping[str, Array], axes: Sequence[str]) -> Mapping[str, Array]:
    """Seconds of what may run beside messages over any of some axes."""
    wanted = set(axes)
    windows = {w: s for w, s in here.items() if w.startswith(WINDOW)}
    return {w: s for w, s in windows.items() if not wanted.isdisjoint(AxisGroup(w.removeprefix(WINDOW)).axes)}


def _move(found: Found, region: str, phase: str, axis: str, seconds: Array) -> None:
    """Take seconds from what is exposed of an axis to what hides."""
    shown, hidden = (region, phase, f"comm.{axis}"), (region, phase, f"{HIDDEN}{axis}")
    found[shown] = found[shown] - seconds
    found[hidden] = found[hidden] + seconds if hidden in found else seconds


def _dearest(accounts: list[Account], staging: Staging) -> Account:
    """Return the account of the stage whose work behind the last micro-batch takes longest."""
    best = accounts[0]
    for cls, account in enumerate(accounts[1:], 1):
        best = best.where((account.total_s > best.total_s) & staging.is_there(cls), account)
    return best
