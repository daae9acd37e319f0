"""Numbers of a stack from a matched trace: how much longer each class takes than predicted, and what the host adds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from types import MappingProxyType

import numpy as np

from ....backends.machine.software.stack import StackConstants
from ....backends.machine.software.stack_limits import MOVABLE
from ....ir.errors import UsageError
from ....ir.ops import OpClass
from ....ir.placement import DP
from ....ir.records import dataclass
from ....measured.match.match import Matched
from ....measured.match.planned import PlannedNode
from ....measured.match.tables import MatchedOp, tables_of
from ....measured.traces.ran import Floats
from ....measured.traces.timeline import spent
from ..profiles import FittedNumber

# What people call each class, and the number of a stack that says how much longer it takes.
SLOWDOWNS: Mapping[str, str] = MappingProxyType(
    {
        "products": "kernel_slowdown.matmul",
        "attention": "kernel_slowdown.attention",
        "experts": "kernel_slowdown.experts",
        "row-wise": "kernel_slowdown.rowwise",
        "optimizer": "optimizer_passes",
    }
)
# Between what a factor is looked for, which is what a stack's file may say, and how often: to a millionth.
_FACTORS, _HALVINGS = (0.1, 1000.0), 40
STEP, WAITING = "step", "waiting"
_IDLE = "host.micro_batch"
_KINDS = {
    OpClass.MATMUL: "products",
    OpClass.ATTENTION: "attention",
    OpClass.EXPERTS: "experts",
    OpClass.OPTIMIZER: "optimizer",
}


@dataclass(frozen=True, slots=True)
class ClassTime:
    """A class in a step: seconds of each of its kernels alone, the least that the host lets each take, and measured."""

    alone_s: Floats
    least_s: Floats
    measured_s: float

    def predicted_s(self, factor: float = 1.0) -> float:
        """Return what a prediction says whose kernels take so many times as long."""
        return float(np.maximum(self.alone_s * factor, self.least_s).sum())

    @property
    def factor(self) -> float:
        """How many times as long kernels take by what was measured; a tenth where the host alone takes longer."""
        low, high = _FACTORS
        for _ in range(_HALVINGS):
            middle = (low * high) ** 0.5
            low, high = (low, middle) if self.predicted_s(middle) > self.measured_s else (middle, high)
        return high


@dataclass(frozen=True, slots=True)
class JudgedTime:
    """A class, or the whole step, in steps that were not fitted: predicted before and after, and measured."""

    name: str
    before_s: float
    after_s: float
    measured_s: float

    @property
    def error_before(self) -> float:
        """Predicted / measured - 1."""
        return self.before_s / self.measured_s - 1.0

    @property
    def error_after(self) -> float:
        """The same with the numbers of the trace."""
        return self.after_s / self.measured_s - 1.0


@dataclass(frozen=True, slots=True)
class TraceFit:
    """What a trace tells of a stack.

    Attributes:
        numbers: what it tells.
        untold: what it does not, each with the reason.
        fitted: steps that were fitted, by their places in the trace.
        judges: steps that judge; those that were fitted where there is one alone.
        judged: the step and its classes in the steps that judge.
    """

    numbers: Sequence[FittedNumber]
    untold: Mapping[str, str]
    fitted: Sequence[int]
    judges: Sequence[int]
    judged: Sequence[JudgedTime]


@dataclass(frozen=True, slots=True)
class PredictedParts:
    """Of a predicted step in seconds: all of it, and what the host takes of it."""

    step_s: float
    host_s: float
    stack: StackConstants


def fit_trace(matched: Matched, predicted: PredictedParts) -> TraceFit:
    """Fit the numbers of a stack to every other marked step; the others judge.

    UsageError where nothing of the trace was matched.
    """
    whole = range(matched.steps if matched.trace.steps else 1)
    fitted, judges = (list(whole[::2]), list(whole[1::2])) if len(whole) > 1 else ([0], [0])
    classes = _classes(matched, fitted)
    if not classes:
        raise UsageError(f"'{matched.trace.path}': no kernel is of a node of the prediction: is it of the same model?")
    # What lies between kernels, less what the prediction has the host take.
    waits_s = max(_waiting_s(matched, fitted) - predicted.host_s, 0.0)
    numbers = list(_numbers(classes, waits_s, matched, predicted.stack))
    ratios = {name: time.factor for name, time in classes.items()}
    judged = list(_judged(matched, judges, ratios, waits_s, predicted))
    told = {number.path for number in numbers}
    reasons = {
        "slowdown": "the run has no such message, or none that was matched",
        "kernel_slowdown": "the run has no such kernel, or none that was matched",
        "overlap": "one run does not tell what could hide from what did",
        "host": "one trace does not tell time of the host by layer, micro-batch and step apart: all of it is of a "
        "micro-batch",
        "": "no kernel of an optimizer was matched",
    }
    return TraceFit(
        numbers,
        {path: reasons[path.rpartition(".")[0]] for path in MOVABLE if path not in told},
        fitted,
        judges,
        judged,
    )


def _numbers(
    classes: Mapping[str, ClassTime], waits_s: float, matched: Matched, stack: StackConstants
) -> Iterator[FittedNumber]:
    for name, time in classes.items():
        path = SLOWDOWNS.get(name, f"slowdown.{name}")
        before, ratio = MOVABLE[path].of(stack), time.factor
        value = before * ratio
        if path == "optimizer_passes":
            # The passes of clipping stay what they are: together they take what was measured.
            whole = stack.factor(OpClass.OPTIMIZER)
            value = min(max(before + whole * (ratio - 1.0), _FACTORS[0]), _FACTORS[1])
        yield FittedNumber(path, before, value)
    before = stack.host.micro_batch_s
    yield FittedNumber(_IDLE, before, before + waits_s / matched.positions.planned.micro_batches)


def _classes(matched: Matched, steps: Sequence[int]) -> Mapping[str, ClassTime]:
    """Return the classes of nodes that were both predicted and measured, in the median step; messages by their axis."""
    planned = matched.positions.planned.nodes
    number = {node.node: k for k, node in enumerate(planned)}
    measured: dict[str, list[float]] = {}
    inside: dict[str, set[int]] = {}
    for k, step in enumerate(steps):
        for row in tables_of(_of_steps(matched, [step])).ops:
            if row.how != "nothing":
                name = _class(row, planned, number)
                measured.setdefault(name, [0.0] * len(steps))[k] += row.measured_s
                inside.setdefault(name, set()).update(number[node] for node in row.nodes)
    alone = np.array([node.alone_s for node in planned])[matched.positions.node]
    least = np.array([0.0 if node.kernel_s is None else node.time_s for node in planned])[matched.positions.node]
    found = {}
    for name, nodes in inside.items():
        mine = np.isin(matched.positions.node, list(nodes))
        found[name] = ClassTime(alone[mine], least[mine], median(measured[name]))
    return {name: time for name, time in found.items() if time.predicted_s() and time.measured_s}


def _class(row: MatchedOp, planned: Sequence[PlannedNode], number: Mapping[str, int]) -> str:
    if row.how == "between" or not row.nodes:
        return "row-wise"
    node = planned[number[row.nodes[0]]]
    if node.sent is not None:
        axis = node.sent.axis.booked_on
        return axis if f"slowdown.{axis}" in MOVABLE else DP
    return _KINDS.get(OpClass(node.kind), "row-wise")


def _of_steps(matched: Matched, steps: Sequence[int]) -> Matched:
    """Return a matching of some of its marked steps; of a trace without marks it is all of it."""
    if not matched.trace.steps:
        return matched
    counted = matched.counted & np.isin(matched.calls.step, steps)
    return replace(matched, counted=counted, steps=len(steps))


def _step_s(matched: Matched, steps: Sequence[int]) -> float:
    trace = matched.trace
    if trace.steps:
        return float(np.median(trace.step_times_us[list(steps)])) * 1e-6
    return spent(trace).total_us * 1e-6 / matched.steps


def _waiting_s(matched: Matched, steps: Sequence[int]) -> float:
    """Seconds of the median step in which nothing runs."""
    trace = matched.trace
    if not trace.steps:
        return spent(trace).idle_us * 1e-6 / matched.steps

    def of(step: int) -> float:
        time = spent(trace, trace.step_of == step)
        return max(float(trace.step_times_us[step]) - time.total_us + time.idle_us, 0.0)

    return median(of(step) for step in steps) * 1e-6


def _judged(
    matched: Matched, steps: Sequence[int], ratios: Mapping[str, float], waits_s: float, predicted: PredictedParts
) -> Iterator[JudgedTime]:
    """Set a step and its classes with the numbers of the trace beside steps that were measured."""
    classes = _classes(matched, steps)
    after = {name: time.predicted_s(ratios.get(name, 1.0)) for name, time in classes.items()}
    longer_s = sum(after[name] - time.predicted_s() for name, time in classes.items())
    yield JudgedTime(STEP, predicted.step_s, predicted.step_s + longer_s + waits_s, _step_s(matched, steps))
    for name, time in classes.items():
        yield JudgedTime(name, time.predicted_s(), after[name], time.measured_s)
    if (idle_s := _waiting_s(matched, steps)) > 0.0:
        yield JudgedTime(WAITING, predicted.host_s, predicted.host_s + waits_s, idle_s)
