"""Node times to the step: parts that add up to the whole, as arrays over plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..backends.program import Entry
from ..backends.timing import Timing
from ..ir.graph import Phase, Workload
from ..ir.plan import PlanTable
from .account import Account, total_of
from .overlap import hidden_behind_products
from .policy import Policy
from .stage_time import HIDDEN, Spent, StageTime, StageTimer
from .stages import Staging
from .step_program import StepProgram, axis_of, label_of, phase_of

Array = NDArray[np.float64]
Found = dict[tuple[str, str, str], Array]
LENT = "compute.lent_sms"
_USUAL = Policy()


@dataclass(frozen=True, slots=True)
class Step:
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
    timing: Timing, plans: PlanTable, staging: Staging, policy: Policy = _USUAL, program: StepProgram | None = None
) -> Step:
    """Add up a step.

    Of the SMs that communication takes while it hides behind computation, what they keep from computing is done after
    it, in `compute.lent_sms`. Blocks taken apart for `async_tp` move by copy engines.

    Every micro-batch runs forward and backward in full on every stage; the slowest stage sets the pace, and filling
    and draining the pipeline takes what the others spend on one micro-batch, divided by the chunks of a stage:
    (sum over stages - slowest) / vpp, of equal stages (pp - 1)/vpp of one (Narayanan et al., arXiv 2104.04473).
    Tensor-parallel communication is exposed; taken apart (`async_tp`), it hides behind the products next to it, and
    where the stack overlaps it, behind work that does not depend on it.
    Data-parallel messages inside a phase (ZeRO 2 and 3) run behind that phase's computation. Parameters gathered once a
    step run behind the forward phase of the first micro-batch: exposed is what does not fit there, and at least the
    first message, without which nothing starts. Gradients reduced once a step run behind the backward phase of the last
    micro-batch: exposed is what does not fit there, and at least the last message, which only starts when the backward
    phase ends. The optimizer follows, and the gather of what it updated. Copies to and from the host are a stream a
    direction: see `cost/copies.py`. No phase of a micro-batch is faster than the host issues it: see `Policy`.
    """
    program = program or StepProgram.of(timing.program)
    train = timing.program.graph.workload is Workload.TRAIN
    spent = _with_hidden(timing.sums(label_of, once=True), timing, plans, policy, program)
    timer = StageTimer(spent, {}, staging, plans, policy, program)
    stages = [timer.stage(k) for k in range(staging.num_classes)]
    best, sum_s = _pace(stages, staging)
    once = _dearest([s.once for s in stages], staging)
    bubble = (sum_s - best.micro.total_s) / staging.chunks
    step = best.micro.times(plans.num_micro_batches if train else np.ones(len(plans)))
    step.join(once)
    _lend(step, policy.sm_share, plans.family.async_tp)
    if train or np.any(bubble > 0.0):
        step.add("bubble", bubble)
    return Step(_in_order(step.exposed), step.hidden, best.forward_s, best.backward_s, tuple(stages))


def _lend(step: Account, sm_share: float, by_engines: bool) -> None:
    """Book the computation that waits for the SMs that hidden communication holds."""
    none = ("comm.pp", *(("comm.tp",) if by_engines else ()))  # a send takes a channel or two
    parts = [seconds for part, seconds in step.hidden.items() if part.startswith("comm.") and part not in none]
    if parts and sm_share > 0.0:
        step.add(LENT, sum(parts[1:], parts[0]) * sm_share)


def _with_hidden(spent: Spent, timing: Timing, plans: PlanTable, policy: Policy, program: StepProgram) -> Spent:
    """Book what products, or work beside them, hide of messages apart from what is left exposed."""
    found = dict(spent)
    axes = {"tp": policy.overlap.tp, "ep": policy.overlap.ep}
    if plans.family.async_tp:
        axes["tp"] = 0.0
        _hide_pairs(found, timing, plans, program)
    for axis, share in axes.items():
        if share > 0.0 and program.beside.messages[axis]:
            _hide_beside(found, timing, program, axis, share)
    return found


def _hide_pairs(found: Found, timing: Timing, plans: PlanTable, program: StepProgram) -> None:
    for (region, key), seconds in hidden_behind_products(timing, plans, program.pairs).items():
        phase = timing.program.graph.region(region).producer[key].phase
        name = "forward" if phase is Phase.FORWARD else "backward"
        _move(found, region, name, "tp", seconds)


def _hide_beside(found: Found, timing: Timing, program: StepProgram, axis: str, share: float) -> None:
    """Hide messages over an axis behind what may run beside them, region by region and phase by phase."""
    messages, windows = program.beside.messages[axis], program.beside.windows[axis]

    def label(entry: Entry) -> tuple[str, str, bool] | None:
        name = (entry.region, entry.key)
        if name in messages and axis_of(entry) == axis:
            return entry.region, phase_of(entry), True
        return (entry.region, phase_of(entry), False) if name in windows else None

    sums = timing.sums(label, once=True)
    for (region, phase, message), seconds in sums.items():
        if message and (region, phase, False) in sums:
            _move(found, region, phase, axis, np.minimum(seconds * share, sums[region, phase, False]))


def _move(found: Found, region: str, phase: str, axis: str, seconds: Array) -> None:
    """Take seconds from what is exposed of an axis to what hides."""
    shown, hidden = (region, phase, f"comm.{axis}"), (region, phase, f"{HIDDEN}{axis}")
    found[shown] = found[shown] - seconds
    found[hidden] = found[hidden] + seconds if hidden in found else seconds


def _pace(stages: list[StageTime], staging: Staging) -> tuple[StageTime, Array]:
    """Return the stage that sets the pace, plan by plan, and the time of one micro-batch summed over all stages."""
    best, best_s = stages[0], stages[0].micro.total_s
    sum_s = best_s * staging.number[staging.which, 0]
    for cls, stage in enumerate(stages[1:], 1):
        seconds = stage.micro.total_s
        better = (seconds > best_s) & staging.is_there(cls)
        best = StageTime(
            best.forward.where(better, stage.forward), best.backward.where(better, stage.backward), best.once,
            np.where(better, stage.wgrad_s, best.wgrad_s),
        )  # fmt: skip
        best_s = np.where(better, seconds, best_s)
        sum_s = sum_s + seconds * staging.number[staging.which, cls]
    return best, sum_s


def _dearest(accounts: list[Account], staging: Staging) -> Account:
    """Return the account of the stage whose work behind the last micro-batch takes longest."""
    best = accounts[0]
    for cls, account in enumerate(accounts[1:], 1):
        best = best.where((account.total_s > best.total_s) & staging.is_there(cls), account)
    return best


def _in_order(breakdown: Mapping[str, Array]) -> Mapping[str, Array]:
    """Compute by class, then communication, copies to and from the host, waiting for the host, bubble and optimizer."""
    rank = {"compute": 0, "comm": 1, "offload": 2, "host": 3, "bubble": 4, "optimizer": 5}
    return dict(sorted(breakdown.items(), key=lambda kv: (rank[kv[0].split(".")[0]], kv[0])))
