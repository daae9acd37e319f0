"""Where the groups of each plan lie: the levels of a system, once for each distinct mesh of a table of plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...ir.plan import Plan
from ...ir.plan.layout.ranks import BLOCKS, CLOSED, INSIDE, RANKS
from ...ir.records import dataclass
from ...ir.sizes.points import GPUS, Points
from ..machine.system import System
from ..network.topology.layout import LevelShare, lay_out
from ..network.topology.level import NetworkLevel
from ..network.topology.placement import place, placements_of, shape_text, usual_placement
from .amounts import Array, Index
from .program import PricingTable

Env = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class PlacedLevels:
    """Levels as plans fill them, and which of these each point of each table has."""

    levels: Sequence[Sequence[NetworkLevel]]
    which: Sequence[Array]


def points_of(table: PricingTable, points: Points, levels: Sequence[NetworkLevel]) -> tuple[Env, Index]:
    """Return the distinct points of a table; those of messages on slices differ in the devices of the plan too."""
    closed = usual_placement(points.placement, levels) == CLOSED and any(m.group.axis for m in table.merged)
    return points.of((*table.symbols, GPUS) if closed else table.symbols)


def places_of(
    levels: Sequence[NetworkLevel], points: Points, order: str, envs: Sequence[tuple[Env, Index]]
) -> PlacedLevels:
    """Place the groups of all points; one placement for all where groups lie as their ranks do."""
    word = usual_placement(points.placement, levels)
    one = np.ones(1)
    if word == RANKS or (word == BLOCKS and BLOCKS not in placements_of(levels)):
        return PlacedLevels([levels], [np.zeros((1, 1))] * len(envs))
    names, found, which = order.split("-"), dict[tuple[int, ...], int](), list[Array]()
    for env, point in envs:
        num = int(point.max()) + 1
        degrees = ((env.get(INSIDE.get(name, ""), one), env.get(name, one)) for name in names)
        columns = [np.broadcast_to(inner * outer, num) for inner, outer in degrees]
        meshes = np.stack([*columns, np.broadcast_to(env.get(GPUS, one), num)], axis=1).astype(np.int64)
        which.append(np.array([[found.setdefault(tuple(mesh), len(found)) for mesh in meshes.tolist()]], dtype=float))
    placed = [place(levels, points.placement, dict(zip(names, mesh, strict=False)), mesh[-1]) for mesh in found]
    return PlacedLevels(placed, which)


def placed_system(system: System, plan: Plan) -> System:
    """Return a system whose levels are as one plan fills them."""
    if usual_placement(plan.placement, system.levels) == RANKS:
        return system
    return replace(system, levels=place(system.levels, plan.placement, _groups(plan), plan.num_gpus))


def placement_line(system: System, plan: Plan) -> str:
    """Return how the groups of a plan lie on levels that have dimensions; nothing where no level has any.

    >>> from slipstick.backends.machine.load import load_system
    >>> from slipstick.ir.plan import PlanWords, plan_of
    >>> plan = plan_of(PlanWords(num_gpus=64, tp=4, seq_len=8192))
    >>> placement_line(load_system("tpu-v4-pod"), plan)
    'closed, ici 4x4x4: tp 4x1x1, dp 1x4x4'
    """
    if BLOCKS not in placements_of(system.levels):
        return ""
    levels, laid, stride = placed_system(system, plan).levels, dict[str, Sequence[LevelShare]](), 1
    for axis, degree in _groups(plan).items():
        if degree > 1:
            laid[axis] = lay_out(float(degree), float(stride), levels)
        stride *= degree
    parts = []
    for level in (one for one in levels if one.dims):
        sides = {axis: [int(share.fanout) for share in shares if share.level is level] for axis, shares in laid.items()}
        groups = ", ".join(f"{axis} {shape_text(shape)}" for axis, shape in sides.items())
        parts.append(f"{level.name} {shape_text(level.dims)}{groups and f': {groups}'}")
    return f"{usual_placement(plan.placement, levels)}, {'; '.join(parts)}"


def _groups(plan: Plan) -> Mapping[str, int]:
    """Return the ranks of the group of each axis of the order, innermost first."""
    return {name: plan.mesh.get(INSIDE.get(name, ""), 1) * plan.mesh[name] for name in plan.order.split("-")}
