"""What one stage spends on a micro-batch, and once a step: what is exposed, what hides, where the host is slower."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ...ir.graph import Workload
from ...ir.ops.host import DOWN, UP
from ...ir.placement import CP
from ...ir.plan import PlanTable
from ...ir.records import dataclass
from .account import Account, total_of
from .policy import FORWARD_SHARE, StepPolicy, floored
from .stages import Staging
from .step_program import RING, WEIGHTS, Label, StepProgram

# Copies to and from the host: a stream a direction, of which only what no work hides is part of the step.

Array = NDArray[np.float64]


def of_a_phase(parts: Mapping[str, Array], busy: Array) -> tuple[Array, Array]:
    """Return seconds of copies in one phase of a micro-batch, and what of them is exposed.

    Both directions run at once, behind computation and all messages that it does not hide:
    exposed = max(0, max(down, up) - busy).
    """
    down, up = (parts.get(op, np.zeros_like(busy)) for op in (DOWN, UP))
    return down + up, np.maximum(np.maximum(down, up) - busy, 0.0)


def of_the_update(
    sums: Mapping[tuple[str, str], Array], last: Mapping[str, Array], backward: Array
) -> tuple[Array, Array]:
    """Return seconds of copies of the update, and what of them is exposed.

    Gradients go down behind the backward phase of the last micro-batch and the reduction behind it, weights come up
    behind the update of others; exposed is what does not fit there, and at least the copies of the first region, whose
    gradients come last.
    """
    zero = np.zeros_like(backward)
    down, up = (sums.get(("optimizer", op), zero) for op in (DOWN, UP))
    update = sums.get(("optimizer", "optimizer"), zero)
    exposed = _exposed(down, backward, last[DOWN]) + _exposed(up, update, last[UP])
    return down + up, exposed


def _exposed(spent: Array, window: Array, last: Array) -> Array:
    return np.asarray(np.minimum(spent, np.maximum(spent - window, last)))


# Seconds of one run of a region, by region, phase and part.
Spent = Mapping[Label, Array]
# What runs once a step beside a micro-batch, and the phase that hides it.
_WINDOWS = MappingProxyType({"prepare": ("forward",), "reduce": ("backward", WEIGHTS)})
# What something in the same region hides of the messages over an axis.
HIDDEN = "hidden."
# Data-parallel messages in the order in which they are sent: gradients are scattered, then their shards summed.
DATA = ("comm.fsdp", "comm.dp")
PHASES = ("forward", "backward", WEIGHTS)
LENT = "compute.lent_sms"
# What runs once a step and may be exposed at its edge, where the first region of a stage begins or ends.
_EDGES = (*((phase, part) for phase in _WINDOWS for part in DATA), ("optimizer", DOWN), ("optimizer", UP))


@dataclass(frozen=True, slots=True)
class StageTime:
    """What one class of stages spends on a micro-batch and, behind the last one, once a step.

    `forward_s` and `backward_s` are all that a micro-batch takes there; `wgrad_s` is the part of the backward phase
    that only makes gradients of weights, where the schedule runs it apart.
    """

    forward: Account
    backward: Account
    once: Account
    wgrad_s: Array

    @property
    def forward_s(self) -> Array:
        """Seconds of the forward phase of a micro-batch."""
        return self.forward.total_s

    @property
    def backward_s(self) -> Array:
        """Seconds of the backward phase of a micro-batch, recomputation included."""
        return self.backward.total_s

    @property
    def micro(self) -> Account:
        """Both phases of a micro-batch."""
        both = Account()
        both.join(self.forward)
        both.join(self.backward)
        return both


@dataclass(frozen=True, slots=True)
class StagePasses:
    """What one class of stages spends on a micro-batch, phase by phase, and the seconds that it is added up from.

    `edges` is what the first region of the stage spends once a step, `zero` a zero of each plan.
    """

    sums: Mapping[tuple[str, str], Array]
    edges: Mapping[tuple[str, str], Array]
    passes: Mapping[str, Account]
    zero: Array

    @property
    def backward(self) -> Account:
        """The backward phase with gradients of weights."""
        both = Account()
        for phase in PHASES[1:]:
            if phase in self.passes:
                both.join(self.passes[phase])
        return both

    @property
    def forward_s(self) -> Array:
        """Seconds of the forward phase."""
        return self.passes["forward"].total_s

    @property
    def backward_s(self) -> Array:
        """Seconds of the backward phase with gradients of weights."""
        return self.backward.total_s

    @property
    def wgrad_s(self) -> Array:
        """Seconds of gradients of weights where they are apart, else 0."""
        return self.passes[WEIGHTS].total_s + self.zero if WEIGHTS in self.passes else self.zero


@dataclass(frozen=True, slots=True)
class StageTimer:
    """Adds up stages of a table of plans."""

    spent: Spent
    staging: Staging
    plans: PlanTable
    policy: StepPolicy
    program: StepProgram

    def passes(self, cls: int) -> StagePasses:
        """Add up what one class of stages spends on a micro-batch."""
        runs = self.staging.runs(cls)
        sums = self._sums(runs | self.staging.sent(cls))
        zero = np.zeros(len(self.plans))
        # Zero-bubble schedules take gradients of weights out of the backward phase, to fill waits with them.
        split = self.plans.family.pipeline.split_backward
        passes = {phase: self._pass(sums, phase, runs) for phase in (PHASES if split else PHASES[:2])}
        edges = {key: _edge_message(self.spent, runs, *key, zero) for key in _EDGES if key in sums}
        return StagePasses(sums, edges, passes, zero)

    def stage(self, found: StagePasses, micro_batch_s: Array) -> StageTime:
        """Add what it spends once a step; `micro_batch_s` is what the pipeline takes for a micro-batch."""
        zero = found.zero
        # A stage whose gradients of weights are apart fills what it waits for others with them: where they get faster
        # it waits, and what runs once a step goes on. In other schedules the wait is at the ends of the step.
        split = WEIGHTS in found.passes
        idle = np.maximum(micro_batch_s - found.forward_s - found.backward_s, 0.0) if split else zero
        once = _once_a_step(found.sums, found.edges, found.passes, idle, self.policy.overlap.dp)
        if self.policy.host.step_s > 0.0 and self.plans.family.workload is Workload.TRAIN:
            once.add("host", zero + self.policy.host.step_s)
        lend(once, self.policy, self.plans, in_pass=False)
        return StageTime(found.passes["forward"], found.backward, once, found.wgrad_s)

    def _sums(self, runs: Mapping[str, Array]) -> dict[tuple[str, str], Array]:
        """Seconds of a stage by phase and part, in one order of addition whatever other plans the table has."""
        sums: dict[tuple[str, str], Array] = {}
        for (region, phase, part), seconds in self.spent.items():
            times = runs.get(region)
            if times is not None:
                times = times * self.staging.share if phase in PHASES else times
                key = (phase, part)
                sums[key] = sums[key] + seconds * times if key in sums else seconds * times
        return dict(sorted(sums.items()))

    def _pass(self, sums: Mapping[tuple[str, str], Array], phase: str, runs: Mapping[str, Array]) -> Account:
        """One phase of a micro-batch, no faster than the host issues it."""
        parts = {part: s for (p, part), s in sums.items() if p == phase}
        account = pass_account(parts, np.zeros(len(self.plans)), self.plans.columns[CP], self.staging, self.policy)
        host = self._host(phase, runs)
        if np.any(host > 0.0):
            device = account.total_s + np.zeros(len(self.plans))
            account.add("host", floored(device, host, self.policy.host.sharpness) - device)
        if phase == "forward" and self.policy.host.micro_batch_s > 0.0:
            account.add("host", np.full(len(self.plans), self.policy.host.micro_batch_s))
        # Messages that hide still take SMs and memory bandwidth from what they hide behind: that is paid at the end.
        lend(account, self.policy, self.plans)
        return account

    def _host(self, phase: str, runs: Mapping[str, Array]) -> Array:
        """The host's time for the layers of a stage in one phase."""
        each = self.policy.layer_s(self.plans)
        total = np.zeros(len(self.plans))
        for region in sorted(self.program.layers & runs.keys()):
            again = self.program.issued_again[region] * FORWARD_SHARE
            share = {"forward": FORWARD_SHARE, WEIGHTS: FORWARD_SHARE}.get(phase, 1.0 - FORWARD_SHARE + again)
            if phase == "backward" and self.plans.family.pipeline.split_backward:
                share -= FORWARD_SHARE
            total = total + runs[region] * self.staging.share * share * each
        return total


def lend(account: Account, policy: StepPolicy, plans: PlanTable, *, in_pass: bool = True) -> None:
    """Book the computation that waits for the SMs and the memory bandwidth that hidden communication takes.

    The latter of what is sent in every micro-batch: of what is sent once a step no fitted row tells.
    """
    none = ("comm.pp", *(("comm.tp",) if plans.family.async_tp else ()))  # a send takes a channel or two
    parts = {part: seconds for part, seconds in account.hidden.items() if part.startswith("comm.") and part not in none}
    lost = [s * (policy.lost_share(part, plans) if in_pass else policy.sm_share) for part, s in parts.items()]
    if lost and np.any(policy.sm_share + policy.overlap.contention * in_pass > 0.0):
        account.add(LENT, sum(lost[1:], lost[0]))


def pass_account(parts: Mapping[str, Array], zero: Array, cp: Array, staging: Staging, policy: StepPolicy) -> Account:
    """Add up one phase of a micro-batch.

    Data-parallel messages inside it run behind its computation; interleaved stages send behind the computation of their
    other chunks. Ring attention passes blocks on behind the attention of the block it has: cp blocks take cp - 1 steps
    of max(attention, exchange) and one more of attention, so that attention x (1 - 1/cp) hides as much of the ring.
    Where the layers of two micro-batches run in turn, exchanges of experts run behind the computation of the other one.
    Of what could hide, as much does as the stack lets run beside computation. A second of computation hides a second of
    messages, whatever their axes, so that computation that gets faster never makes a phase longer.
    """
    account = Account()
    compute = sum((s for part, s in parts.items() if part.startswith("compute.")), zero)
    left = compute - sum((s for part, s in parts.items() if part.startswith(HIDDEN)), zero)
    ring = parts.get("compute.attention", zero) * (1.0 - 1.0 / cp)
    shares = {
        "comm.ep": policy.overlap.batches,
        "comm.pp": policy.overlap.pp,
        **dict.fromkeys(DATA, policy.overlap.fsdp),
    }
    windows = {RING: ring, "comm.pp": np.where(staging.chunks > 1.0, np.inf, 0.0)}
    hidden: dict[str, Array] = {}
    for part in (RING, "comm.ep", "comm.pp", *DATA):
        if part in parts:
            most = np.minimum(parts[part] * shares.get(part, 1.0), windows.get(part, np.inf))
            hidden[part] = np.minimum(most, np.maximum(left, 0.0))
            left = left - hidden[part]
    for part, seconds in parts.items():
        if part.startswith(HIDDEN):
            account.add(f"comm.{part.removeprefix(HIDDEN)}", np.zeros_like(seconds), seconds)
        elif part in hidden:
            account.add("comm.cp" if part == RING else part, seconds - hidden[part], hidden[part])
        elif part not in (DOWN, UP):
            account.add(part, seconds)
    if DOWN in parts or UP in parts:
        copies, exposed = of_a_phase(parts, account.total_s + zero)
        account.add("offload", exposed, copies - exposed)
    return account


def _once_a_step(
    sums: Mapping[tuple[str, str], Array],
    edges: Mapping[tuple[str, str], Array],
    passes: Mapping[str, Account],
    idle: Array,
    share: float,
) -> Account:
    """Gathers behind the first forward phase, reductions behind the last backward phase, then the optimizer.

    In the backward phase the stage waits `idle` seconds for others, in which messages and copies go on.
    """
    account = Account()
    zero = np.zeros_like(idle)
    waited = idle
    for phase, behind in _WINDOWS.items():
        beside = idle if phase == "reduce" else zero
        window = sum((_free(sums, passes[name], name, zero) for name in behind if name in passes), beside)
        for part in DATA:
            if (phase, part) in sums:
                seconds = sums[phase, part]
                left = seconds - np.minimum(seconds * share, window)
                exposed = np.minimum(seconds, np.maximum(left, edges[phase, part]))
                account.add(part, exposed, seconds - exposed)
                window = np.maximum(window - seconds, 0.0)
                waited = waited + exposed if phase == "reduce" else waited
    for (phase, part), seconds in sorted(sums.items()):
        if (phase == "optimizer" and part not in (DOWN, UP)) or (phase in _WINDOWS and part not in DATA):
            account.add(part, seconds)
    if {("optimizer", DOWN), ("optimizer", UP)} & sums.keys():
        last = {part: edges.get(("optimizer", part), zero) for part in (DOWN, UP)}
        for name in (name for name in _WINDOWS["reduce"] if name in passes):
            waited = waited + _free(sums, passes[name], name, zero)
        copies, exposed = of_the_update(sums, last, waited)
        account.add("offload", exposed, copies - exposed)
    return account


def _free(sums: Mapping[tuple[str, str], Array], account: Account, phase: str, zero: Array) -> Array:
    """Time of a phase for messages of a step: all but its own messages, shown or hidden, and waiting for lent SMs.

    What is taken off does not depend on how fast anything computes: computation that takes longer leaves as much more.
    """
    ours = (part for part in account.exposed if not part.startswith("comm.") or part in DATA)
    shown = {part: account.exposed[part] for part in ours if part != LENT}
    hidden = {part: s for part, s in account.hidden.items() if part.startswith("comm.") and part not in DATA}
    data = sum((sums.get((phase, part), zero) for part in DATA), zero)
    return np.asarray(np.maximum(total_of(shown) - data - sum(hidden.values(), zero), 0.0))


def _edge_message(spent: Spent, runs: Mapping[str, Array], phase: str, part: str, zero: Array) -> Array:
    """What the first region of the stage sends: it gathers before all others, and its backward phase ends the step."""
    found, taken = zero, np.zeros(len(zero), dtype=bool)
    for region, times in runs.items():
        here = (times > 0.0) & ~taken
        found = np.where(here, spent.get((region, phase, part), zero), found)
        taken |= here
    return found
