"""Which entries of the whole a node's results hold, from what its inputs hold; operands that differ are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ...ir.graph import Node, Region, Value
from ...ir.ops.fused.experts import ExpertsAttrs
from ...ir.ops.tensors.layout import ConcatAttrs, PermuteAttrs, SliceAttrs
from ...ir.ops.tensors.matmul import MatmulAttrs
from ...ir.ops.tensors.normalize import DimAttrs, ReduceAttrs
from ...ir.records import dataclass
from ...ir.sizes.expr import Expr
from .call import LayoutMismatchError, Local, LocalDim, axis_of
from .layout import LocalSizes, channel_dim, groups_of

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


def axes_of(where: Where, inputs: Sequence[Local]) -> tuple[Axes, ...]:
    """Return the axes of each result; LayoutMismatchError where operands do not lie alike."""
    return _RULES.get(where.node.op, _by_size)(where, [i.axes for i in inputs])


def _by_size(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    """Results of ops that keep dims: each dim lies as the input's dim of that size does, else by its placements."""
    return tuple(_like(where, v, given) for v in where.made)


def _like(where: Where, value: Value, given: Sequence[Axes]) -> Axes:
    own = where.layout.own(where.region, value, where.rank)
    return tuple(_nearest(own, d, given) for d in range(len(own)))


def _nearest(own: Axes, dim: int, given: Sequence[Axes]) -> LocalDim:
    axis = own[dim]
    if axis.index is None:
        return axis
    from_right = len(own) - dim
    aligned = [a[-from_right] for a in given if len(a) >= from_right]
    for other in (*aligned, *(x for a in given for x in a)):
        if other.index is not None and other.size == axis.size and other.length == axis.length:
            return other
    return axis


def _aligned(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    """Pointwise: operands broadcast, and what meets is the same entry of the whole."""
    out: list[LocalDim] = []
    rank = max((len(a) for a in given), default=0)
    for from_right in range(rank, 0, -1):
        met = [a[-from_right] for a in given if len(a) >= from_right and not _is_one(a[-from_right])]
        if any(not met[0].same(m) for m in met[1:]):
            raise where.refused(f"operands hold other entries of dim -{from_right}: {_told(met)}")
        out.append(met[0] if met else LocalDim(1))
    made = where.made
    return tuple(
        tuple(out[len(out) - v.type.rank :]) if v.type.rank <= len(out) else _like(where, v, given) for v in made
    )


def _is_one(axis: LocalDim) -> bool:
    """Whether an axis broadcasts; a dim of one entry that another rank holds does not."""
    return axis.size == 1 and axis.index is None


def _told(axes: Sequence[LocalDim]) -> str:
    return " and ".join("all" if a.index is None else str(a.index.tolist()[:12]) for a in axes)


def _matmul(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    attrs = where.node.attrs
    assert isinstance(attrs, MatmulAttrs)
    left, right, out = attrs.letters
    names: dict[str, LocalDim] = {}
    for letter, axis in [*zip(left, given[0], strict=True), *zip(right, given[1], strict=True)]:
        if letter in names and not names[letter].same(axis):
            raise where.refused(f"factors hold other entries of '{letter}': {_told([names[letter], axis])}")
        names.setdefault(letter, axis)
    if len(given) > 2 and not attrs.scales and not given[2][-1].same(names[out[-1]]):
        raise where.refused(f"bias and result hold other entries: {_told([given[2][-1], names[out[-1]]])}")
    return (tuple(names[letter] for letter in out),)


def _permute(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    attrs = where.node.attrs
    assert isinstance(attrs, PermuteAttrs)
    return (tuple(given[0][d] for d in attrs.dims),)


def _expand(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    own = where.layout.own(where.region, where.made[0], where.rank)
    shift = len(own) - len(given[0])
    return (
        tuple(
            given[0][d - shift] if d >= shift and given[0][d - shift].size != 1 else axis for d, axis in enumerate(own)
        ),
    )


def _slice(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    """A range of what is held must lie in the range of the whole that was recorded; without one, a rank's own part."""
    attrs, (out,) = where.node.attrs, where.made
    assert isinstance(attrs, SliceAttrs)
    axes = list(given[0])
    axis = axes[attrs.dim]
    if where.node.meaning is None:
        raise where.refused("a slice that was not recorded")
    start = where.node.meaning.steps[0].argument("start")
    assert isinstance(start, int | Expr)
    first, local = where.layout.number(start), where.layout.number(attrs.start)
    if attrs.drop:
        if axis.index is not None:
            raise where.refused("an entry is taken out of a dim of which the rank has a part")
        return (tuple(a for d, a in enumerate(axes) if d != attrs.dim),)
    size = where.layout.size(out, attrs.dim)
    count = size if axis.index is None else where.layout.share(out, attrs.dim)
    places = axis.held[local : local + count] - first
    if places.numel() and (int(places.min()) < 0 or int(places.max()) >= size):
        raise where.refused(f"slice [{first}:{first + size}] takes entries {(places + first).tolist()[:12]} instead")
    axes[attrs.dim] = axis_of(size, places)
    return (tuple(axes),)


def _pad(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    attrs, (out,) = where.node.attrs, where.made
    assert isinstance(attrs, SliceAttrs)
    own = where.layout.own(where.region, out, where.rank)
    axes = list(given[0])
    if attrs.drop:
        axes.insert(attrs.dim, LocalDim(where.layout.size(out, attrs.dim)))
        return (tuple(axes),)
    source, made = axes[attrs.dim], own[attrs.dim]
    if where.node.meaning is not None and made.index is not None:
        start = where.node.meaning.steps[0].argument("start")
        assert isinstance(start, int | Expr)
        first, local = where.layout.number(start), where.layout.number(attrs.start)
        if not torch.equal(made.held[local : local + source.length] - first, source.held):
            raise where.refused(f"entries {source.held.tolist()[:12]} go where {made.held.tolist()[:12]} are")
    axes[attrs.dim] = made
    return (tuple(axes),)


def _concat(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    attrs = where.node.attrs
    assert isinstance(attrs, ConcatAttrs)
    axes = list(given[0])
    starts = [sum(a[attrs.dim].size for a in given[:k]) for k in range(len(given))]
    held = torch.cat([a[attrs.dim].held + start for a, start in zip(given, starts, strict=True)])
    axes[attrs.dim] = axis_of(sum(a[attrs.dim].size for a in given), held)
    for dim in range(len(axes)):
        if dim != attrs.dim and any(not a[dim].same(axes[dim]) for a in given):
            raise where.refused(f"pieces hold other entries of dim {dim}")
    return (tuple(axes),)


def _reduce(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    attrs = where.node.attrs
    assert isinstance(attrs, ReduceAttrs)
    axes = [LocalDim(1) if d in attrs.dims else a for d, a in enumerate(given[0])]
    kept = axes if attrs.keepdim else [a for d, a in enumerate(axes) if d not in attrs.dims]
    return (tuple(kept),) * len(where.node.outputs)


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


def _first(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    """Every result lies as the first input."""
    return (given[0],) * len(where.node.outputs)


def _attention(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    q, k, v = given[:3]
    if not k[2].same(v[2]) or not k[1].same(v[1]):
        raise where.refused("keys and values hold other entries")
    return (q[0], q[2], q[1], v[3]), (q[0], q[1], q[2])


def _attention_bwd(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    q = given[1]
    extras = tuple(given[6:])
    if not given[0][2].same(q[1]) or not given[0][1].same(q[2]):
        raise where.refused("queries and the gradient of the result hold other entries")
    return (*given[1:4], *extras)[: len(where.node.outputs)]


def _norm(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    """Results as x, statistics with one entry a row."""
    rest = ((*given[0][:-1], LocalDim(1)),) * (len(where.node.outputs) - 1)
    return given[0], *rest


def _norm_bwd(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    if not all(a.same(b) for a, b in zip(given[0], given[1], strict=True)):
        raise where.refused("x and the gradient of its norm hold other entries")
    made = where.made[1:]
    return given[1], *(given[1][-v.type.rank :] for v in made)


def _experts(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    """Results as the tokens; rows are this rank's own, and no one else reads them."""
    own = tuple(where.layout.own(where.region, v, where.rank) for v in where.made[1:])
    count = given[0][0].length * given[1][1].length
    return given[0], *((LocalDim(count), *o[1:]) for o in own)


def _experts_bwd(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    attrs = where.node.attrs
    assert isinstance(attrs, ExpertsAttrs)
    x, weights, up, down = given[1], given[3], given[4], given[5]
    biases = ((up[0], up[2 if attrs.transposed else 1]), (up[0], x[1]))
    return (x, weights, up, down, *biases)[: len(where.node.outputs)]


def _conv(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    """Channels of a depthwise convolution: signal and weights hold the same ones."""
    region, node = where.region, where.node
    told = [(channel_dim(region, node, i), a) for i, a in zip(node.inputs, given, strict=True)]
    channels = [a[d] for d, a in told if d is not None]
    if channels and any(not channels[0].same(c) for c in channels[1:]):
        raise where.refused(f"signal and weights hold other channels: {_told(channels)}")
    made = _by_size(where, given)
    places = [channel_dim(region, node, o) for o in node.outputs]
    if not channels:
        return made
    return tuple(a if d is None else (*a[:d], channels[0], *a[d + 1 :]) for d, a in zip(places, made, strict=True))


def _second(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    return (given[1],)


def _topk(where: Where, given: Sequence[Axes]) -> tuple[Axes, ...]:
    """As the input; the dim along which is chosen is another one."""
    attrs = where.node.attrs
    assert isinstance(attrs, DimAttrs)
    if given[0][attrs.dim].index is not None:
        raise where.refused("chooses among a part of the entries")
    own = (where.layout.size(v, attrs.dim) for v in where.made)
    return tuple((*given[0][: attrs.dim], LocalDim(n), *given[0][attrs.dim + 1 :]) for n in own)


_RULES: Mapping[str, Callable[[Where, Sequence[Axes]], tuple[Axes, ...]]] = {
    "elementwise": _aligned, "cast": _aligned, "identity": _aligned, "accumulate": _aligned, "matmul": _matmul,
    "permute": _permute, "expand": _expand, "slice": _slice, "pad": _pad, "concat": _concat, "reduce": _reduce,
    "reshape": _reshape, "rope": _first, "rope_bwd": _first, "attention": _attention, "attention_bwd": _attention_bwd,
    "norm": _norm, "norm_bwd": _norm_bwd, "experts": _experts, "experts_bwd": _experts_bwd,
    "conv": _conv, "conv_bwd": _conv, "cross_entropy_bwd": _second,
    "softmax": _first, "softmax_bwd": _first, "topk": _topk, "sort": _topk,
}  # fmt: skip
