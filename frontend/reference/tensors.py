"""Tensors of simulated ranks: what a rank holds, and which entries of the whole tensor these are.

Placements say that a dim is cut; they do not say which entries a rank has where tensors stand side by side in a dim,
where dims were flattened, or where heads are copied. So each local tensor keeps, dim by dim, the places of its entries
in the whole tensor. A product that pairs different entries is found by that, and a gather puts them in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import torch
from torch import Tensor

from ...ir.errors import SlipstickError


class LayoutMismatchError(SlipstickError):
    """Operands of one node that lie differently, or a value that differs between ranks that should hold the same."""


@dataclass(frozen=True)
class Axis:
    """One dim of a local tensor: the size of the whole, and the places in it that are held; None for all, in order."""

    size: int
    index: Tensor | None = None

    @property
    def held(self) -> Tensor:
        """Places of the entries, in the order in which they lie."""
        return torch.arange(self.size) if self.index is None else self.index

    @property
    def length(self) -> int:
        """Entries held."""
        return self.size if self.index is None else int(self.index.numel())

    def taken(self, places: Tensor) -> Axis:
        """Return the axis of some of the entries, by their place in the local tensor."""
        return Axis(self.size, self.held[places])

    def same(self, other: Axis) -> bool:
        """Whether two axes hold the same entries in the same order."""
        if self.index is None and other.index is None:
            return self.size == other.size
        return self.length == other.length and self.size == other.size and torch.equal(self.held, other.held)


def axis_of(size: int, held: Tensor) -> Axis:
    """Return an axis that holds these places; all of them in order are no list."""
    whole = held.numel() == size and torch.equal(held, torch.arange(size))
    return Axis(size, None if whole else held)


@dataclass(frozen=True)
class Rows:
    """Rows of tokens on their way to experts: the expert of each, which copy of which token it is, and its rank.

    `origin` is token * top_k + slot, with the place of the token in the whole batch; `home` is the rank that sent it.
    """

    expert: Tensor
    origin: Tensor
    home: Tensor

    def taken(self, places: Tensor) -> Rows:
        """Return some of the rows."""
        return Rows(self.expert[places], self.origin[places], self.home[places])

    @property
    def order(self) -> Tensor:
        """The order in which banks take them: by expert, then as tokens come."""
        by_origin = torch.argsort(self.origin, stable=True)
        return by_origin[torch.argsort(self.expert[by_origin], stable=True)]


@dataclass(frozen=True)
class Local:
    """What one rank holds of a tensor."""

    tensor: Tensor
    axes: tuple[Axis, ...]
    rows: Rows | None = None


@dataclass(frozen=True)
class Mesh:
    """Ranks as places on mesh axes, each with a degree; the first axis changes fastest."""

    degrees: Mapping[str, int]

    @cached_property
    def ranks(self) -> tuple[Mapping[str, int], ...]:
        """The place of each rank on every axis."""
        names = tuple(self.degrees)
        places = product(*(range(self.degrees[a]) for a in reversed(names)))
        return tuple(dict(zip(names, reversed(p), strict=True)) for p in places)

    def groups(self, axis: str) -> Iterator[list[int]]:
        """Yield the ranks that talk to one another over an axis, several joined by `+`, or a part of one (`tp/8`).

        `tp/8` are the neighbours that hold a copy of the same one of 8 things.
        """
        name, _, count = axis.partition("/")
        axes = [a for a in name.split("+") if a in self.degrees]
        found: dict[tuple[int, ...], list[int]] = {}
        for number, place in enumerate(self.ranks):
            rest = tuple(p for a, p in place.items() if a not in axes)
            part = (place[axes[0]] // max(1, self.degrees[axes[0]] // int(count)),) if count else ()
            found.setdefault((*rest, *part), []).append(number)
        for group in found.values():
            yield sorted(group, key=lambda r: tuple(self.ranks[r][a] for a in axes))


def block(length: int, share: int, degree: int, position: int, copied: bool = False) -> Tensor:
    """Return which of `length` entries one of `degree` ranks holds, each `share` of them at most.

    Equal parts in order; where the parts do not come out even the last ranks hold fewer, or nothing. Where there are
    more ranks than parts and heads are `copied`, neighbours hold copies.

    >>> block(8, 4, 2, 1).tolist(), block(8, 4, 4, 1, copied=True).tolist(), block(5, 3, 2, 1).tolist()
    ([4, 5, 6, 7], [0, 1, 2, 3], [3, 4])
    """
    parts = length // share if share else 0
    copies = degree // parts if copied and parts and share * parts == length and degree % parts == 0 else 1
    start = min(length, (position // copies) * share)
    return torch.arange(start, min(length, start + share))


__all__ = [
    "Axis", "LayoutMismatchError", "Local", "Mesh", "Rows", "axis_of", "block",
]  # fmt: skip
