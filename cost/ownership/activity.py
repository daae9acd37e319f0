"""What a step does, in joules: operations, bytes of memory and bytes of network, node by node of the lowered graph.

    E = FLOPs e_dtype + vector FLOPs e_vector + bytes (e_memory + e_cache) + wire bytes e_wires <= (P - P_idle) t

in a node that takes t on a package of P; what is beyond that is the part `power limit`, below zero. Energies of a chip
are in `levels`; what wires take, those between dies of a package included, is in `wires`.
Source of the form and of most numbers: Chiplet Cloud (github bespoke-silicon-group/reallm) and RAPID-LLM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...backends.machine.system import System
from ...backends.prices.section import Prices
from ...ir.errors import UnknownNameError
from ...ir.graph import Phase, Workload
from ...ir.ops import OpClass, Trait, has
from ...ir.plan import IMBALANCE, PlanTable
from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from ...ir.sizes.points import Points
from .cabling.trees import plain
from .levels import EnergyLevels, levels_of
from .server import watts_of
from .wires import sent_joules

if TYPE_CHECKING:
    from ...backends.pricing.program import PricedEntry, PricingGroup
    from ...backends.pricing.timing import PricedGroup, Timing

Array = NDArray[np.float64]
Index = NDArray[np.intp]
BEYOND = "power limit"
PARTS = ("matrix units", "vector units", "memory", "cache", "network", BEYOND)
# Power that holds nothing.
_FREE_W = 1e300
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
    # Of a table of machines, each is a column of its own in the times.
    held_w = watts_of(system.chip) - idle_w(system, prices)
    return activity_at(levels_of(system, prices.section.energy), held_w, timing, plans, runs)


def activity_at(
    levels: EnergyLevels, held_w: Num, timing: Timing, plans: PlanTable, runs: Mapping[str, float] | None = None
) -> Activity:
    """Add up the same at given energies and at most so many watts a package; at one joule it counts operations."""
    points = Points(plans)
    sizes = timing.sizes(lambda symbols: _mean(points, symbols))
    found = [_joules(p, of, levels, held_w) for p, of in zip(timing.priced, sizes, strict=True)]
    return Activity(dict(zip(PARTS, _added_up(timing, plans, found, runs), strict=True)))


def amounts(
    levels: EnergyLevels, timing: Timing, plans: PlanTable, runs: Mapping[str, float] | None = None
) -> Mapping[tuple[str, str], tuple[Array, Num]]:
    """Return operations or bytes of a step and the joules of one, by part and level; none of which a step has none."""
    nothing = EnergyLevels(
        dict.fromkeys(levels.compute, 0.0),
        0.0,
        0.0,
        0.0,
        0.0,
        levels.wires.only("", 0.0),
    )
    units = {
        **{
            ("matrix units", f"FLOP in {dtype}"): (replace(nothing, compute={**nothing.compute, dtype: 1.0}), each)
            for dtype, each in levels.compute.items()
        },
        ("vector units", "FLOP"): (replace(nothing, vector=1.0), levels.vector),
        ("memory", "B of memory"): (replace(nothing, memory=1.0), levels.memory),
        ("memory", "B of the host"): (replace(nothing, host=1.0), levels.host),
        ("cache", "B of memory"): (replace(nothing, cache=1.0), levels.cache),
        **{
            ("network", f"B over {link.level} ({link.kind})"): (
                replace(nothing, wires=levels.wires.only(link.level, 1.0)),
                link.j_per_byte,
            )
            for link in levels.wires.links
        },
    }
    found = {
        key: (activity_at(unit, _FREE_W, timing, plans, runs).parts_j[key[0]], each)
        for key, (unit, each) in units.items()
    }
    return {key: (amount, each) for key, (amount, each) in found.items() if np.any(amount)}


def _mean(points: Points, symbols: Sequence[str]) -> tuple[Mapping[str, Array], int]:
    """Points of some symbols, and how many: energy is that of all ranks, and the mean of them has an even load."""
    env, point = points.of(symbols)
    num = int(point.max()) + 1
    return {**env, IMBALANCE: np.ones(num)}, num


def idle_w(system: System, prices: Prices) -> Num:
    """Return what a package draws whatever it does: `idle_share` of its design power, at most what it may draw."""
    return plain(np.minimum(prices.section.energy.idle_share.si * system.chip.power_w, watts_of(system.chip)))


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


def _joules(priced: PricedGroup, sizes: Array, levels: EnergyLevels, held_w: Num) -> Array:
    """Joules of each distinct entry at each point, part beside part, and what the package cannot take of them."""
    group = priced.group if priced.merged is None else priced.merged.distinct
    if group.axis:
        sent = sent_joules(group, sizes, levels.wires)
        found: tuple[Array, ...] = (*(np.zeros_like(sent) for _ in PARTS[2:]), sent)
    else:
        found = _computed(group, sizes, levels)
    beyond = np.minimum(held_w * priced.distinct_s - sum(found), 0.0)
    return np.concatenate(np.broadcast_arrays(*found, beyond), axis=1)


def _computed(group: PricingGroup, sizes: Array, levels: EnergyLevels) -> tuple[Array, ...]:
    amounts = group.amounts_in(sizes)
    each = np.stack(np.broadcast_arrays(*(np.atleast_1d(_of_dtype(levels, e)) for e in group.entries)))
    # Copies to and from the host go through its memory and a link as well.
    host = np.array([[levels.host if e.kind is OpClass.HOST else 0.0] for e in group.entries])
    return (
        amounts.tensor_flops * each,
        amounts.vector_flops * levels.vector,
        amounts.num_bytes * (levels.memory + host),
        amounts.num_bytes * levels.cache,
        np.zeros_like(amounts.num_bytes),
    )


def _of_dtype(levels: EnergyLevels, entry: PricedEntry) -> Num:
    name = _element(str(entry.dtype))
    if name in levels.compute:
        return levels.compute[name]
    if entry.kind in (OpClass.MATMUL, OpClass.ATTENTION, OpClass.EXPERTS, OpClass.SCAN):
        raise UnknownNameError.of("dtype of prices.energy.compute", name, levels.compute)
    return levels.compute["fp32"]


def _element(dtype: str) -> str:
    """The type of an element, whatever scales it comes with.

    >>> [_element(name) for name in ("bf16", "fp8_block", "mxfp8", "nvfp4", "int4_group")]
    ['bf16', 'fp8', 'fp8', 'fp4', 'int4']
    """
    return dtype.partition("_")[0].removeprefix("mx").removeprefix("nv")
