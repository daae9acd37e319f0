"""How tensor parallelism may cut the dims of a traced graph: by heads, and unevenly where nothing forbids it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TypeAlias

from ...ir.graph import Constraint, Graph, Node, Region
from ...ir.ops import Trait, has
from ...ir.ops.fused.attention import AttentionAttrs, extra_inputs
from ...ir.ops.tensors.layout import ConcatAttrs, SliceAttrs, blocks
from ...ir.placement import TP, Placement, Shard
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, Expr, as_dim, as_expr, symbol, total
from ...ir.sizes.rounding import share
from .follow import Spot, same_dims

# Ops between the projection of keys and attention that work on each entry or each head of its own.
_HANDS_ON = (
    Trait.PERMUTES,
    Trait.RESHAPES,
    Trait.ROTATES,
    Trait.CASTS,
    Trait.NORMALISES_ROWS,
    Trait.COPIES,
    Trait.APPENDS,
)


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads that are sharded whole; `copied` ones are held by several ranks each when there are more ranks."""

    count: int
    what: str
    copied: bool = False

    @property
    def share(self) -> Expr:
        """Heads that a rank holds."""
        return share(self.count, TP) if self.copied else as_expr(self.count) / symbol(TP)

    @property
    def constraint(self) -> Constraint:
        """What a degree must keep to."""
        return Constraint(self.count, TP.group, self.what, self.copied)


@dataclass(frozen=True, slots=True)
class FusedPart:
    """One of the tensors side by side in a dim, with the heads it consists of."""

    size: int
    heads: Heads | None

    @property
    def share(self) -> Expr:
        """Entries that a rank holds."""
        return (
            as_expr(self.size) / symbol(TP)
            if self.heads is None
            else self.heads.share * (self.size // self.heads.count)
        )


Cut: TypeAlias = tuple[FusedPart, ...]  # a dim as the tensors side by side in it; mostly one


@dataclass(frozen=True, slots=True)
class Cuts:
    """How each dim of one region is cut; `split` holds the sizes that some op of the graph splits or joins.

    `even` is a number that every legal degree divides, the heads of the queries; 0 where there are none.
    """

    found: Mapping[Spot, Cut] = field(default_factory=dict)
    split: frozenset[int] = frozenset()
    even: int = 1

    def share(self, spot: Spot, size: Dim) -> Expr:
        """Return the part of a dim that the rank with the most of it holds."""
        if spot in self.found and isinstance(size, int):
            return total(p.share for p in _resized(self.found[spot], size))
        return share(size, TP) if isinstance(size, int) and self.is_free(size) else as_expr(size) / symbol(TP)

    def constraints(self, spot: Spot, size: Dim, where: str) -> Iterator[Constraint]:
        """Yield what the degree must keep to; nothing for a dim that may be cut unevenly."""
        parts = self.found.get(spot) if isinstance(size, int) else None
        if parts is not None:
            yield from (p.heads.constraint if p.heads else Constraint(p.size, TP.group, where) for p in parts)
        elif not isinstance(size, int) or not self.is_free(size):
            yield Constraint(size, TP.group, where)

    def counts(self, spot: Spot, size: Dim) -> str:
        """Return what a dim of this size counts, in words; nothing where it is not the heads themselves."""
        parts = self.found.get(spot, ())
        return next((p.heads.what for p in parts if p.heads and p.heads.count == size), "")

    def copied(self, spot: Spot) -> int:
        """Return the number of heads of which ranks may hold copies, 0 where there are none."""
        parts = self.found.get(spot, ())
        return max((p.heads.count for p in parts if _is_copied(p) and p.heads), default=0)

    def tail(self, spot: Spot) -> Dim:
        """Return how many entries at the end of a rank's part are those of copied heads; 0 where all are."""
        parts = self.found.get(spot, ())
        mixed = any(not _is_copied(p) for p in parts)
        return as_dim(total(p.share for p in parts if _is_copied(p))) if mixed else 0

    def on_all(self, spot: Spot, start: Dim) -> bool:
        """Whether the tensor that starts there in a packed dim is one head, of which every rank holds a copy."""
        parts = self.found.get(spot, ())
        ends = [sum(p.size for p in parts[:i]) for i in range(len(parts))]
        return start in ends and _is_one(parts[ends.index(int(start))]) if isinstance(start, int) else False

    def stacked(self, region: Region, node: Node, given: Sequence[Placement]) -> bool:
        """Whether a reshape turns columns of tensors side by side into heads of them side by side, or back."""
        if not has(node, Trait.RESHAPES) or not isinstance(given[0], Shard):
            return False
        spot = node.inputs[0], given[0].dim
        parts = len(self.found.get(spot, ()))
        return parts > 1 and any(
            len(self.found.get(s, ())) == parts for s in same_dims(region, node, spot) if s != spot
        )

    def is_free(self, size: int) -> bool:
        """Whether a dim of this size may be cut unevenly: nothing looks inside it, and some legal degree would."""
        return size not in self.split and (self.even == 0 or size % self.even != 0)

    def start(self, spot: Spot, start: Dim) -> Dim | None:
        """Return where a slice of a packed dim starts in a rank's part of it; None for a dim of one tensor."""
        parts = self.found.get(spot, ())
        ends = [sum(p.size for p in parts[:i]) for i in range(len(parts))]
        if len(parts) < 2 or not isinstance(start, int) or start not in ends:
            return None
        return as_dim(total(p.share for p in parts[: ends.index(start)]))


def _is_copied(part: FusedPart) -> bool:
    return part.heads is not None and part.heads.copied


def _is_one(part: FusedPart) -> bool:
    return part.heads is not None and part.heads.copied and part.heads.count == 1


def _resized(cut: Cut, size: int) -> Cut:
    """The same heads in a tensor of another size: with the head dim beside them or flattened into them."""
    return (replace(cut[0], size=size),) if len(cut) == 1 else cut


def cuts_of(graph: Graph) -> Mapping[str, Cuts]:
    """Find heads by the attention that uses them, from there through the graph; and what may be cut unevenly."""
    found = {r.name: _found(r) for r in graph.regions}
    heads = {p.heads for cuts in found.values() for cut in cuts.values() for p in cut if p.heads}
    even = math.gcd(*(h.count for h in heads if not h.copied))
    split = frozenset(_split_sizes(graph))
    return {name: Cuts(cuts, split, even) for name, cuts in found.items()}


def _found(region: Region) -> dict[Spot, Cut]:
    query = _spread(region, _seeds(region, query=True))
    keys = _spread(region, _seeds(region, query=False))
    if query.keys() & keys.keys():  # one dim counts both: copies of keys would be copies of queries
        keys = {s: tuple(replace(p, heads=_uncopied(p.heads)) for p in cut) for s, cut in keys.items()}
    heads = {**keys, **query, **_one_head(region)}
    packed = _packed(region, heads)
    if not all(_ends_in_copies(cut) for cut in packed.values()):  # their gradients are summed in one range at the end
        heads = {s: tuple(replace(p, heads=_uncopied(p.heads)) for p in cut) for s, cut in {**keys, **query}.items()}
        packed = _packed(region, heads)
    return {**keys, **query, **heads, **_spread(region, packed, fixed=True)}


def _ends_in_copies(cut: Cut) -> bool:
    """Whether copied heads, if any, are the last tensors of a packed dim, and of one number."""
    flags = [_is_copied(p) for p in cut]
    return flags == sorted(flags) and len({p.heads.count for p in cut if p.heads and p.heads.copied}) < 2


def _one_head(region: Region) -> dict[Spot, Cut]:
    """Slices that are the one head of keys, or of values, which all queries read: every rank holds a copy of it."""
    found: dict[Spot, Cut] = {}
    for node in (n for n in region.nodes if has(n, Trait.ATTENDS, backward=False)):
        q, k, v = node.inputs[:3]
        if region.by_id[k].type.dims[1] != 1 or region.by_id[q].type.dims[1] == 1:
            continue
        heads = Heads(1, f"key-value heads of {node.scope or 'the top'}", copied=True)
        for value in (k, v):
            made = region.producer.get(value)
            while made is not None and has(made, *_HANDS_ON):
                made = region.producer.get(made.inputs[-1 if has(made, Trait.APPENDS) else 0])
            if made is not None and isinstance(made.attrs, SliceAttrs) and not made.attrs.drop:
                spot = made.key, made.attrs.dim
                size = region.by_id[made.key].type.dims[made.attrs.dim]
                found |= {spot: (FusedPart(size, heads),)} if isinstance(size, int) else {}
    return found


def _uncopied(heads: Heads | None) -> Heads | None:
    return replace(heads, copied=False) if heads else None


def _seeds(region: Region, query: bool) -> dict[Spot, Cut]:
    """Heads of queries (and what there is one of for each: statistics, sinks), or of keys and values."""
    found: dict[Spot, Cut] = {}
    for node in region.nodes:
        if not has(node, Trait.ATTENDS):
            continue
        spots = _attention_spots(region, node)
        count, theirs = (region.by_id[v].type.dims[d] for v, d in (spots[0][0], spots[1][0]))
        if not isinstance(count, int) or not isinstance(theirs, int) or (theirs == 1 and not query):
            continue  # one head of keys and values has no dim to cut: attention wants it whole
        shared = theirs < count
        keys = Heads(theirs, f"{'key-value ' if shared else ''}heads of {node.scope or 'the top'}", shared)
        heads = Heads(count, f"heads of {node.scope or 'the top'}") if query else keys
        found |= dict.fromkeys(spots[0 if query else 1], (FusedPart(heads.count, heads),))
    return found


def _attention_spots(region: Region, node: Node) -> tuple[list[Spot], list[Spot]]:
    """Where queries and where keys and values have their heads."""
    if not has(node, Trait.BACKWARD):
        q, k, v = node.inputs[:3]
        out, lse = node.outputs
        return [(q, 1), (out, 2), (lse, 1), *_extra_spots(region, node)], [(k, 1), (v, 1)]
    dout, q, k, v, out, lse = node.inputs[:6]
    dq, dk, dv = node.outputs[:3]
    queries = [(q, 1), (dout, 2), (out, 2), (lse, 1), (dq, 1), *_extra_spots(region, node)]
    return queries, [(k, 1), (v, 1), (dk, 1), (dv, 1)]


def _extra_spots(region: Region, node: Node) -> Iterator[Spot]:
    """Where sinks and a bias have the heads of queries, and their gradients."""
    assert isinstance(node.attrs, AttentionAttrs)
    given = extra_inputs(node.op, node.attrs, node.inputs)
    grads = node.outputs[3:] if has(node, Trait.BACKWARD) else ()
    if "sinks" in given:
        yield from ((s, 0) for s in (given["sinks"], *grads[:1]))
    if "bias" in given and region.by_id[given["bias"]].type.dims[1] != 1:
        yield from ((s, 1) for s in (given["bias"], *grads[node.attrs.sinks :]))


def _spread(region: Region, seeds: Mapping[Spot, Cut], fixed: bool = False) -> dict[Spot, Cut]:
    """Follow dims through the ops that hand them on; `fixed` ones only while their size stays."""
    found, todo = dict(seeds), list(seeds)
    while todo:
        spot = todo.pop()
        for other in _neighbours(region, spot):
            if other not in found and _carries(region, other, found[spot], fixed):
                size = region.by_id[other[0]].type.dims[other[1]]
                found[other] = _scaled(found[spot], size) if fixed and isinstance(size, int) else found[spot]
                todo.append(other)
    return found


def _neighbours(region: Region, spot: Spot) -> Iterator[Spot]:
    value, dim = spot
    nodes = (*region.users.get(value, ()), *([region.producer[value]] if value in region.producer else []))
    for node in nodes:
        yield from same_dims(region, node, spot)
    yield from ((g if value == p else p, dim) for p, g in region.grads if value in (p, g))


def _carries(region: Region, spot: Spot, cut: Cut, fixed: bool) -> bool:
    """Whether a dim can hold these heads: a multiple of their number; of packed tensors, just them."""
    size = region.by_id[spot[0]].type.dims[spot[1]]
    if not isinstance(size, int):
        return False
    if fixed:
        return bool(_scaled(cut, size))
    return all(p.heads is not None and size % p.heads.count == 0 for p in cut)


def _scaled(cut: Cut, size: int) -> Cut:
    """The same tensors side by side in a dim of another size, each entry split or joined; nothing where they are not.

    128 + 16 + 16 columns are 8 + 1 + 1 heads of 16.
    """
    whole = sum(p.size for p in cut)
    parts = tuple(replace(p, size=p.size * size // whole) for p in cut)
    exact = all(p.size * whole == old.size * size for p, old in zip(parts, cut, strict=True))
    return parts if exact and all(p.heads is None or p.size % p.heads.count == 0 for p in parts) else ()


def _packed(region: Region, heads: Mapping[Spot, Cut]) -> dict[Spot, Cut]:
    """Dims out of which slices take heads: the fused projections of queries, keys and values."""
    found: dict[Spot, Cut] = {}
    for value, nodes in region.users.items():
        slices = [
            n for n in nodes if isinstance(n.attrs, SliceAttrs) and has(n, Trait.TAKES_RANGE) and not n.attrs.drop
        ]
        for dim in {n.attrs.dim for n in slices if isinstance(n.attrs, SliceAttrs)}:
            parts = _parts(region, [n for n in slices if isinstance(n.attrs, SliceAttrs) and n.attrs.dim == dim], heads)
            if any(p.heads for p in parts) and sum(p.size for p in parts) == region.by_id[value].type.dims[dim]:
                found[value, dim] = parts
    return found


def _parts(region: Region, slices: list[Node], heads: Mapping[Spot, Cut]) -> Cut:
    """The tensors that slices take out of one dim, in order; nothing unless they lie side by side."""
    parts: dict[int, FusedPart] = {}
    for node in slices:
        assert isinstance(node.attrs, SliceAttrs)
        start, size = node.attrs.start, region.by_id[node.key].type.dims[node.attrs.dim]
        if isinstance(start, int) and isinstance(size, int):
            cut = heads.get((node.key, node.attrs.dim), (FusedPart(size, None),))
            parts[start] = FusedPart(size, cut[0].heads)
    return tuple(parts[start] for start in sorted(parts))


def _split_sizes(graph: Graph) -> Iterator[int]:
    """Yield sizes of dims that a reshape splits or joins, that lie side by side with others, or inside experts."""
    for region in graph.regions:
        for node in region.nodes:
            tensors = [region.by_id[i].type.dims for i in (*node.inputs, *node.outputs)]
            if has(node, Trait.RESHAPES):
                yield from _regrouped(*tensors)
            elif isinstance(node.attrs, SliceAttrs | ConcatAttrs):
                along = node.attrs.dim
                yield from _whole(d for dims in tensors for d in dims[along : along + 1])
            elif has(node, Trait.HOLDS_EXPERTS):
                yield from _whole(d for dims in tensors for d in dims)


def _regrouped(source: tuple[Dim, ...], result: tuple[Dim, ...]) -> Iterator[int]:
    for ins, outs in blocks(source, result):
        dims = [*(source[i] for i in ins), *(result[o] for o in outs)]
        if len(dims) > 2:
            yield from _whole(dims)


def _whole(dims: Iterable[Dim]) -> Iterator[int]:
    yield from (d for d in dims if isinstance(d, int))
