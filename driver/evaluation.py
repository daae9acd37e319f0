"""A table of plans of one lowered model to estimates: their nodes priced, added up and counted, a part at a time."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..backends.machine.software.phases import check_phase
from ..backends.machine.system import System
from ..backends.machine.system_table import num_machines
from ..backends.pricing.roofline import Backend
from ..backends.pricing.timing import Timing, price
from ..cost.flops import Convention
from ..cost.schedules.pipeline import Paced, Pipelines
from ..cost.schedules.together import alone
from ..cost.step.policy import StepPolicy
from ..cost.step.prepared import PreparedPlans
from ..cost.step.rollup import StepSeconds, in_reading_order, roll_up, rolled_up
from ..cost.step.stages import Staging
from ..ir.errors import UsageError
from ..ir.plan import PlanTable
from ..ir.plan.precision import check_units
from ..ir.plan.structure import check_axes
from ..ir.records import dataclass
from ..ir.sizes.expr import Num
from ..ir.sizes.points import Points
from .lowering import Lowered

Array = NDArray[np.float64]
Index = NDArray[np.intp]
# Plans, and distinct points of most nodes, of a part of a table: what is worked out of them stays in a core's cache.
ROWS, POINTS = 16384, 4096


@dataclass(frozen=True)
class Estimates:
    """The answer for a table of plans: metrics, breakdown and memory as columns.

    `made` holds node times and stages; None for a table evaluated in parts, whose node times are computed again on
    request, for all plans at once, and whose `step.stages` is empty.
    """

    lowered: Lowered
    plans: PlanTable
    system: System
    step: StepSeconds
    memory_bytes: Mapping[str, Array]
    metrics: Mapping[str, Array]
    convention: Convention = Convention.FULL
    made: tuple[Timing, Staging] | None = None

    @cached_property
    def timing(self) -> Timing:
        """The times of all nodes."""
        return self.made[0] if self.made else price(self.lowered.bindings.to(self.system), Points(self.plans))

    @cached_property
    def staging(self) -> Staging:
        """The stages of all plans."""
        return self.made[1] if self.made else self.lowered.stages.evaluate(self.plans, Points(self.plans))

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Whether each plan fits the device and its share of the host."""
        return fits_memory(self.system, self.plans, self.metrics)


def fits_memory(system: System, plans: PlanTable, metrics: Mapping[str, Array]) -> NDArray[np.bool_]:
    """Return whether each plan fits the device, and what it offloads the memory of the node's host."""
    fits = np.asarray(metrics["peak_mem_bytes"] <= system.chip.hbm_bytes)
    away = metrics.get("host_mem_bytes")
    return fits if away is None else np.asarray(fits & (away <= system.host_share_bytes(plans.num_gpus)))


def evaluate(
    lowered: Lowered,
    system: System,
    plans: PlanTable,
    convention: Convention = Convention.FULL,
    prepared: PreparedPlans | None = None,
    backends: Sequence[Backend] | None = None,
) -> Estimates:
    """Evaluate a table of plans; only their axes are checked here (see `check_divisibility` for the rest).

    A long table is worked through in parts that stay in the cache of a core, so that memory does not grow with its
    rows, their answers aside; a row is the same to the last bit in any part.

    `prepared` is what `screen` has worked out for exactly these plans on this system: see `Screened.fitting`.
    `backends` take the place of those that the graph was lowered with: see `lower`.
    """
    return alone(evaluated(lowered, system, plans, convention, prepared, backends))


def evaluated(
    lowered: Lowered,
    system: System,
    plans: PlanTable,
    convention: Convention = Convention.FULL,
    prepared: PreparedPlans | None = None,
    backends: Sequence[Backend] | None = None,
) -> Generator[Pipelines, Paced, Estimates]:
    """Price a table of plans as `evaluate` does, and ask in between how long its pipelines take: see `together`."""
    if not lowered.graph.axes:
        raise UsageError("the graph is not sharded: an estimate needs a pipeline with 'shard' in it, run to the end")
    if backends is not None:
        lowered = replace(lowered, bindings=lowered.bindings.behind(backends))
    check_phase(system.stack, str(plans.family.workload))
    check_axes(lowered.graph.axes, plans.mesh)
    check_units(plans.family, system.chip.name, system.chip.peak_flop_per_s.by_dtype())
    if len(plans) <= ROWS or num_machines(system) is not None:
        return (yield from _at_once(lowered, system, plans, convention, prepared))
    parts = _Parts(len(plans))
    for rows in _cut(lowered, plans):
        ready = None if prepared is None else prepared.part(rows)
        some = plans.part(rows) if ready is None else ready.plans
        parts.take(rows, (yield from _at_once(lowered, system, some, convention, ready)))
    return Estimates(lowered, plans, system, parts.step, parts.memory, parts.metrics, convention)


def _at_once(
    lowered: Lowered, system: System, plans: PlanTable, convention: Convention, prepared: PreparedPlans | None
) -> Generator[Pipelines, Paced, Estimates]:
    ready = prepared or PreparedPlans.of(lowered.stages, lowered.memory, system, plans)
    timing = price(lowered.bindings.to(system), ready.points)
    step = yield from rolled_up(timing, plans, ready.staging, StepPolicy.of(system), lowered.step)
    metrics = dict(lowered.counted.metrics(system, ready, step, convention))
    metrics |= host_metric(lowered, ready)
    check_finite(metrics, f"system '{system.name}'")
    made = timing, ready.staging
    return Estimates(lowered, plans, system, step, ready.memory_bytes, metrics, convention, made)


def host_metric(lowered: Lowered, ready: PreparedPlans) -> dict[str, Array]:
    """Return as a metric the bytes that a device of each plan keeps in host memory; none where nothing is offloaded."""
    if not ready.plans.family.offload:
        return {}
    return {"host_mem_bytes": lowered.memory.host_bytes(ready.points, ready.plans, ready.staging)}


def _cut(lowered: Lowered, plans: PlanTable) -> Iterator[Index]:
    """Cut a table in parts, rows that most nodes see as one point side by side, each part with few points or few rows.

    So each point is priced once, or, where points end parts, twice.
    """
    tables = lowered.program.tables
    if not tables:
        yield from np.split(np.arange(len(plans)), range(ROWS, len(plans), ROWS))
        return
    most = max(tables, key=lambda table: sum(len(m.distinct.entries) for m in table.merged))
    point = Points(plans).of(most.symbols)[1]
    order = np.argsort(point, kind="stable")
    # How many points there are up to each row: a part ends where it has enough of either.
    number, start = np.cumsum(np.diff(point[order], prepend=-1) != 0), 0
    while start < len(order):
        stop = int(np.searchsorted(number, number[start] + POINTS))
        stop = min(stop, start + ROWS)
        yield np.sort(order[start:stop])
        start = stop


class _Parts:
    """What parts of a table found, put back in its rows; what a part has not, as no plan of it has, is zero there."""

    def __init__(self, num: int) -> None:
        self._num = num
        self._breakdown, self._hidden, self._passes, self.memory, self.metrics = (dict[str, Array]() for _ in range(5))

    def take(self, rows: Index, part: Estimates) -> None:
        """Keep the answers of some rows."""
        step = part.step
        both = {"forward": step.forward_s, "backward": step.backward_s}
        found = (step.breakdown, step.hidden_comm_s, both, part.memory_bytes, part.metrics)
        kept = (self._breakdown, self._hidden, self._passes, self.memory, self.metrics)
        for columns, some in zip(kept, found, strict=True):
            for name, values in some.items():
                columns.setdefault(name, np.zeros(self._num))[rows] = values

    @property
    def step(self) -> StepSeconds:
        """The steps of all rows."""
        shown = in_reading_order(self._breakdown)
        return StepSeconds(shown, self._hidden, self._passes["forward"], self._passes["backward"])


def step_of(lowered: Lowered, timing: Timing, policy: StepPolicy, plans: PlanTable, staging: Staging) -> StepSeconds:
    """Roll node times up to a step; of the system it knows the policy alone."""
    return roll_up(timing, plans, staging, policy, lowered.step)


def first_row(columns: Mapping[str, Num]) -> dict[str, float]:
    """Return the first row of some columns as numbers."""
    return {name: float(np.ravel(column)[0]) for name, column in columns.items()}


def check_finite(metrics: Mapping[str, Num], machines: str) -> None:
    """UsageError for a metric that is no number, of machines by their names."""
    # Adding up is quick, and leaves nothing finite where one is not.
    if np.isfinite(sum(metrics.values())).all():
        return
    for name, values in metrics.items():
        if not np.isfinite(values).all():
            raise UsageError(f"{name} is beyond any number: a value of {machines} or of the plan is absurd")
