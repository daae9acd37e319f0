"""Which entries of the whole a node's results hold, from what its inputs hold; operands that differ are refused.

Dims that have a factor of the op's index map in common hold the same entries. Of a range that is taken, placed or
joined, and of dims that are flattened, the places are worked out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import torch
from torch import Tensor

from ...ir.graph import Node, Region, Value
from ...ir.ops import Trait, call_of, has, index_map_of
from ...ir.ops.index_map import name_of
from ...ir.ops.tensors.layout import ConcatAttrs, SliceAttrs
from ...ir.records import dataclass
from ...ir.sizes.expr import Expr
from .call import LayoutMismatchError, Local, LocalDim, axis_of
from .layout import LocalSizes, groups_of

Axes = tuple[LocalDim, ...]


@dataclass(frozen=True)
class Where:
    """A node on one rank: what the rules of this page look at."""

    layout: LocalSizes
    region: Region
    node: Node
    rank: Mapping[str, int]

    @property
    def made(self) -> tuple[Value, ...]:
        """The values that the node makes."""
        return tuple(self.region.by_id[o] for o in self.node.outputs)

    def refused(self, what: str) -> LayoutMismatchError:
        """Return the error that names the node."""
        n = self.node
        place = f"'{n.op}' at '{n.scope or 'the top'}' ({self.region.name}, {n.phase})"
        return LayoutMismatchError(f"{place}, rank {dict(self.rank)}: {what}")


# Along an axis of the sequence an index map has all the factors that it has along any other, and positions besides.
_ANY_AXIS = "cp"
_RANGE = "x"  # the factor of what is taken out of a dim, placed in one, or joined to one


def axes_of(where: Where, inputs: Sequence[Local]) -> tuple[Axes, ...]:
    """Return the axes of each result; LayoutMismatchError where operands do not lie alike."""
    given = [i.axes for i in inputs]
    if has(where.node, Trait.RESHAPES):
        return _reshape(where, given)
    made, attrs = _by_factors(where, given), where.node.attrs
    if isinstance(attrs, ConcatAttrs):
        axis = _joined(where, [axes[attrs.dim] for axes in given])
    elif not isinstance(attrs, SliceAttrs):
        return made
    elif not attrs.drop:
        axis = (_taken if has(where.node, Trait.TAKES_RANGE) else _placed)(where, attrs, given[0][attrs.dim])
    elif has(where.node, Trait.TAKES_RANGE) and given[0][attrs.dim].index is not None:
        raise where.refused("an entry is taken out of a dim of which the rank has a part")
    else:
        return made
    return ((*made[0][: attrs.dim], axis, *made[0][attrs.dim + 1 :]),)


def _by_factors(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    """Dims of one factor and one size hold the same entries: heads of queries and of keys are of two sizes.

    A dim of a result whose factor no input has, or has at another size, lies as its placements say.
    """
    own = tuple(where.layout.own(where.region, v, where.rank) for v in where.made)
    index_map = index_map_of(call_of(where.region, where.node), _ANY_AXIS)
    if index_map is None:
        return own
    held: dict[tuple[str, int], LocalDim] = {}
    dims = (zip(t, axes, strict=True) for t, axes in zip(index_map.inputs, given, strict=True))
    for factors, axis in chain.from_iterable(dims):
        if len(factors) != 1 or name_of(factors[0]) == _RANGE or (axis.size == 1 and axis.index is None):
            continue
        first = held.setdefault((factors[0], axis.size), axis)
        if not first.same(axis):
            raise where.refused(f"operands hold other entries of '{name_of(factors[0])}': {_told([first, axis])}")
        if factors[0].endswith("!") and axis.length != axis.size:
            raise where.refused(f"runs along '{name_of(factors[0])}', of which it holds {_told([axis])} alone")
    return tuple(
        tuple(held.get((d[0], a.size), a) if len(d) == 1 else a for d, a in zip(t, axes, strict=True))
        for t, axes in zip(index_map.outputs, own, strict=True)
    )


def _told(axes: Sequence[LocalDim]) -> str:
    return " and ".join("all" if a.index is None else str(a.index.tolist()[:12]) for a in axes)


def _taken(where: Where, attrs: SliceAttrs, axis: LocalDim) -> LocalDim:
    """A range of what is held must lie in the range of the whole that was recorded."""
    first, local = _starts(where, attrs)
    (out,) = where.made
    size = where.layout.size(out, attrs.dim)
    count = size if axis.index is None else where.layout.share(out, attrs.dim)
    places = axis.held[local : local + count] - first
    if places.numel() and (int(places.min()) < 0 or int(places.max()) >= size):
        raise where.refused(f"slice [{first}:{first + size}] takes entries {(places + first).tolist()[:12]} instead")
    return axis_of(size, places)


def _placed(where: Where, attrs: SliceAttrs, source: LocalDim) -> LocalDim:
    """Entries go to where the result has them."""
    (out,) = where.made
    made = where.layout.own(where.region, out, where.rank)[attrs.dim]
    if where.node.meaning is not None and made.index is not None:
        first, local = _starts(where, attrs)
        if not torch.equal(made.held[local : local + source.length] - first, source.held):
            raise where.refused(f"entries {source.held.tolist()[:12]} go where {made.held.tolist()[:12]} are")
    return made


def _starts(where: Where, attrs: SliceAttrs) -> tuple[int, int]:
    """Where a range starts in the whole, as recorded, and in what a rank holds."""
    if where.node.meaning is None:
        raise where.refused("a slice that was not recorded")
    start = where.node.meaning.steps[0].argument("start")
    assert isinstance(start, int | Expr)
    return where.layout.number(start), where.layout.number(attrs.start)


def _joined(where: Where, pieces: Sequence[LocalDim]) -> LocalDim:
    starts = [sum(piece.size for piece in pieces[:k]) for k in range(len(pieces))]
    held = torch.cat([piece.held + start for piece, start in zip(pieces, starts, strict=True)])
    return axis_of(sum(piece.size for piece in pieces), held)


def _reshape(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    """The whole is reshaped; what a rank holds must again be some entries of each dim, and all that these have."""
    (out,) = where.made
    source = given[0]
    sizes = [where.layout.size(out, d) for d in range(out.type.rank)]
    if all(a.index is None for a in source):
        return (tuple(LocalDim(s) for s in sizes),)
    made: list[LocalDim] = []
    for ins, outs in groups_of([a.size for a in source], sizes):
        made += _regrouped(where, [source[i] for i in ins], [sizes[o] for o in outs])
    return (tuple(made),)


def _regrouped(where: Where, source: Sequence[LocalDim], sizes: Sequence[int]) -> list[LocalDim]:
    if all(a.index is None for a in source):
        return [LocalDim(s) for s in sizes]
    places = _flattened(source)
    made: list[LocalDim] = []
    rest = places
    for k in range(len(sizes)):
        inner = 1
        for s in sizes[k + 1 :]:
            inner *= s
        seen = torch.unique_consecutive(rest // inner % sizes[k]) if sizes[k] > 1 else torch.zeros(1, dtype=torch.int64)
        # The entries of one dim in the order in which they come first, where they come again and again.
        again = (seen == seen[0]).nonzero().flatten()
        made.append(axis_of(sizes[k], seen[: int(again[1])] if again.numel() > 1 else seen))
    if not torch.equal(_flattened(made), places):
        held = [a.held.tolist()[:8] for a in source]
        raise where.refused(
            f"a part of [{', '.join(str(a.size) for a in source)}] that holds {held} is no block of "
            f"[{', '.join(map(str, sizes))}]"
        )
    return made


def _flattened(axes: Sequence[LocalDim]) -> Tensor:
    """Places in the flat dim of the entries that some axes hold together."""
    places = torch.zeros(1, dtype=torch.int64)
    for axis in axes:
        places = (places[:, None] * axis.size + axis.held[None, :]).flatten()
    return places
