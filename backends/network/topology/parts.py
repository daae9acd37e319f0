"""A level into parts of one shape each.

A torus is rings inside of rings, a mesh lines, a HyperX full meshes (Ahn et al. 2009), a dragonfly groups and what
joins them; any other level is one part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log2, prod
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from ....ir.records import dataclass
from .level import SWITCHED, NetworkLevel

if TYPE_CHECKING:
    from ....ir.sizes.expr import Num

Shape: TypeAlias = Literal[
    "switch", "rails", "separate_rails", "full", "ring", "one_way_ring", "line", "global", "graph"
]


@dataclass(frozen=True, slots=True)
class RankStretch:
    """Ranks along one dimension: `radix` places that lie `step` members apart, filled every `first` ranks."""

    first: int
    radix: int
    step: int


@dataclass(frozen=True, slots=True)
class NetworkPart:
    """One dimension of a level, or the whole of it.

    Attributes:
        level: the level it is a part of.
        shape: how its members are joined.
        size: ranks in a group of this part, inner ones included; None for no limit.
        members: groups of the part below that it joins; None for no limit.
        bytes_per_s: bandwidth of one rank into this part, one direction, before any efficiency.
        stretches: how ranks lie along a dimension that they fill block by block, innermost first; else none.
    """

    level: NetworkLevel
    shape: Shape
    size: int | None
    members: int | None
    bytes_per_s: Num
    stretches: tuple[RankStretch, ...] = ()


def parts_of(levels: Sequence[NetworkLevel]) -> tuple[NetworkPart, ...]:
    """Return the parts of all levels, innermost first.

    >>> torus = NetworkLevel("ici", 64, 600e9, 1e-6, "torus", dims=(4, 4, 4))
    >>> [(p.shape, p.size, p.bytes_per_s / 1e9) for p in parts_of([torus])]
    [('ring', 4, 200.0), ('ring', 16, 200.0), ('ring', 64, 200.0)]
    """
    found: list[NetworkPart] = []
    inner = 1
    for level in levels:
        found += _parts(level, inner)
        inner = level.size or inner
    return tuple(found)


def link_rates(levels: Sequence[NetworkLevel]) -> dict[str, Num]:
    """Return the bandwidth of one link of a member of each level, by name, one direction.

    A member has a link to each other one, a link either way in each dimension, or all of its bandwidth to a switch.

    >>> link_rates([NetworkLevel("d2d", 4, 4e12, 1e-9, "ring"), NetworkLevel("nvlink", 32, 9e11, 1e-6)])
    {'d2d': 2000000000000.0, 'nvlink': 900000000000.0}
    """
    found: dict[str, Num] = {}
    for part in parts_of(levels):
        wires = {"ring": 2, "line": 2, "full": max((part.members or 1) - 1, 1)}.get(part.shape, 1)
        found.setdefault(part.level.name, part.bytes_per_s / wires)
    return found


def _parts(level: NetworkLevel, inner: int) -> Iterator[NetworkPart]:
    members = None if level.size is None else level.size // inner
    if level.dragonfly is not None:
        # Inside a group all is as behind one switch; each host has its share of the global links of its router.
        d = level.dragonfly
        assert d is not None
        group = d.hosts * d.routers
        yield NetworkPart(level, "switch", inner * group, group, level.bytes_per_s)
        shared = d.global_links * d.global_bytes_per_s / d.hosts / inner
        yield NetworkPart(level, "global", level.size, d.groups, np.minimum(level.bytes_per_s, shared))
        return
    dims = dims_of(level, members)
    shape = _shape(level)
    rate = level.bytes_per_s / (len(dims) or 1)
    if level.topology in SWITCHED and shape == "switch":
        rate = level.bytes_per_s / level.oversubscription
    if not dims:
        yield NetworkPart(level, shape, level.size, members, rate)
    stretches = _stretches(level.blocks, dims, inner) if level.blocks else ((),) * len(dims)
    for index, dim in enumerate(dims):
        yield NetworkPart(level, shape, inner * prod(dims[: index + 1]), dim, rate, stretches[index])


def _stretches(
    blocks: Sequence[tuple[int, ...]], dims: tuple[int, ...], inner: int
) -> tuple[tuple[RankStretch, ...], ...]:
    """Deal ranks to dimensions: they fill a block along each of its dimensions, then blocks fill the next larger one.

    >>> [[(s.first, s.radix, s.step) for s in along] for along in _stretches([(2, 2)], (4, 4), 1)]
    [[(1, 2, 1), (4, 2, 2)], [(2, 2, 1), (8, 2, 2)]]
    """
    lying: list[list[RankStretch]] = [[] for _ in dims]
    below, first = (1,) * len(dims), inner
    for block in (*blocks, dims):
        for index, (length, before) in enumerate(zip(block, below, strict=True)):
            lying[index].append(RankStretch(first, length // before, before))
            first *= length // before
        below = block
    return tuple(map(tuple, lying))


def dims_of(level: NetworkLevel, members: int | None) -> tuple[int, ...]:
    """Return the lengths of the dimensions of a level, none where it has but one."""
    if level.topology == "hypercube" and members is not None:
        return (2,) * int(log2(members))
    return level.dims


def _shape(level: NetworkLevel) -> Shape:
    if level.topology in ("torus", "hypercube"):
        return "ring"
    if level.topology == "ring":
        return "ring" if level.bidirectional else "one_way_ring"
    shapes: dict[str, Shape] = {
        "fully_connected": "full",
        "hyperx": "full",
        "line": "line",
        "mesh": "line",
        "rail_optimised": "rails",
        "rail_only": "separate_rails",
        "graph": "graph",
    }
    return shapes.get(level.topology, "switch")
