"""A plan priced once on each machine of a mixed fleet, then added up under any number of layouts of its layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ..backends.machine.system import System
from ..backends.pricing.timing import Timing, price
from ..cost.schedules.together import alone
from ..cost.step.policy import StepPolicy
from ..cost.step.prepared import memory_of
from ..cost.step.rollup import StepSeconds, piped, spent_by_regions
from ..cost.step.stage_time import PHASES, Spent, StageTimer
from ..ir.errors import PlanError, UsageError
from ..ir.graph import Workload
from ..ir.placement import PP
from ..ir.plan import Plan, rank_order
from ..ir.plan.layout.stages import lay_sizes
from ..ir.plan.precision import check_units
from ..ir.plan.structure import check_axes
from ..ir.records import dataclass
from ..ir.schedules.registry import USUAL, schedule_kind
from ..ir.sizes.points import Points
from .estimate import checked_table
from .fleet_stages import GroupedStages, grouped_stages, over_links
from .lowering import Lowered

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fleet:
    """Machines that hold the stages of one pipeline, from the first stage on.

    Attributes:
        systems: one for each group of stages.
        stages: of each group.
        link_bytes_per_s: what one accelerator sends between two groups at most; None for the outermost networks alone.
        link_latency_s: what a message between two groups takes at least; None for that of these networks.
    """

    systems: tuple[System, ...]
    stages: tuple[int, ...]
    link_bytes_per_s: float | None = None
    link_latency_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse a link that carries nothing."""
        if self.link_bytes_per_s is not None and not 0.0 < self.link_bytes_per_s < float("inf"):
            raise UsageError("--link: a bandwidth above 0, as 25Gbit/s")
        if self.link_latency_s is not None and not 0.0 <= self.link_latency_s < float("inf"):
            raise UsageError("--link-latency: 0 or more, as 1ms")

    @property
    def groups(self) -> tuple[int, ...]:
        """The group of each stage."""
        return tuple(g for g, num in enumerate(self.stages) for _ in range(num))

    @property
    def name(self) -> str:
        """As people write it: `dgx-h100:5,dgx-a100-80gb:3`."""
        return ",".join(f"{system.name}:{num}" for system, num in zip(self.systems, self.stages, strict=True))

    def outside(self, group: int) -> System:
        """Return a machine whose messages all go through its outermost network, no faster than the link."""
        system = self.systems[group]
        top = system.levels[-1]
        if self.link_bytes_per_s is not None:
            top = replace(top, bytes_per_s=np.minimum(top.bytes_per_s, self.link_bytes_per_s))
        if self.link_latency_s is not None:
            top = replace(top, latency_s=np.maximum(top.latency_s, self.link_latency_s))
        return replace(system, levels=(top,))


@dataclass(frozen=True, slots=True)
class MixedTable:
    """A step under several layouts: its times, its stages, and the memory of the fullest device of each group."""

    step: StepSeconds
    stages: GroupedStages
    memory_bytes: tuple[Mapping[str, Array], ...]
    limits: Array

    @property
    def peaks(self) -> Array:
        """Bytes of the fullest device, as (group, layout)."""
        return np.stack([np.asarray(sum(parts.values())) for parts in self.memory_bytes])


class MixedPricer:
    """A plan whose nodes are priced on every machine of a fleet."""

    def __init__(self, lowered: Lowered, plan: Plan, fleet: Fleet) -> None:
        """Price it; PlanError for a plan that is not legal, or has stages that a fleet cannot hold."""
        _check(plan, fleet)
        self.lowered, self.plan, self.fleet = lowered, plan, fleet
        self.plans = checked_table(lowered, [plan])
        check_axes(lowered.graph.axes, self.plans.mesh)
        for system in fleet.systems:
            check_units(plan.family, system.chip.name, system.chip.peak_flop_per_s.by_dtype())
        self.policies = tuple(StepPolicy.of(system) for system in fleet.systems)

    @cached_property
    def timings(self) -> tuple[Timing, ...]:
        """The times of all nodes, by machine."""
        return tuple(price(self.lowered.bindings.anew(s), Points(self.plans)) for s in self.fleet.systems)

    @cached_property
    def spent(self) -> Sequence[Spent]:
        """Seconds of one run of each region by machine, and of what stages send to those of other machines."""
        inside = self._spent(self.timings)
        outside = (self.lowered.bindings.anew(self.fleet.outside(g)) for g in range(len(self.fleet.systems)))
        return over_links(inside, self._spent([price(one, Points(self.plans)) for one in outside]))

    def _spent(self, timings: Sequence[Timing]) -> list[Spent]:
        pairs = zip(timings, self.policies, strict=True)
        return [spent_by_regions(timing, self.plans, policy, self.lowered.step) for timing, policy in pairs]

    def table(self, sizes: Sequence[tuple[int, ...]]) -> MixedTable:
        """Add up the step under layouts whose chunks have so many layers each; PlanError for one that is not legal."""
        plan, family, num = self.plan, self.plan.family, len(sizes)
        plans = self.plans.repeated(num)
        kind = schedule_kind(family.schedule)
        recomputed, vpp = family.recomputed_layers, kind.chunks_of(plan.vpp)
        laid = [lay_sizes(self.lowered.graph, plan.pp, vpp, one, recomputed, family.schedule) for one in sizes]
        stages = grouped_stages(self.lowered.graph, laid, self.fleet.groups, plans)
        timers = []
        for policy, spent in zip(self.policies, self.spent, strict=True):
            wide = {key: np.repeat(seconds, num) for key, seconds in spent.items()}
            timers.append(StageTimer(wide, stages.staging, plans, policy, self.lowered.step))
        train = self.lowered.source.workload is Workload.TRAIN
        step = alone(piped([timers[g] for g in stages.group], train=train))
        memory = tuple(
            memory_of(self.lowered.memory, system, Points(plans), plans, stages.of(g))
            for g, system in enumerate(self.fleet.systems)
        )
        return MixedTable(step, stages, memory, np.array([float(s.chip.hbm_bytes) for s in self.fleet.systems]))

    def memory_of_class(self, table: MixedTable, cls: int) -> Mapping[str, Array]:
        """Return bytes of a device of one class of stages by part, layout by layout."""
        system, staging = self.fleet.systems[table.stages.group[cls]], table.stages.staging.only(cls)
        plans = self.plans.repeated(len(staging.which))
        return memory_of(self.lowered.memory, system, Points(plans), plans, staging)

    def beyond_by_class(self, table: MixedTable) -> Array:
        """Return the share of its memory by which a device is overfull, as (class, layout); 0 where it is not."""
        found = np.zeros((len(table.stages.group), len(table.step.time_s)))
        # Most layouts fit, and then nothing is looked at stage by stage.
        if (table.peaks > table.limits[:, None]).any():
            for cls, group in enumerate(table.stages.group):
                needed = np.asarray(sum(self.memory_of_class(table, cls).values()))
                found[cls] = np.maximum(needed / table.limits[group] - 1.0, 0.0)
        return found

    def layer_seconds(self) -> Sequence[Mapping[str, float]]:
        """Seconds that one run of each region takes of a micro-batch, by machine."""
        found = list[Mapping[str, float]]()
        for spent in self.spent:
            each: dict[str, float] = {}
            for (region, phase, part), seconds in spent.items():
                if phase in PHASES and not part.startswith("hidden."):
                    each[region] = each.get(region, 0.0) + float(seconds[0])
            found.append(MappingProxyType(each))
        return found


def _check(plan: Plan, fleet: Fleet) -> None:
    """Refuse stages that nobody has, copies of the model, and ranks of a stage that several machines would share."""
    if sum(fleet.stages) != plan.pp:
        raise PlanError(
            f"the fleet {fleet.name} has {sum(fleet.stages)} stages, the plan pp={plan.pp}; --stages says how many"
        )
    kind = schedule_kind(plan.family.schedule)
    if kind.copies > 1:
        raise PlanError(
            f"schedule={plan.family.schedule}: each stage holds two copies of the model, one from each end of the "
            f"pipeline; on several machines use a schedule with one, such as {USUAL}"
        )
    order = rank_order(plan.family.order)
    if order[-1] != PP:
        raise PlanError(
            f"order={plan.family.order}: stages on several machines need pp outermost, so that the ranks of a stage "
            "stand on one of them; nearest: --order tp-cp-ep-dp-pp"
        )
    for system in fleet.systems if len(fleet.systems) > 1 else ():
        top = system.levels[-1]
        if top.size is not None:
            raise UsageError(
                f"system '{system.name}': its outermost network, {top.name}, joins {top.size} devices and reaches no "
                "other system; give it a level beyond that has no size"
            )
