"""A group of ranks into the number of its members in each part of the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ....ir.errors import PlanError
from ....ir.records import dataclass
from .level import NetworkLevel
from .parts import NetworkPart, RankStretch, parts_of

if TYPE_CHECKING:
    from ....ir.sizes.expr import Num

Array: TypeAlias = NDArray[np.float64]
# Shapes whose members talk over wires that they have, or pass on, for themselves.
_OWN_WIRES = frozenset(("ring", "one_way_ring", "line", "graph"))


@dataclass(frozen=True, slots=True)
class LevelShare:
    """What one part of a network level sees of a group; arrays run over plans.

    Attributes:
        part: the level, or one dimension of it.
        fanout: members that this part joins, each standing for one group of the part below.
        inside: members of the group below one of those, 1 at the innermost part.
        outside: how many times this part's own share occurs in the whole group.
        spanned: members of the whole group inside one group of this part, never more than the group has.
        step: how far neighbours lie apart in this part, 1 where that changes nothing. As many groups lie between one
            another, and where members have wires of their own they share these.
        members: members that the part joins whether they are of the group or not, without end where it has no limit.
    """

    part: NetworkPart
    fanout: Array
    inside: Array
    outside: Array
    spanned: Array
    step: Array
    members: Array

    @property
    def columns(self) -> tuple[Array, ...]:
        """What differs from group to group."""
        return self.fanout, self.inside, self.outside, self.spanned, self.step, self.members

    def part_of(self, groups: slice) -> LevelShare:
        """Return what the part sees of some of the groups."""
        return LevelShare(self.part, *(column[groups] for column in self.columns))

    @property
    def level(self) -> NetworkLevel:
        """The network level."""
        return self.part.level


def lay_out(
    group_size: Num, stride: Num, levels: Sequence[NetworkLevel], more: Sequence[tuple[Num, Num]] = ()
) -> tuple[LevelShare, ...]:
    """Lay a group of ranks `0, stride, 2 stride, ...` on the levels, innermost first.

    A part of `size` ranks holds `size // stride` members, at least one. Where the members do not fill the
    last group of a part, that group counts as full: the fan-outs then multiply to more than the group has.
    `more` are further (size, stride) factors of a group over several mesh axes that do not lie side by side.

    Raises:
        PlanError: a group below one rank, or one that reaches past the outermost level.

    >>> from slipstick.backends.machine.load import load_system
    >>> [int(share.fanout) for share in lay_out(16, 2, load_system("dgx-h100").levels)]
    [4, 4]
    """
    factors = [_alike(np.asarray(n, float), np.asarray(s, float)) for n, s in ((group_size, stride), *more)]
    for size, step in factors:
        _check(size, step, levels)
    parts = parts_of(levels)
    reaches = _reaches(factors, parts)
    near = np.ones_like(reaches[0][0])
    # Ranks of one member of each part, and how far the factors of the group reach inside of it.
    sizes = [1, *(part.size or 1 for part in parts[:-1])]
    first = [np.ones_like(reach) for reach in reaches[0]]
    apart = zip(parts, reaches, list(zip(sizes, [first, *reaches[:-1]], strict=True)), strict=True)
    steps = [
        near
        if part.shape not in _OWN_WIRES
        else _block_step(factors, part)
        if part.stretches
        else _step(factors, reach, below)
        for part, reach, below in apart
    ]
    return _shares(parts, [_product(reach) for reach in reaches], steps)


def lay_out_placed(
    factors: Sequence[tuple[Array, Array]], placed: Sequence[Sequence[NetworkLevel]], which: Array | None
) -> tuple[LevelShare, ...]:
    """Lay out groups of (size, stride) factors, each on the levels of its own placement.

    `placed` are the same levels, placed in several ways; `which` is the place of those of each group among them, None
    where all have the first.
    """
    if which is None:
        (size, stride), *more = factors
        return lay_out(size, stride, placed[0], more)
    columns: list[list[Array]] = []
    for k, levels in enumerate(placed):
        rows = which == k
        (size, stride), *more = ((n[rows], s[rows]) for n, s in factors)
        shares = lay_out(size, stride, levels, more)
        columns = columns or [[np.empty(which.shape) for _ in share.columns] for share in shares]
        for share, own in zip(shares, columns, strict=True):
            for column, values in zip(own, share.columns, strict=True):
                column[rows] = values
    return tuple(LevelShare(part, *own) for part, own in zip(parts_of(placed[0]), columns, strict=True))


def _reaches(factors: Sequence[tuple[Array, Array]], parts: Sequence[NetworkPart]) -> list[list[Array]]:
    """Members of each factor inside one group of each part; ranks in blocks spread over all dimensions of a level."""
    reaches: list[list[Array]] = []
    for part in parts[:-1]:
        if part.stretches:
            inner = reaches[-1] if reaches else [np.ones_like(size) for size, _ in factors]
            along = [_product([_members_on(size, step, s) for s in part.stretches]) for size, step in factors]
            reaches.append([np.minimum(i * a, s) for i, a, (s, _) in zip(inner, along, factors, strict=True)])
        else:
            reaches.append([_spanned(size, step, part.size) for size, step in factors])
    reaches.append([size for size, _ in factors])
    return reaches


def _members_on(size: Array, step: Array, stretch: RankStretch) -> Array:
    outer = _spanned(size, step, stretch.first * stretch.radix)
    return np.asarray(np.ceil(outer / _spanned(size, step, stretch.first)))


def _block_step(factors: Sequence[tuple[Array, Array]], part: NetworkPart) -> Array:
    """The least distance between neighbours along a dimension that is filled block by block."""
    apart = [
        np.where(_members_on(size, step, s) > 1, s.step * np.maximum(step / s.first, 1.0), np.inf)
        for size, step in factors
        for s in part.stretches
    ]
    least: Array = np.minimum.reduce(apart)
    return np.where(np.isfinite(least), least, 1.0)


def _alike(size: Array, step: Array) -> tuple[Array, Array]:
    if size.shape == step.shape:
        return size, step
    sizes, steps = np.broadcast_arrays(size, step)
    return sizes, steps


def _shares(parts: Sequence[NetworkPart], spanned: Sequence[Array], steps: Sequence[Array]) -> tuple[LevelShare, ...]:
    inside = [np.ones_like(spanned[-1]), *spanned[:-1]]
    fanouts = [np.ceil(outer / inner) for outer, inner in zip(spanned, inside, strict=True)]
    shares = []
    outside = np.ones_like(spanned[-1])
    for rows in reversed(list(zip(parts, fanouts, inside, spanned, steps, strict=True))):
        part, fanout, inner, reach, step = rows
        members = np.full_like(fanout, part.members or np.inf)
        shares.append(LevelShare(part, fanout, inner, outside, reach, step, members))
        outside = outside * fanout
    return tuple(reversed(shares))


def _step(factors: Sequence[Sequence[Array]], reach: Sequence[Array], below: tuple[int, Sequence[Array]]) -> Array:
    """The least distance, in members of a part, between neighbours along the factors that spread over it."""
    member, inner = below
    apart = [
        np.where(outer > here, np.maximum(step / member, 1.0), np.inf)
        for (_, step), outer, here in zip(factors, reach, inner, strict=True)
    ]
    least: Array = np.minimum.reduce(apart)
    return np.where(np.isfinite(least), least, 1.0)


def _product(sizes: Sequence[Array]) -> Array:
    total = sizes[0]
    for size in sizes[1:]:
        total = total * size
    return total


def _spanned(size: Array, step: Array, ranks: int | None) -> Array:
    if ranks is None:
        return size
    return np.minimum(np.maximum(np.floor(ranks / step), 1.0), size)


def _check(size: Array, step: Array, levels: Sequence[NetworkLevel]) -> None:
    if size.min(initial=1.0) < 1 or step.min(initial=1.0) < 1:
        raise PlanError("a group needs at least one rank and a stride of at least one")
    outermost = levels[-1]
    if outermost.size is None:
        return
    ranks = np.max((size - 1) * step + 1, initial=1.0)
    if ranks > outermost.size:
        raise PlanError(
            f"a group spans {ranks:.0f} ranks; the outermost level '{outermost.name}' holds {outermost.size}"
        )
