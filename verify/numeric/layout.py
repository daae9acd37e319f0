"""What each rank holds of a value by its placements: sizes as numbers, blocks of dims, tensors side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from functools import cached_property

import torch
from torch import Tensor

from ...ir.graph import Graph, Node, Region, Role, Value
from ...ir.ops import OpClass, Trait, has
from ...ir.ops.fused.attention import AttentionAttrs
from ...ir.ops.fused.experts import ExpertsAttrs
from ...ir.ops.tensors.layout import ConcatAttrs, PermuteAttrs, SliceAttrs
from ...ir.ops.tensors.matmul import MatmulAttrs
from ...ir.ops.tensors.normalize import ALONG_DIM
from ...ir.placement import REPLICATE, Shard
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, Expr, as_expr
from ...ir.sizes.shares import evened
from .call import LocalDim, Mesh, axis_of, block, zigzag

# In which order several axes cut one dim: heads are whole on a tensor-parallel rank whatever else cuts its part.
_CUTS = ("tp", "ep", "up", "cp", "fsdp", "dp")
_SEQUENCE_CUTS = ("cp", "up", "tp", "ep", "fsdp", "dp")
# Ops whose tensors have dims in common, counted from the right, where these have the same size.
_KEEPS_DIMS = (
    "elementwise", "cast", "copy", "identity", "accumulate", "all_reduce", "quantise", "norm", "norm_bwd", "rope",
    "rope_bwd", "optimizer_step", "gather", "scatter", "dispatch", "dispatch_bwd", "combine", "combine_bwd", *ALONG_DIM,
)  # fmt: skip
Spot = tuple[int, int]


@dataclass(frozen=True)
class LocalSizes:
    """A lowered graph with numbers for its symbols: sizes of whole dims and of a rank's part of them."""

    graph: Graph
    mesh: Mesh
    sizes: Mapping[str, int]
    _sides: dict[tuple[str, int, int, str], tuple[tuple[int, int, int], ...]] = field(default_factory=dict)

    @cached_property
    def _numbers(self) -> Mapping[str, float]:
        return {k: float(v) for k, v in self.sizes.items()}

    @cached_property
    def balanced(self) -> bool:
        """Whether sequences are distributed in pairs of a front and a back piece."""
        nodes = (n for r in self.graph.regions for n in r.nodes)
        return any(isinstance(n.attrs, AttentionAttrs) and n.attrs.balanced for n in nodes)

    def number(self, dim: Dim) -> int:
        """Return a dim as a number."""
        return dim if isinstance(dim, int) else round(float(dim.evaluate(self._numbers)))

    def share(self, value: Value, dim: int) -> int:
        """Return how many entries of a dim a rank holds at most."""
        return self.number(value.type.dims[dim])

    def size(self, value: Value, dim: int) -> int:
        """Return the size of a dim of the whole tensor: a rank's part times the ranks that it is distributed to."""
        whole = float(as_expr(evened(value.type.dims[dim])).evaluate(self._numbers))
        for axis in self.cutting(value, dim):
            whole *= self.mesh.degrees.get(axis, 1)
        return round(whole)

    def cutting(self, value: Value, dim: int) -> list[str]:
        """Return the axes that cut a dim, in the order in which they do."""
        given = value.type.dims[dim]
        order = _SEQUENCE_CUTS if isinstance(given, Expr) and given.symbols & {"seq", "kv"} else _CUTS
        cut = [a for a, p in value.placements if isinstance(p, Shard) and p.dim == dim]
        return sorted(cut, key=lambda a: order.index(a) if a in order else len(order))

    def own(self, region: Region, value: Value, rank: Mapping[str, int]) -> tuple[LocalDim, ...]:
        """Return what a rank holds of a value that is cut by its placements alone."""
        found = []
        for dim in range(value.type.rank):
            axis = LocalDim(self.size(value, dim))
            axes = self.cutting(value, dim)
            for k, name in enumerate(axes):
                rest = [self.mesh.degrees.get(a, 1) for a in axes[k + 1 :]]
                axis = self.cut(region, value, dim, axis, name, rank, rest)
            found.append(axis)
        return tuple(found)

    def cut(
        self,
        region: Region,
        value: Value,
        dim: int,
        axis: LocalDim,
        name: str,
        rank: Mapping[str, int],
        rest: list[int] | None = None,
    ) -> LocalDim:
        """Return what is left of an axis when a mesh axis cuts it; `rest` are the degrees that cut it after that."""
        degree, position = self.mesh.degrees.get(name, 1), rank.get(name, 0)
        return axis_of(axis.size, axis.held[self.taken(region, value, dim, axis, (name, degree, position), rest or [])])

    def taken(
        self, region: Region, value: Value, dim: int, axis: LocalDim, cut: tuple[str, int, int], rest: list[int]
    ) -> Tensor:
        """Return the places in a local dim that one of several ranks keeps of it."""
        name, degree, _ = cut
        share = self.share(value, dim)
        for d in rest:
            share *= d
        sides: list[Tensor] = []
        lies = value.placement(name)
        if isinstance(lies, Shard) and (lies.packed or name != "tp"):
            sides = self._beside(region, (value, dim), axis, cut)
        if sides:
            return torch.cat(sides)
        return self._piece((value, dim), axis.length, self._share(axis, share, degree, name), cut)

    def _piece(self, at: tuple[Value, int], length: int, share: int, cut: tuple[str, int, int]) -> Tensor:
        """Places that a rank keeps of one tensor: a front and a back piece of a balanced sequence, else a block."""
        name, degree, position = cut
        given = at[0].type.dims[at[1]]
        if name == "cp" and self.balanced and isinstance(given, Expr) and "seq" in given.symbols:
            return zigzag(length, degree).chunk(degree)[position]
        return block(length, share, degree, position, name == "tp")

    def _beside(self, region: Region, at: tuple[Value, int], axis: LocalDim, cut: tuple[str, int, int]) -> list[Tensor]:
        """Places that a rank keeps of each of the tensors side by side in a dim, as far as they are there."""
        sides = self.sides(region, at[0], at[1], cut[0])
        if len(sides) < 2 or sum(size for _, size, _ in sides) != axis.size:
            return []
        held, found = axis.held, list[Tensor]()
        for start, size, share in sides:
            there = ((held >= start) & (held < start + size)).nonzero().flatten()
            part = share * there.numel() // size
            found.append(there[self._piece(at, there.numel(), part, cut)])
        return found

    def _share(self, axis: LocalDim, share: int, degree: int, name: str) -> int:
        """Over data axes flat buffers are cut, not rows: what does not divide is distributed as `torch.chunk` does."""
        return share if name == "tp" and share else -(-axis.length // degree)

    def sides(self, region: Region, value: Value, dim: int, name: str) -> tuple[tuple[int, int, int], ...]:
        """Return the tensors that stand side by side in a dim: start and size in the whole, and a rank's part.

        They are what slices take out of the dim, what pads and concats put into it, gate and up of experts, and the
        rows of each sequence where tokens are rows of one flat dim.
        """
        key = region.name, value.id, dim, name
        if key not in self._sides:
            self._sides[key] = ()  # for those that come here again on the way
            found: dict[int, tuple[int, int]] = {}
            for start, size, share in self._found(region, (value.id, dim), name):
                found[start] = min(found.get(start, (size, share)), (size, share))
            self._sides[key] = _apart([(s, n, p) for s, (n, p) in sorted(found.items())])
        return self._sides[key]

    def _found(self, region: Region, spot: Spot, name: str) -> Iterator[tuple[int, int, int]]:
        seen, todo = {spot}, [spot]
        while todo:
            value, dim = todo.pop()
            makers = [region.producer[value]] if value in region.producer else []
            for node in (*region.users.get(value, ()), *makers):
                if has(node, Trait.RESHAPES):
                    yield from self._factors(region, node, (value, dim), name)
                elif name == "tp":
                    yield from self._parts(region, node, (value, dim), name)
                for other in _same(region, node, (value, dim)):
                    if other not in seen and self._alike(region, other, spot):
                        seen.add(other)
                        todo.append(other)

    def _factors(self, region: Region, node: Node, spot: Spot, name: str) -> Iterator[tuple[int, int, int]]:
        """A flat dim of which an axis cuts an inner factor: as many tensors side by side as there are outer entries."""
        value, dim = spot
        other = region.by_id[node.outputs[0] if value == node.inputs[0] else node.inputs[0]]
        lies, v = other.placement(name), region.by_id[value]
        here, there = ([self.size(w, d) for d in range(w.type.rank)] for w in (v, other))
        for ins, outs in groups_of(here, there):
            if dim not in ins or not isinstance(lies, Shard) or lies.dim not in outs:
                continue
            if lies.packed and name == "tp" and _leads(here, ins, dim) and _leads(there, outs, lies.dim):
                scale = Fraction(here[dim], there[lies.dim])
                inner_sides = self.sides(region, other, lies.dim, name)
                yield from ((int(s * scale), int(n * scale), int(p * scale)) for s, n, p in inner_sides)
                continue
            outer = math.prod(there[o] for o in outs if o < lies.dim)
            inner = math.prod(there[o] for o in outs) // outer
            if sum(here[i] != 1 for i in ins) == 1 and outer > 1:
                yield from ((k * inner, inner, inner // self.mesh.degrees.get(name, 1)) for k in range(outer))

    def _alike(self, region: Region, other: Spot, spot: Spot) -> bool:
        """Whether two dims are of one size as a whole."""
        a, b = (self.size(region.by_id[v], d) for v, d in (other, spot))
        return a == b

    def _parts(self, region: Region, node: Node, spot: Spot, name: str) -> Iterator[tuple[int, int, int]]:
        value, dim = spot
        attrs = node.attrs
        if isinstance(attrs, SliceAttrs) and attrs.dim == dim and node.meaning is not None and not attrs.drop:
            part = node.outputs[0] if has(node, Trait.TAKES_RANGE) else node.inputs[0]
            if value != part:
                start = node.meaning.steps[0].argument("start")
                v = region.by_id[part]
                if isinstance(start, int | Expr):
                    yield from self._inside(region, (v, dim), self.number(start), name)
        elif isinstance(attrs, ConcatAttrs) and attrs.dim == dim and value in node.outputs:
            start = 0
            for i in node.inputs:
                v = region.by_id[i]
                yield from self._inside(region, (v, dim), start, name)
                start += self.size(v, dim)
        elif isinstance(attrs, ExpertsAttrs) and attrs.gated and self._is_gated(region, node, spot):
            whole, part = self.size(region.by_id[value], dim), self.share(region.by_id[value], dim)
            yield 0, whole // 2, part // 2
            yield whole // 2, whole // 2, part // 2

    def _inside(self, region: Region, at: tuple[Value, int], start: int, name: str) -> Iterator[tuple[int, int, int]]:
        """One of the tensors side by side, or those that stand side by side in it; none that is not cut there."""
        v, dim = at
        lies = v.placement(name)
        if lies == REPLICATE or (isinstance(lies, Shard) and lies.dim != dim):
            return
        size, inner = self.size(v, dim), self.sides(region, v, dim, name)
        if len(inner) > 1 and sum(n for _, n, _ in inner) == size:
            yield from ((start + s, n, share) for s, n, share in inner)
        else:
            yield start, size, self.share(v, dim)

    def _is_gated(self, region: Region, node: Node, spot: Spot) -> bool:
        """Whether a dim of an expert op is the one that gate and up share, side by side."""
        assert isinstance(node.attrs, ExpertsAttrs)
        if node.meaning is not None and node.meaning.steps[0].argument("interleaved", False):
            return False
        placement = region.by_id[spot[0]].placement("tp")
        return isinstance(placement, Shard) and placement.packed and placement.dim == spot[1]


def _apart(found: list[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Keep the finest parts that stand side by side without a gap; nothing where they overlap."""
    end, kept = 0, []
    for start, size, share in found:
        if start != end:
            return ()
        kept.append((start, size, share))
        end = start + size
    return tuple(kept)


def _leads(sizes: Sequence[int], group: Sequence[int], dim: int) -> bool:
    """Whether a dim is the first of a group, those of one entry left out."""
    return next((i for i in group if sizes[i] != 1), None) == dim


def _same(region: Region, node: Node, spot: Spot) -> Iterator[Spot]:
    """Yield dims of other tensors of a node that are the dim of one of its tensors, where that is plain to see."""
    value, dim = spot
    tensors = (*node.inputs, *node.outputs)
    rank = region.by_id[value].type.rank
    if isinstance(node.attrs, MatmulAttrs):
        letters = node.attrs.letters
        bias = [letters[2][-1]] * (len(node.inputs) - 2)
        names = dict(zip(tensors, (*letters[:2], *bias, letters[2]), strict=True))
        yield from ((i, names[i].index(names[value][dim])) for i in tensors if names[value][dim] in names[i])
    elif isinstance(node.attrs, PermuteAttrs):
        dims = node.attrs.dims
        yield (node.outputs[0], dims.index(dim)) if value == node.inputs[0] else (node.inputs[0], dims[dim])
    elif node.op in _KEEPS_DIMS or (isinstance(node.attrs, SliceAttrs) and not node.attrs.drop):
        for i in tensors:
            other = dim + region.by_id[i].type.rank - rank
            if other >= 0 and not (isinstance(node.attrs, SliceAttrs) and node.attrs.dim == dim):
                yield i, other
    elif has(node, OpClass.CONV):
        channels = {i: d for i in tensors if (d := channel_dim(region, node, i)) is not None}
        yield from ((i, d) for i, d in channels.items() if channels.get(value) == dim)
    elif has(node, Trait.RESHAPES, Trait.EXPANDS, Trait.REDUCES):
        yield from _same_end(region, node, spot)
    elif has(node, Trait.GATHERS, Trait.SCATTERS):
        pairs = [*zip(node.inputs, node.outputs, strict=True), *zip(node.outputs, node.inputs, strict=True)]
        yield from ((other, dim) for this, other in pairs if this == value)
    yield from ((g if value == p else p, dim) for p, g in region.grads if value in (p, g))


def channel_dim(region: Region, node: Node, value: int) -> int | None:
    """The dim of channels in a tensor of a depthwise convolution: weights [c, 1, k], biases [c], signals [b, c, ..]."""
    forward = not has(node, Trait.BACKWARD)
    x, weight = (region.by_id[i].type for i in (node.inputs[:2] if forward else node.inputs[1:3]))
    if weight.dims[1] != 1:
        return None
    given = region.by_id[value].type
    return (
        0
        if given.rank == 1 or (given.rank == weight.rank and given.dims[1] == 1)
        else 1
        if given.rank == x.rank
        else None
    )


def _same_end(region: Region, node: Node, spot: Spot) -> Iterator[Spot]:
    """A dim in front of which, or behind which, both sides have the same dims."""
    value, dim = spot
    other = node.outputs[0] if value == node.inputs[0] else node.inputs[0]
    here, there = (region.by_id[v].type.dims for v in (value, other))
    if here[: dim + 1] == there[: dim + 1]:
        yield other, dim
    elif here[dim:] == there[len(there) - (len(here) - dim) :] and len(there) >= len(here) - dim:
        yield other, len(there) - (len(here) - dim)


def groups_of(source: Sequence[int], result: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Pair dims of a reshape into the smallest groups of equal size, left to right; ones go with the group before them.

    >>> groups_of([2, 8, 16], [16, 4, 4])
    [([0, 1], [0]), ([2], [1, 2])]
    """
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(source) or j < len(result):
        ins, outs, a, b = list[int](), list[int](), 1, 1
        while (not ins and i < len(source)) or (not outs and j < len(result)) or a != b:
            if i < len(source) and (a < b or not ins):
                a, i, ins = a * source[i], i + 1, [*ins, i]
            elif j < len(result):
                b, j, outs = b * result[j], j + 1, [*outs, j]
            else:
                break
        found.append((ins, outs))
    return found


def is_source(value: Value) -> bool:
    """Whether a value is there before anything runs."""
    return value.role in (Role.PARAM, Role.BUFFER, Role.INPUT, Role.CACHE)


def scattered(whole: Tensor, axes: tuple[LocalDim, ...]) -> Tensor:
    """Return the entries of a whole tensor that a rank holds."""
    for dim, axis in enumerate(axes):
        if axis.index is not None:
            whole = whole.index_select(dim, axis.index)
    return whole


def put_back(whole: Tensor, part: Tensor, axes: tuple[LocalDim, ...]) -> None:
    """Write what a rank holds to its place in the whole tensor."""
    if all(a.index is None for a in axes):
        whole.copy_(part)
        return
    whole[torch.meshgrid(*(a.held for a in axes), indexing="ij")] = part
