"""A group of ranks into the number of its members at each level of the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import PlanError
from .system import NetworkLevel

if TYPE_CHECKING:
    from ..ir.expr import Num

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LevelShare:
    """What one network level sees of a group; arrays run over plans.

    Attributes:
        level: the network level.
        fanout: members that this level joins, each standing for one group of the level below.
        inside: members of the group below one of those, 1 at the innermost level.
        outside: how many times this level's own share occurs in the whole group.
        spanned: members of the whole group inside one group of this level, never more than the group has.
    """

    level: NetworkLevel
    fanout: Array
    inside: Array
    outside: Array
    spanned: Array

    @property
    def is_top(self) -> NDArray[np.bool_]:
        """Whether this is the outermost level that the group spans."""
        return (self.outside <= 1) & (self.fanout > 1)

    @property
    def bytes_per_s(self) -> float:
        """Bandwidth of one rank that large messages reach."""
        return self.level.bytes_per_s * self.level.efficiency


def lay_out(
    group_size: Num, stride: Num, levels: Sequence[NetworkLevel], more: Sequence[tuple[Num, Num]] = ()
) -> tuple[LevelShare, ...]:
    """Lay a group of ranks `0, stride, 2 stride, ...` on the levels, innermost first.

    A level of `size` ranks holds `size // stride` members, at least one. Where the members do not fill the
    last group of a level, that group counts as full: the fan-outs then multiply to more than the group has.
    `more` are further (size, stride) factors of a group over several mesh axes that do not lie side by side.

    Raises:
        PlanError: a group below one rank, or one that reaches past the outermost level.

    >>> from slipstick.backends.system import load_system
    >>> [int(share.fanout) for share in lay_out(16, 2, load_system("dgx-h100").levels)]
    [4, 4]
    """
    given = ((group_size, stride), *more)
    factors = [np.broadcast_arrays(np.asarray(n, float), np.asarray(s, float)) for n, s in given]
    for part, step in factors:
        _check(part, step, levels)
    size = _product([part for part, _ in factors])
    spanned = [*(_product([_spanned(part, step, level) for part, step in factors]) for level in levels[:-1]), size]
    inside = [np.ones_like(size), *spanned[:-1]]
    fanouts = [np.ceil(outer / inner) for outer, inner in zip(spanned, inside, strict=True)]
    shares = []
    outside = np.ones_like(size)
    for level, fanout, inner, reach in reversed(list(zip(levels, fanouts, inside, spanned, strict=True))):
        shares.append(LevelShare(level, fanout, inner, outside, reach))
        outside = outside * fanout
    return tuple(reversed(shares))


def _product(parts: Sequence[Array]) -> Array:
    total = parts[0]
    for part in parts[1:]:
        total = total * part
    return total


def _spanned(size: Array, step: Array, level: NetworkLevel) -> Array:
    if level.size is None:
        return size
    return np.clip(np.floor(level.size / step), 1.0, size)


def _check(size: Array, step: Array, levels: Sequence[NetworkLevel]) -> None:
    if np.any(size < 1) or np.any(step < 1):
        raise PlanError("a group needs at least one rank and a stride of at least one")
    outermost = levels[-1]
    ranks = np.max((size - 1) * step + 1, initial=1.0)
    if outermost.size is not None and ranks > outermost.size:
        raise PlanError(
            f"a group spans {ranks:.0f} ranks; the outermost level '{outermost.name}' holds {outermost.size}"
        )
