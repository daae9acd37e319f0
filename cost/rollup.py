"""Node times to the step: parts that add up to the whole, as arrays over plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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

    Every micro-batch runs forward and backward in full; tensor-parallel communication is exposed. Data-parallel
    messages inside a phase (ZeRO 2 and 3) run behind that phase's computation. Gradients reduced once a step run behind
    the backward phase of the last micro-batch: exposed is what does not fit there, and at least the last message,
    which only starts when the backward phase ends. The optimizer follows, and the gather of what it updated.
    """
    sums = timing.sums(_label)
    zero = np.zeros(len(plans))
    train = timing.program.graph.workload is Workload.TRAIN
    micro = plans.num_micro_batches if train else np.ones(len(plans))
    account = _Account(zero)
    for phase in ("forward", "backward"):
        _pass(account, {part: s for (p, part), s in sums.items() if p == phase}, micro, plans.family.cp == "ring")
    _once_a_step(account, timing, sums)
    if train:
        account.breakdown["bubble"] = zero
    phases = [sum((s for (p, _), s in sums.items() if p == phase), zero) for phase in ("forward", "backward")]
    return Step(_in_order(account.breakdown), account.hidden, np.asarray(phases[0]), np.asarray(phases[1]))


@dataclass
class _Account:
    """Seconds a step by part, and what communication hid behind computation."""

    zero: Array
    breakdown: dict[str, Array] = field(default_factory=dict)
    hidden: dict[str, Array] = field(default_factory=dict)

    def add(self, part: str, seconds: Array, hidden: Array | None = None) -> None:
        self.breakdown[part] = self.breakdown.get(part, self.zero) + seconds
        if hidden is not None:
            self.hidden[part] = self.hidden.get(part, self.zero) + hidden


def _pass(account: _Account, parts: Mapping[str, Array], micro: Array, ring: bool) -> None:
    """One phase of every micro-batch.

    Data-parallel messages inside it run behind its computation; ring attention passes keys and values on behind the
    attention of the block it has.
    """
    compute = sum((s for part, s in parts.items() if part.startswith("compute.")), account.zero)
    windows = {"comm.dp": compute, **({"comm.cp": parts.get("compute.attention", account.zero)} if ring else {})}
    for part, seconds in parts.items():
        if part not in windows:
            account.add(part, seconds * micro)
            continue
        exposed = np.maximum(seconds - windows[part], 0.0)
        account.add(part, exposed * micro, (seconds - exposed) * micro)


def _once_a_step(account: _Account, timing: Timing, sums: Mapping[tuple[str, str], Array]) -> None:
    """Reductions behind the last backward phase, then the optimizer and the gather of what it updated."""
    computing = [s for (p, part), s in sums.items() if p == "backward" and part.startswith("compute.")]
    behind = np.minimum(sums.get(("backward", "comm.dp"), account.zero), np.asarray(sum(computing, account.zero)))
    backward = np.asarray(sum(computing, account.zero)) - behind
    last = _last_message(timing, account.zero)
    for (phase, part), seconds in sorted(sums.items()):
        if phase == "reduce":
            exposed = _exposed(seconds, backward, last) if part == "comm.dp" else seconds
            account.add(part, exposed, seconds - exposed)
        elif phase == "optimizer":
            account.add(part, seconds)


def _exposed(spent: Array, window: Array, last: Array) -> Array:
    return np.asarray(np.minimum(spent, np.maximum(spent - window, last)))


def _last_message(timing: Timing, zero: Array) -> Array:
    """The reduction that starts last: that of the region whose backward phase ends the step."""
    first = timing.program.graph.sequence_once()[0]
    found = timing.sums(lambda e: _axis(e) if e.phase is Phase.REDUCE and e.region == first else None)
    return found.get("dp", zero)


def _axis(entry: Entry) -> str:
    """The axis a message is booked on: a group over several data axes counts as `dp`."""
    return entry.axis.split("+")[-1] if "+" in entry.axis else entry.axis


def _label(entry: Entry) -> tuple[str, str] | None:
    part = f"comm.{_axis(entry)}" if entry.message is not None else f"compute.{entry.kind}"
    if entry.phase is Phase.OPTIMIZER:
        return "optimizer", part if entry.message is not None else "optimizer"
    if entry.phase is Phase.REDUCE:
        return "reduce", part
    return ("backward" if entry.phase in _BACKWARD else "forward"), part


def _in_order(breakdown: Mapping[str, Array]) -> Mapping[str, Array]:
    """Compute by class, then communication, bubble and optimizer."""
    rank = {"compute": 0, "comm": 1, "bubble": 2, "optimizer": 3}
    return dict(sorted(breakdown.items(), key=lambda kv: (rank[kv[0].split(".")[0]], kv[0])))
