"""What a step does, in joules: operations, bytes of memory and bytes of network, node by node of the lowered graph.

    E = FLOPs e_dtype + vector FLOPs e_vector + bytes (e_memory + e_cache) + wire bytes e_network <= (P - P_idle) t

in a node that takes t on a package of P. An all-reduce sends 2 (n-1)/n S in a ring of n, a gather (n-1)/n S.
Source of the form and of most numbers: Chiplet Cloud (github bespoke-silicon-group/reallm) and RAPID-LLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...backends.prices.ownership_schema import EnergySection
from ...backends.prices.section import Prices
from ...backends.program import Entry, Group
from ...backends.system import System
from ...backends.timing import Priced, Timing
from ...ir.errors import UnknownNameError
from ...ir.expr import Num
from ...ir.graph import Phase, Workload
from ...ir.ops import OpClass
from ...ir.plan import IMBALANCE, PlanTable
from ...ir.points import Points
from .server import watts_of

Array = NDArray[np.float64]
# What a chip is taken to have whose package nobody describes.
USUAL_MEMORY = "hbm3"
PARTS = ("matrix units", "vector units", "memory", "cache", "network")
_ONCE = frozenset((Phase.OPTIMIZER, Phase.PREPARE, Phase.REDUCE))
_RING = {"all_reduce": 2.0}
_POINT_TO_POINT = frozenset(("send", "recv"))


@dataclass(frozen=True, slots=True)
class Activity:
    """Joules of a step of all packages together, above what they draw at rest, by what takes them."""

    parts_j: Mapping[str, Array]

    @property
    def total_j(self) -> Array:
        """All of it."""
        return np.asarray(sum(self.parts_j.values()))


def activity(timing: Timing, plans: PlanTable, system: System, prices: Prices) -> Activity:
    """Add up what a step does over all its nodes, micro-batches and packages.

    Raises:
        UnknownNameError: a memory or a dtype of which the price book has no energy.
    """
    energy = prices.section.energy
    memory = memory_kind(system)
    if memory not in energy.memory:
        raise UnknownNameError.of("memory of prices.energy", memory, energy.memory)
    # Of a table of machines, each is a column of its own in the times.
    held_w = watts_of(system.chip) - idle_w(system, prices)
    points = Points(plans)
    found = [_joules(p, points, energy, memory, held_w) for p in timing.priced]
    return Activity({part: _added_up(timing, plans, [f[k] for f in found]) for k, part in enumerate(PARTS)})


def idle_w(system: System, prices: Prices) -> Num:
    """Return what a package draws whatever it does: `idle_share` of its design power."""
    return prices.section.energy.idle_share.si * system.chip.power_w


def memory_kind(system: System) -> str:
    """Return the kind of memory of which a package has most bytes."""
    stacks = [] if system.package is None else list(system.package.counted_stacks())
    if not stacks:
        return USUAL_MEMORY
    return max(stacks, key=lambda s: float(np.max(s[0].num_bytes * s[1])))[0].kind


def _added_up(timing: Timing, plans: PlanTable, joules: list[Array]) -> Array:
    """Put joules in the place of seconds, and add up a step: every rank of every stage, every micro-batch."""
    priced = tuple(replace(p, time_s=j) for p, j in zip(timing.priced, joules, strict=True))
    sums = replace(timing, priced=priced).sums(_how_often)
    train = timing.program.graph.workload is Workload.TRAIN
    batches = plans.num_micro_batches if train else np.ones(len(plans))
    each, once = (sums.get(key, np.zeros(len(plans))) for key in ("each", "once"))
    return np.asarray((each * batches + once) * (plans.num_gpus / plans.stages[0]))


def _how_often(entry: Entry) -> str | None:
    """Once a step, or with each micro-batch; a receive moves nothing that its send does not."""
    if entry.op == "recv":
        return None
    return "once" if entry.phase in _ONCE else "each"


def _joules(priced: Priced, points: Points, energy: EnergySection, memory: str, held_w: Num) -> tuple[Array, ...]:
    """Joules of each entry at each point by part, together at most what the package can take in the time."""
    env, point = points.of(priced.group.symbols)
    mean = {name: np.ones_like(v) if name == IMBALANCE else v for name, v in env.items()}
    num = int(point.max()) + 1
    group = priced.group
    found = _sent(group, mean, num, energy) if group.axis else _computed(group, mean, num, energy, memory)
    total = sum(found)
    # What takes no energy is held by nothing.
    capped = np.minimum(held_w * priced.time_s / np.where(total > 0, total, np.inf), 1.0)
    return tuple(part * capped for part in found)


def _computed(
    group: Group, env: Mapping[str, Array], num: int, energy: EnergySection, memory: str
) -> tuple[Array, ...]:
    amounts = group.amounts(env, num)
    each = np.array([[_of_dtype(energy, e)] for e in group.entries])
    host = np.array([[_host_j_per_byte(energy, e)] for e in group.entries])
    moved = amounts.num_bytes * energy.memory[memory].si
    return (
        amounts.tensor_flops * each, amounts.vector_flops * energy.vector.si, moved + amounts.num_bytes * host,
        amounts.num_bytes * energy.cache.si, np.zeros_like(moved),
    )  # fmt: skip


def _of_dtype(energy: EnergySection, entry: Entry) -> float:
    name = str(entry.dtype)
    if name in energy.compute:
        return energy.compute[name].si
    if entry.kind in (OpClass.MATMUL, OpClass.ATTENTION, OpClass.EXPERTS):
        raise UnknownNameError.of("dtype of prices.energy.compute", name, energy.compute)
    return energy.compute["fp32"].si


def _host_j_per_byte(energy: EnergySection, entry: Entry) -> float:
    """Copies to and from the host go through its memory and a link as well."""
    return energy.memory["ddr5"].si + energy.network.si if entry.kind is OpClass.HOST else 0.0


def _sent(group: Group, env: Mapping[str, Array], num: int, energy: EnergySection) -> tuple[Array, ...]:
    values = group.table.evaluate(env, num)
    count = len(group.entries)
    messages, sizes = values[:count], values[count::2]
    ranks = np.maximum(np.prod(sizes, axis=0) / float(group.axis.partition("/")[2] or 1), 1.0)
    kind = group.collective
    share = np.ones_like(ranks) if kind in _POINT_TO_POINT else _RING.get(kind, 1.0) * (ranks - 1.0) / ranks
    none = np.zeros_like(messages)
    return none, none, none, none, messages * share * energy.network.si
