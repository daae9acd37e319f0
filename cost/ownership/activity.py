"""What a step does, in joules: operations, bytes of memory and bytes of network, node by node of the lowered graph.

    E = FLOPs e_dtype + vector FLOPs e_vector + bytes (e_memory + e_cache) + wire bytes e_wires <= (P - P_idle) t

in a node that takes t on a package of P; what wires take, those between dies of a package included, is in `wires`.
Source of the form and of most numbers: Chiplet Cloud (github bespoke-silicon-group/reallm) and RAPID-LLM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...backends.machine.system import System
from ...backends.prices.ownership_schema import EnergySection
from ...backends.prices.section import Prices
from ...backends.pricing.program import PricedEntry, PricingGroup
from ...backends.pricing.timing import PricedGroup, Timing
from ...ir.errors import UnknownNameError
from ...ir.graph import Phase, Workload
from ...ir.ops import OpClass, Trait, has
from ...ir.plan import IMBALANCE, PlanTable
from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from ...ir.sizes.points import Points
from .cabling.trees import plain
from .server import watts_of
from .wires import Wires, sent_joules, wires_of

Array = NDArray[np.float64]
Index = NDArray[np.intp]
# What a chip is taken to have whose package nobody describes.
USUAL_MEMORY = "hbm3"
PARTS = ("matrix units", "vector units", "memory", "cache", "network")
_ONCE = frozenset((Phase.OPTIMIZER, Phase.PREPARE, Phase.REDUCE))


@dataclass(frozen=True, slots=True)
class Activity:
    """Joules of a step of all packages together, above what they draw at rest, by what takes them."""

    parts_j: Mapping[str, Array]

    @property
    def total_j(self) -> Array:
        """All of it."""
        return np.asarray(sum(self.parts_j.values()))


def activity(
    timing: Timing, plans: PlanTable, system: System, prices: Prices, runs: Mapping[str, float] | None = None
) -> Activity:
    """Add up what a step does over all its nodes, micro-batches and packages.

    `runs` says how often all stages on the system together run each region in one pass, where others have stages too.

    Raises:
        UnknownNameError: a memory, a dtype or an interface between dies of which nobody says the energy.
    """
    energy = prices.section.energy
    memory = memory_kind(system)
    if memory not in energy.memory:
        raise UnknownNameError.of("memory of prices.energy", memory, energy.memory)
    # Of a table of machines, each is a column of its own in the times.
    held_w = watts_of(system.chip) - idle_w(system, prices)
    points = Points(plans)
    sizes = timing.sizes(lambda symbols: _mean(points, symbols))
    wires = wires_of(system, energy)
    found = [_joules(p, of, energy, wires, memory, held_w) for p, of in zip(timing.priced, sizes, strict=True)]
    return Activity(dict(zip(PARTS, _added_up(timing, plans, found, runs), strict=True)))


def _mean(points: Points, symbols: Sequence[str]) -> tuple[Mapping[str, Array], int]:
    """Points of some symbols, and how many: energy is that of all ranks, and the mean of them has an even load."""
    env, point = points.of(symbols)
    num = int(point.max()) + 1
    return {**env, IMBALANCE: np.ones(num)}, num


def idle_w(system: System, prices: Prices) -> Num:
    """Return what a package draws whatever it does: `idle_share` of its design power, at most what it may draw."""
    return plain(np.minimum(prices.section.energy.idle_share.si * system.chip.power_w, watts_of(system.chip)))


def memory_kind(system: System) -> str:
    """Return the kind of memory of which a package has most bytes."""
    stacks = [] if system.package is None else list(system.package.counted_stacks())
    if not stacks:
        return USUAL_MEMORY
    return max(stacks, key=lambda s: float(np.max(s[0].num_bytes * s[1])))[0].kind


def _added_up(timing: Timing, plans: PlanTable, joules: list[Array], runs: Mapping[str, float] | None) -> Array:
    """Put joules in the place of seconds, all parts at once, and add up every rank, stage and micro-batch of a step."""
    points: dict[int, Index] = {}
    for p, found in zip(timing.priced, joules, strict=True):
        wide = found.shape[1] // len(PARTS)
        points.setdefault(id(p.point), np.concatenate([p.point + k * wide for k in range(len(PARTS))]))
    priced = (
        replace(p, distinct_s=found, point=points[id(p.point)]) for p, found in zip(timing.priced, joules, strict=True)
    )
    of_joules = replace(timing, priced=tuple(priced))
    nothing = np.zeros(len(PARTS) * len(plans))
    if runs is None:
        sums = dict(of_joules.sums(_how_often))
    else:
        sums = {}
        for (region, key), part in of_joules.sums(_of_a_region, once=True).items():
            sums[key] = sums.get(key, nothing) + part * runs.get(region, 0.0)
    train = timing.program.graph.workload is Workload.TRAIN
    batches = plans.num_micro_batches if train else np.ones(len(plans))
    each, once = (sums.get(key, nothing).reshape(len(PARTS), -1) for key in ("each", "once"))
    return np.asarray((each * batches + once) * (plans.num_gpus / plans.stages[0]))


def _of_a_region(entry: PricedEntry) -> tuple[str, str] | None:
    key = _how_often(entry)
    return None if key is None else (entry.region, key)


def _how_often(entry: PricedEntry) -> str | None:
    """Once a step, or with each micro-batch; a receive moves nothing that its send does not."""
    if has(entry, Trait.RECEIVES):
        return None
    return "once" if entry.phase in _ONCE else "each"


def _joules(priced: PricedGroup, sizes: Array, energy: EnergySection, wires: Wires, memory: str, held_w: Num) -> Array:
    """Joules of each distinct entry at each point, part beside part, together at most what the package can take."""
    group = priced.group if priced.merged is None else priced.merged.distinct
    if group.axis:
        sent = sent_joules(group, sizes, wires)
        found = (*(np.zeros_like(sent) for _ in PARTS[1:]), sent)
    else:
        found = _computed(group, sizes, energy, memory)
    total = sum(found)
    # What takes no energy is held by nothing.
    held = np.minimum(held_w * priced.distinct_s / np.where(total > 0, total, np.inf), 1.0)
    return np.concatenate([part * held for part in found], axis=1)


def _computed(group: PricingGroup, sizes: Array, energy: EnergySection, memory: str) -> tuple[Array, ...]:
    amounts = group.amounts_in(sizes)
    each = np.array([[_of_dtype(energy, e)] for e in group.entries])
    # Copies to and from the host go through its memory and a link as well.
    host = np.array(
        [[(energy.memory["ddr5"].si + energy.network.si if e.kind is OpClass.HOST else 0.0)] for e in group.entries]
    )
    moved = amounts.num_bytes * energy.memory[memory].si
    return (
        amounts.tensor_flops * each,
        amounts.vector_flops * energy.vector.si,
        moved + amounts.num_bytes * host,
        amounts.num_bytes * energy.cache.si,
        np.zeros_like(moved),
    )


def _of_dtype(energy: EnergySection, entry: PricedEntry) -> float:
    name = _element(str(entry.dtype))
    if name in energy.compute:
        return energy.compute[name].si
    if entry.kind in (OpClass.MATMUL, OpClass.ATTENTION, OpClass.EXPERTS, OpClass.SCAN):
        raise UnknownNameError.of("dtype of prices.energy.compute", name, energy.compute)
    return energy.compute["fp32"].si


def _element(dtype: str) -> str:
    """The type of an element, whatever scales it comes with.

    >>> [_element(name) for name in ("bf16", "fp8_block", "mxfp8", "nvfp4", "int4_group")]
    ['bf16', 'fp8', 'fp8', 'fp4', 'int4']
    """
    return dtype.partition("_")[0].removeprefix("mx").removeprefix("nv")
