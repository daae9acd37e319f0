"""Node times to the step: parts that add up to the whole, as arrays over plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ..backends.program import Entry
from ..backends.timing import Timing
from ..ir.graph import Phase, Workload
from ..ir.ops.collectives import RINGS
from ..ir.ops.host import DOWN, UP
from ..ir.plan import PlanTable
from ..ir.stages import BOUNDARY
from .copies import of_a_phase, of_the_update
from .overlap import hidden_behind_products
from .stages import Staging

Array = NDArray[np.float64]
Parts = dict[str, Array]
# What runs once a step beside a micro-batch, and the phase that hides it.
_WINDOWS = MappingProxyType({"prepare": "forward", "reduce": "backward"})
# Seconds of one run of a region, by region, phase and part.
Spent = Mapping[tuple[str, str, str], Array]
# The part of context parallelism that passes blocks on; in the breakdown it is `comm.cp`.
RING = "comm.ring"
HIDDEN_TP = "hidden.tp"
LENT = "compute.lent_sms"
_BACKWARD = (Phase.BACKWARD, Phase.RECOMPUTE)
# Data-parallel messages in the order in which they are sent: gradients are scattered, then their shards summed.
_DATA = ("comm.fsdp", "comm.dp")
# What runs once a step and may be exposed at its edge, where the first region of a stage begins or ends.
_EDGES = (*((phase, part) for phase in _WINDOWS for part in _DATA), ("optimizer", DOWN), ("optimizer", UP))


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds a step, plan by plan. `breakdown` adds up to `time_s`; hidden communication is not part of it.

    The breakdown is that of the stage that sets the pace; what it waits for others is the bubble. `forward_s` and
    `backward_s` are of one micro-batch on that stage.
    """

    breakdown: Mapping[str, Array]
    hidden_comm_s: Mapping[str, Array]
    forward_s: Array
    backward_s: Array

    @property
    def time_s(self) -> Array:
        """The step: the sum of the breakdown."""
        return _total(self.breakdown)

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


@dataclass
class Account:
    """Seconds by part, exposed and hidden."""

    exposed: Parts = field(default_factory=dict)
    hidden: Parts = field(default_factory=dict)

    def add(self, part: str, seconds: Array, hidden: Array | None = None) -> None:
        """Book exposed seconds, and what communication hid behind computation."""
        self.exposed[part] = self.exposed[part] + seconds if part in self.exposed else seconds
        if hidden is not None:
            self.hidden[part] = self.hidden[part] + hidden if part in self.hidden else hidden

    def where(self, better: NDArray[np.bool_], other: Account) -> Account:
        """Take the other account for the plans where it is better."""
        return Account(_where(better, other.exposed, self.exposed), _where(better, other.hidden, self.hidden))


@dataclass(frozen=True, slots=True)
class _Stage:
    """What one stage spends on a micro-batch and, behind the last one, once a step."""

    micro: Account
    once: Account
    forward_s: Array
    backward_s: Array


def roll_up(timing: Timing, plans: PlanTable, staging: Staging, sm_share: float = 0.0) -> Step:
    """Add up a step.

    `sm_share` is the part of the SMs that communication takes while it hides behind computation: what it keeps from
    computing is done after it, in `compute.lent_sms`. Blocks taken apart for `async_tp` move by copy engines.

    Every micro-batch runs forward and backward in full on every stage; the slowest stage sets the pace, and filling
    and draining the pipeline takes what the others spend on one micro-batch, divided by the chunks of a stage:
    (sum over stages - slowest) / vpp, of equal stages (pp - 1)/vpp of one (Narayanan et al., arXiv 2104.04473).
    Tensor-parallel communication is exposed; taken apart (`async_tp`), it hides behind the products next to it.
    Data-parallel messages inside a phase (ZeRO 2 and 3) run behind that phase's computation. Parameters gathered once a
    step run behind the forward phase of the first micro-batch: exposed is what does not fit there, and at least the
    first message, without which nothing starts. Gradients reduced once a step run behind the backward phase of the last
    micro-batch: exposed is what does not fit there, and at least the last message, which only starts when the backward
    phase ends. The optimizer follows, and the gather of what it updated. Copies to and from the host are a stream a
    direction: see `cost/copies.py`.
    """
    spent = timing.sums(_label, once=True)
    if plans.family.async_tp:
        spent = _with_hidden(spent, timing, plans)
    train = timing.program.graph.workload is Workload.TRAIN
    micro = plans.num_micro_batches if train else np.ones(len(plans))
    cp = plans.columns["cp"]
    stages = [_stage(spent, staging, k, cp) for k in range(staging.num_classes)]
    pace, sum_s = _pace(stages, staging)
    once = _dearest([s.once for s in stages], staging)
    bubble = (sum_s - _total(pace.micro.exposed)) / staging.chunks
    step = Account({p: s * micro for p, s in pace.micro.exposed.items()})
    step.hidden = {p: s * micro for p, s in pace.micro.hidden.items()}
    for part, seconds in once.exposed.items():
        step.add(part, seconds, once.hidden.get(part))
    if sm_share > 0.0:
        _lend(step, sm_share)
    if train or np.any(bubble > 0.0):
        step.add("bubble", bubble)
    return Step(_in_order(step.exposed), step.hidden, pace.forward_s, pace.backward_s)


def _lend(step: Account, sm_share: float) -> None:
    """Book the computation that waits for the SMs that hidden communication holds."""
    parts = [seconds for part, seconds in step.hidden.items() if part.startswith("comm.") and part != "comm.tp"]
    if parts:
        step.add(LENT, sum(parts[1:], parts[0]) * sm_share)


def _with_hidden(spent: Spent, timing: Timing, plans: PlanTable) -> Spent:
    """Book what products hide of the messages next to them apart from what is left exposed."""
    found = dict(spent)
    for (region, key), seconds in hidden_behind_products(timing, plans).items():
        phase = timing.program.graph.region(region).producer[key].phase
        name = "backward" if phase in _BACKWARD else "forward"
        found[region, name, "comm.tp"] = found[region, name, "comm.tp"] - seconds
        found[region, name, HIDDEN_TP] = found.get((region, name, HIDDEN_TP), np.zeros(len(plans))) + seconds
    return found


def _stage(spent: Spent, staging: Staging, cls: int, cp: Array) -> _Stage:
    """Add up one class of stages."""
    runs = staging.runs(cls)
    zero = np.zeros(len(cp))
    sums: dict[tuple[str, str], Array] = {}
    for (region, phase, part), seconds in spent.items():
        times = _boundary_runs(phase, staging) if region == BOUNDARY else runs.get(region)
        if times is not None:
            key = (phase, part)
            sums[key] = sums[key] + seconds * times if key in sums else seconds * times
    # One order of addition, whatever parts the other plans of the table have.
    sums = dict(sorted(sums.items()))
    account = Account()
    for phase in ("forward", "backward"):
        parts = {part: s for (p, part), s in sums.items() if p == phase}
        _pass(account, parts, zero, cp, staging)
    phases = [sum((s for (p, _), s in sums.items() if p == phase), zero) for phase in ("forward", "backward")]
    edges = {key: _edge_message(spent, runs, *key, zero) for key in _EDGES if key in sums}
    once = _once_a_step(sums, edges, zero)
    return _Stage(account, once, np.asarray(phases[0]), np.asarray(phases[1]))


def _boundary_runs(phase: str, staging: Staging) -> Array:
    """A stage sends once a chunk and micro-batch; what both ends share, they exchange once a step."""
    return np.ones_like(staging.chunks) if phase == "reduce" else staging.chunks


def _pass(account: Account, parts: Mapping[str, Array], zero: Array, cp: Array, staging: Staging) -> None:
    """One phase of a micro-batch.

    Data-parallel messages inside it run behind its computation; interleaved stages send behind the computation of their
    other chunks. Ring attention passes blocks on behind the attention of the block it has: cp blocks take cp - 1 steps
    of max(attention, exchange) and one more of attention, so that attention x (1 - 1/cp) hides as much of the ring.
    """
    compute = sum((s for part, s in parts.items() if part.startswith("compute.")), zero)
    windows = {**dict.fromkeys(_DATA, compute), "comm.pp": np.where(staging.chunks > 1.0, compute, 0.0)}
    if RING in parts:
        windows[RING] = parts.get("compute.attention", zero) * (1.0 - 1.0 / cp)
    if DOWN in parts or UP in parts:
        waiting = sum((np.maximum(parts[part] - compute, 0.0) for part in _DATA if part in parts), zero)
        copies, exposed = of_a_phase(parts, compute + waiting)
        account.add("offload", exposed, copies - exposed)
    for part, seconds in parts.items():
        if part == HIDDEN_TP:
            account.add("comm.tp", np.zeros_like(seconds), seconds)
            continue
        if part in (DOWN, UP):
            continue
        if part not in windows:
            account.add(part, seconds)
            continue
        exposed = np.maximum(seconds - windows[part], 0.0)
        account.add("comm.cp" if part == RING else part, exposed, seconds - exposed)


def _once_a_step(sums: Mapping[tuple[str, str], Array], edges: Mapping[tuple[str, str], Array], zero: Array) -> Account:
    """Gathers behind the first forward phase, reductions behind the last backward phase, then the optimizer."""
    account = Account()
    for phase, behind in _WINDOWS.items():
        window = _free(sums, behind, zero)
        for part in _DATA:
            if (phase, part) in sums:
                seconds = sums[phase, part]
                exposed = np.minimum(seconds, np.maximum(seconds - window, edges[phase, part]))
                account.add(part, exposed, seconds - exposed)
                window = np.maximum(window - seconds, 0.0)
    for (phase, part), seconds in sorted(sums.items()):
        if (phase == "optimizer" and part not in (DOWN, UP)) or (phase in _WINDOWS and part not in _DATA):
            account.add(part, seconds)
    if {("optimizer", DOWN), ("optimizer", UP)} & sums.keys():
        last = {part: edges.get(("optimizer", part), zero) for part in (DOWN, UP)}
        copies, exposed = of_the_update(sums, last, _free(sums, "backward", zero))
        account.add("offload", exposed, copies - exposed)
    return account


def _free(sums: Mapping[tuple[str, str], Array], phase: str, zero: Array) -> Array:
    """Time for messages of a step: computation of a phase, or copies that last longer, less its own messages."""
    computing = sum((s for (p, part), s in sums.items() if p == phase and part.startswith("compute.")), zero)
    lasting = np.maximum.reduce([np.asarray(computing), *(sums.get((phase, op), zero) for op in (DOWN, UP))])
    return np.asarray(lasting - np.minimum(sum((sums.get((phase, part), zero) for part in _DATA), zero), lasting))


def _edge_message(spent: Spent, runs: Mapping[str, Array], phase: str, part: str, zero: Array) -> Array:
    """What the first region of the stage sends: it gathers before all others, and its backward phase ends the step."""
    found, taken = zero, np.zeros(len(zero), dtype=bool)
    for region, times in runs.items():
        here = (times > 0.0) & ~taken
        found = np.where(here, spent.get((region, phase, part), zero), found)
        taken |= here
    return found


def _pace(stages: list[_Stage], staging: Staging) -> tuple[_Stage, Array]:
    """Return the stage that sets the pace, plan by plan, and the time of one micro-batch summed over all stages."""
    best, best_s = stages[0], _total(stages[0].micro.exposed)
    sum_s = best_s * staging.number[staging.which, 0]
    for cls, stage in enumerate(stages[1:], 1):
        seconds = _total(stage.micro.exposed)
        better = (seconds > best_s) & staging.is_there(cls)
        best = _Stage(
            best.micro.where(better, stage.micro), best.once,
            np.where(better, stage.forward_s, best.forward_s), np.where(better, stage.backward_s, best.backward_s),
        )  # fmt: skip
        best_s = np.where(better, seconds, best_s)
        sum_s = sum_s + seconds * staging.number[staging.which, cls]
    return best, sum_s


def _dearest(accounts: list[Account], staging: Staging) -> Account:
    """Return the account of the stage whose work behind the last micro-batch takes longest."""
    best = accounts[0]
    for cls, account in enumerate(accounts[1:], 1):
        best = best.where((_total(account.exposed) > _total(best.exposed)) & staging.is_there(cls), account)
    return best


def _where(better: NDArray[np.bool_], new: Parts, old: Parts) -> Parts:
    return {p: np.where(better, new.get(p, 0.0), old.get(p, 0.0)) for p in dict.fromkeys((*old, *new))}


def _total(parts: Mapping[str, Array]) -> Array:
    values = [parts[name] for name in sorted(parts)]
    return np.asarray(sum(values[1:], values[0])) if values else np.zeros(1)


def _axis(entry: Entry) -> str:
    """The axis a message is booked on: a group over several data axes counts as `dp`, `up` as `cp`."""
    last = entry.axis.split("+")[-1].split("/")[0]
    return "cp" if last == "up" else last


def _label(entry: Entry) -> tuple[str, str, str] | None:
    """Region, phase and part; a receive runs while the send does that it waits for."""
    if entry.op == "recv":
        return None
    if entry.op in (DOWN, UP):
        part = entry.op
    else:
        axis = "ring" if entry.op in RINGS else _axis(entry)
        part = f"comm.{axis}" if entry.message is not None else f"compute.{entry.kind}"
    if entry.phase is Phase.OPTIMIZER:
        return entry.region, "optimizer", "optimizer" if entry.message is None and entry.op not in (DOWN, UP) else part
    if entry.phase in (Phase.PREPARE, Phase.REDUCE):
        return entry.region, str(entry.phase), part
    return entry.region, "backward" if entry.phase in _BACKWARD else "forward", part


def _in_order(breakdown: Mapping[str, Array]) -> Mapping[str, Array]:
    """Compute by class, then communication, copies to and from the host, bubble and optimizer."""
    rank = {"compute": 0, "comm": 1, "offload": 2, "bubble": 3, "optimizer": 4}
    return dict(sorted(breakdown.items(), key=lambda kv: (rank[kv[0].split(".")[0]], kv[0])))
