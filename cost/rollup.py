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

Array = NDArray[np.float64]
_BACKWARD = (Phase.BACKWARD, Phase.RECOMPUTE)


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds a step, plan by plan. `breakdown` adds up to `time_s`; hidden communication is not part of it."""

    breakdown: Mapping[str, Array]
    hidden_comm_s: Mapping[str, Array]
    forward_s: Array
    backward_s: Array

    @property
    def time_s(self) -> Array:
        """The step: the sum of the breakdown."""
        parts = list(self.breakdown.values())
        return np.asarray(sum(parts[1:], parts[0]))

    @property
    def exposed_comm_s(self) -> Array:
        """Communication that nothing hides."""
        parts = [v for k, v in self.breakdown.items() if k.startswith("comm.")]
        return np.asarray(sum(parts[1:], parts[0])) if parts else np.zeros_like(self.forward_s)


def roll_up(timing: Timing, plans: PlanTable) -> Step:
    """Add up a step.

    Every micro-batch runs forward and backward in full; tensor-parallel communication is exposed. Gradients are
    reduced behind the backward phase of the last micro-batch: exposed is what does not fit there, and at least the
    last message, which only starts when the backward phase ends. The optimizer follows.
    """
    sums = timing.sums(_label)
    zero = np.zeros(len(plans))
    micro = plans.num_micro_batches if timing.program.graph.workload is Workload.TRAIN else np.ones(len(plans))
    breakdown: dict[str, Array] = {}
    forward, backward = zero, zero
    for (phase, part), seconds in sums.items():
        if phase in ("forward", "backward"):
            breakdown[part] = breakdown.get(part, zero) + seconds * micro
            forward, backward = (forward + seconds, backward) if phase == "forward" else (forward, backward + seconds)
        elif phase == "optimizer":
            breakdown["optimizer"] = breakdown.get("optimizer", zero) + seconds
    hidden: dict[str, Array] = {}
    last = _last_message(timing, zero)
    for axis in sorted({part for phase, part in sums if phase == "reduce"}):
        spent = sums["reduce", axis]
        exposed = _exposed(spent, backward, last) if axis == "comm.dp" else spent
        breakdown[axis] = breakdown.get(axis, zero) + exposed
        hidden[axis] = spent - exposed
    if timing.program.graph.workload is Workload.TRAIN:
        breakdown["bubble"] = zero
    return Step(_in_order(breakdown), hidden, forward, backward)


def _exposed(spent: Array, window: Array, last: Array) -> Array:
    return np.asarray(np.minimum(spent, np.maximum(spent - window, last)))


def _last_message(timing: Timing, zero: Array) -> Array:
    """The reduction that starts last: that of the region whose backward phase ends the step."""
    first = timing.program.graph.sequence_once()[0]
    found = timing.sums(lambda e: e.axis if e.phase is Phase.REDUCE and e.region == first else None)
    return found.get("dp", zero)


def _label(entry: Entry) -> tuple[str, str] | None:
    if entry.phase is Phase.OPTIMIZER:
        return "optimizer", ""
    part = f"comm.{entry.axis}" if entry.message is not None else f"compute.{entry.kind}"
    if entry.phase is Phase.REDUCE:
        return "reduce", part
    return ("backward" if entry.phase in _BACKWARD else "forward"), part


def _in_order(breakdown: Mapping[str, Array]) -> Mapping[str, Array]:
    """Compute by class, then communication, bubble and optimizer."""
    rank = {"compute": 0, "comm": 1, "bubble": 2, "optimizer": 3}
    return dict(sorted(breakdown.items(), key=lambda kv: (rank[kv[0].split(".")[0]], kv[0])))
