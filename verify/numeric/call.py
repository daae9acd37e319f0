"""What a reference is given: one node on one rank, real tensors and which entries of the whole these are.

References compute in float64 whatever the element types of the graph, so that two ways of adding differ by rounding
alone. They read shapes off the local tensors and constants off the attributes and the recorded call.

Placements say that a dim is cut; they do not say which entries a rank has where tensors stand side by side in a dim,
where dims were flattened, or where heads are copied. So each local tensor keeps, dim by dim, the places of its entries
in the whole tensor. A product that pairs different entries is found by that, and a gather puts them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import product
from typing import TypeAlias

import torch
from torch import Tensor

from ...ir.errors import SlipstickError
from ...ir.graph import Node, Value
from ...ir.meaning import Argument, In
from ...ir.ops.base import A
from ...ir.placement import AxisGroup, Shard
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim


class LayoutMismatchError(SlipstickError):
    """Operands of one node that lie differently, or a value that differs between ranks that should hold the same."""


@dataclass(frozen=True)
class LocalDim:
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

    def taken(self, places: Tensor) -> LocalDim:
        """Return the axis of some of the entries, by their place in the local tensor."""
        return LocalDim(self.size, self.held[places])

    def same(self, other: LocalDim) -> bool:
        """Whether two axes hold the same entries in the same order."""
        if self.index is None and other.index is None:
            return self.size == other.size
        return self.length == other.length and self.size == other.size and torch.equal(self.held, other.held)


def axis_of(size: int, held: Tensor) -> LocalDim:
    """Return an axis that holds these places; all of them in order are no list."""
    whole = held.numel() == size and torch.equal(held, torch.arange(size))
    return LocalDim(size, None if whole else held)


@dataclass(frozen=True)
class TokenRows:
    """Rows of tokens on their way to experts: the expert of each, which copy of which token it is, and its rank.

    `origin` is token * top_k + slot, with the place of the token in the whole batch; `home` is the rank that sent it.
    """

    expert: Tensor
    origin: Tensor
    home: Tensor

    def taken(self, places: Tensor) -> TokenRows:
        """Return some of the rows."""
        return TokenRows(self.expert[places], self.origin[places], self.home[places])

    @property
    def order(self) -> Tensor:
        """The order in which banks take them: by expert, then as tokens come."""
        by_origin = torch.argsort(self.origin, stable=True)
        return by_origin[torch.argsort(self.expert[by_origin], stable=True)]


@dataclass(frozen=True)
class Local:
    """What one rank holds of a tensor."""

    tensor: Tensor
    axes: tuple[LocalDim, ...]
    rows: TokenRows | None = None


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

    def groups(self, group: AxisGroup) -> Iterator[list[int]]:
        """Yield the ranks that talk to one another over some axes, or over a part of one (`tp/8`).

        `tp/8` are the neighbours that hold a copy of the same one of 8 things.
        """
        axes, count = [a for a in group.axes if a in self.degrees], group.pieces
        found: dict[tuple[int, ...], list[int]] = {}
        for number, place in enumerate(self.ranks):
            rest = tuple(p for a, p in place.items() if a not in axes)
            part = (place[axes[0]] // max(1, self.degrees[axes[0]] // count),) if count else ()
            found.setdefault((*rest, *part), []).append(number)
        for ranks in found.values():
            yield sorted(ranks, key=lambda r: tuple(self.ranks[r][a] for a in axes))


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


class NotComputedError(SlipstickError):
    """A node that has no reference, or of which a constant was not recorded: it is listed with this reason."""


@dataclass(frozen=True)
class RankCall:
    """One node on one rank: local inputs (float64, int64 or bool), and the local dims of what it makes.

    `rank` and `degrees` are by mesh axis. `sources` and `results` are the values of the graph that inputs and outputs
    stand for, with their placements; `held` are the positions of this rank where its queries are not all there are;
    `sizes` are the numbers of the graph's symbols.
    """

    node: Node
    inputs: tuple[Tensor, ...]
    dims: tuple[tuple[int, ...], ...]
    rank: Mapping[str, int]
    degrees: Mapping[str, int]
    sources: tuple[Value, ...] = ()
    results: tuple[Value, ...] = ()
    held: Tensor | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    def local(self, dim: Dim) -> int:
        """Return a size as a number."""
        return dim if isinstance(dim, int) else round(float(dim.evaluate({k: float(v) for k, v in self.sizes.items()})))

    def constant(self, name: str, default: Argument = None) -> Argument:
        """Return an argument of the recorded call by its name in the operator's schema; the default where it was left.

        NotComputedError for a node that has no recorded call at all.
        """
        if self.node.meaning is None or not self.node.meaning.steps:
            raise NotComputedError(f"'{self.node.op}' of {self.node.scope or 'the top'} has no recorded call")
        return self.node.meaning.steps[0].argument(name, default)

    def number(self, name: str, default: float) -> float:
        """Return a constant that is a number."""
        found = self.constant(name, default)
        if not isinstance(found, int | float):
            raise NotComputedError(f"'{name}' of '{self.node.op}' is {found}, not a number")
        return found

    def word(self, name: str, default: str) -> str:
        """Return a constant that is a word."""
        found = self.constant(name, default)
        return found if isinstance(found, str) else default

    def shares(self, value: int, dim: int) -> int:
        """Return among how many ranks a dim of an input is cut: 1 where it is whole.

        A mean over rows, of which each rank holds some, divides by its own rows times this.
        """
        degree = 1
        for axis, placement in self.sources[value].placements:
            if isinstance(placement, Shard) and placement.dim == dim:
                degree *= self.degrees.get(axis, 1)
        return degree

    def positions(self, length: int, axis: str = "cp") -> tuple[Tensor, Tensor]:
        """Return the positions of this rank and of all ranks of an axis, in the order in which they are held.

        `length` is that of all ranks together. With balanced context parallelism rank r of c holds pieces r and
        2c - 1 - r of 2c, so that all ranks see equally many pairs under a causal mask (arXiv 2407.21783, 3.3.2).
        """
        if self.held is not None:
            return self.held, torch.arange(length)
        degree = self.degrees.get(axis, 1)
        every = zigzag(length, degree)
        own = length // degree
        start = self.rank.get(axis, 0) * own
        return every[start : start + own], every


def zigzag(length: int, degree: int) -> Tensor:
    """Return positions in the order in which ranks hold them, rank by rank.

    >>> zigzag(8, 2).tolist()
    [0, 1, 6, 7, 2, 3, 4, 5]
    """
    if degree == 1:
        return torch.arange(length)
    pieces = torch.arange(length).chunk(2 * degree)
    return torch.cat([torch.cat((pieces[r], pieces[2 * degree - 1 - r])) for r in range(degree)])


Reference: TypeAlias = Callable[[RankCall], tuple[Tensor, ...]]


def attrs_of(call: RankCall, kind: type[A]) -> A:
    """Return the attributes of a call as the op's own type."""
    if not isinstance(call.node.attrs, kind):
        raise TypeError(f"{call.node.op} needs {kind.__name__}, has {type(call.node.attrs).__name__}")
    return call.node.attrs


def number(call: RankCall, name: str, default: float) -> float:
    """Return a recorded number (`scale`, `eps`, ..); the default where it was left out, or nothing was recorded."""
    return default if _is_unrecorded(call) else call.number(name, default)


def word(call: RankCall, name: str, default: str) -> str:
    """Return a recorded word (`style`, `act`, ..); the default where it was left out, or nothing was recorded."""
    return default if _is_unrecorded(call) else call.word(name, default)


def given(call: RankCall, name: str, default: int | None) -> int | None:
    """Return which input an optional tensor of the recorded call is, None where it was absent."""
    found = None if _is_unrecorded(call) else call.constant(name)
    if _is_unrecorded(call):
        return default
    return found.index if isinstance(found, In) else None


def operator(call: RankCall) -> str:
    """Return the recorded operator, such as `aten._log_softmax.default`; empty where nothing was recorded."""
    return "" if _is_unrecorded(call) or call.node.meaning is None else call.node.meaning.steps[0].operator


def share(call: RankCall, value: int, dim: int) -> tuple[int, int]:
    """Return which part of a dim of an input this rank has, and of how many."""
    index, count = 0, 1
    for axis, placement in call.sources[value].placements if call.sources else ():
        if isinstance(placement, Shard) and placement.dim == dim:
            index, count = index * call.degrees.get(axis, 1) + call.rank.get(axis, 0), count * call.degrees.get(axis, 1)
    return index, count


def _is_unrecorded(call: RankCall) -> bool:
    return call.node.meaning is None or not call.node.meaning.steps


Forward = Callable[[Sequence[Tensor]], Tensor]


def gradients(forward: Forward, inputs: Sequence[Tensor], grad: Tensor) -> tuple[Tensor, ...]:
    """Return the gradient of each floating input of a function with one result; zeros where nothing flows."""
    with torch.enable_grad():
        leaves = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in inputs]
        wanted = [t for t in leaves if t.requires_grad]
        found = torch.autograd.grad(forward(leaves), wanted, grad, allow_unused=True)
    given = iter(found)
    made = [next(given) if t.requires_grad else None for t in leaves]
    return tuple(torch.zeros_like(t) if g is None else g for t, g in zip(leaves, made, strict=True))
