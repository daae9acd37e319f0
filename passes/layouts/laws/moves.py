"""Layout laws of pointwise functions and of what moves data: the cut dim is handed on, sums pass what is linear."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ....ir.ops import Trait, has
from ....ir.ops.tensors.images import ChannelNormAttrs, WindowAttrs
from ....ir.ops.tensors.layout import ConcatAttrs, PermuteAttrs, SliceAttrs
from ....ir.ops.tensors.lookup import LookupAttrs
from ....ir.ops.tensors.pointwise import ElementwiseAttrs
from ....ir.sizes.lone import without_lone
from ..lay import PARTIAL, REPLICATE, SAMPLES, Law, Lay, Partial, Placement, Shard, alike, no_sums, result_is

_SUMS = frozenset({"add", "sub", "neg"})
_LINEAR = frozenset({"add", "sub", "neg", "mul", "div", "cast", "where"})


def elementwise(lay: Lay) -> Iterator[str]:
    """Operands and results lie alike where they broadcast; partial sums pass linear functions alone."""
    fns = lay.call.attrs_as(ElementwiseAttrs).fns
    sums = [i for i, p in enumerate(lay.ins) if isinstance(p, Partial)]
    if sums:
        yield from _partial(lay, fns, sums)
        return
    yield from aligned(lay)


def _partial(lay: Lay, fns: tuple[str, ...], sums: list[int]) -> Iterator[str]:
    alone = fns if len(fns) == 1 else ()  # a fused chain does not say which operand meets which function
    odd = [fn for fn in alone if fn not in _LINEAR and not fn.endswith("_bwd")]
    if odd:
        yield f"'{odd[0]}' is not linear and reads a partial sum: {lay.input(sums[0])}; wanted R or S"
    elif set(fns) <= _SUMS and len(sums) < len(lay.ins):
        whole = next(i for i in range(len(lay.ins)) if i not in sums)
        yield f"a partial sum is added to what is none: {lay.input(sums[0])} and {lay.input(whole)}"
    elif any(isinstance(p, Shard) for p in lay.ins):
        cut = next(i for i, p in enumerate(lay.ins) if isinstance(p, Shard))
        yield f"a partial sum meets what is cut: {lay.input(sums[0])} and {lay.input(cut)}"
    else:
        yield from result_is(lay, 0, lay.outs[0], PARTIAL)


def aligned(lay: Lay) -> Iterator[str]:
    """Each operand is cut where the result is, unless it has no such dim."""
    p, rank = lay.outs[0], lay.call.outputs[0].rank
    if isinstance(p, Partial):
        yield f"{lay.output()} is a partial sum of none"
    for i, (have, kind) in enumerate(zip(lay.ins, lay.call.inputs, strict=True)):
        dim = p.dim - (rank - kind.rank) if isinstance(p, Shard) else -1
        want: Placement = REPLICATE
        if isinstance(p, Shard) and dim >= 0 and kind.dims[dim] != 1:
            want = Shard(dim, p.packed, p.routed)
        if not alike(lay.axis, have, want):
            yield f"operands lie differently: {lay.input(i)} beside {lay.output()}; wanted {want}"


def same(lay: Lay) -> Iterator[str]:
    """The result lies as the input does; of a cast or copy to other dims, nothing is known."""
    if lay.call.inputs[0].rank == lay.call.outputs[0].rank:
        made = lay.outs[0]
        grown = isinstance(made, Shard) and lay.call.inputs[0].dims[made.dim] == 1 and lay.ins[0] == REPLICATE
        if not grown:
            yield from result_is(lay, 0, made, lay.ins[0])


def identity(lay: Lay) -> Iterator[str]:
    """The same; or what is whole, as a partial sum of which one rank has all."""
    if (lay.ins[0], lay.outs[0]) != (REPLICATE, PARTIAL):
        yield from same(lay)


def rope(lay: Lay) -> Iterator[str]:
    """Linear in x; not along the last dim; tables broadcast."""
    p = lay.ins[0]
    if isinstance(p, Shard) and p.dim == lay.call.inputs[0].rank - 1:
        yield f"{lay.call.op} runs along a dim that is cut: {lay.input(0)}"
    yield from result_is(lay, 0, lay.outs[0], p)
    for i in (1, 2):
        if isinstance(lay.ins[i], Partial):
            yield f"a table is a partial sum: {lay.input(i)}"


def view(lay: Lay) -> Iterator[str]:
    """What is whole stays whole, what is partial stays partial, what is cut stays cut."""
    have, made = lay.ins[0], lay.outs[0]
    if type(have) is not type(made):
        yield f"{lay.input(0)} becomes {lay.output()} without a message"


def permute(lay: Lay) -> Iterator[str]:
    """The cut dim moves with its place."""
    have = lay.ins[0]
    want = have
    if isinstance(have, Shard):
        want = Shard(lay.call.attrs_as(PermuteAttrs).dims.index(have.dim), have.packed, have.routed)
    yield from result_is(lay, 0, lay.outs[0], want)


def expand(lay: Lay) -> Iterator[str]:
    """New leading dims shift the cut one; a dim that grows out of nothing may be made in shards."""
    have, made = lay.ins[0], lay.outs[0]
    shift = lay.call.outputs[0].rank - lay.call.inputs[0].rank
    if have == REPLICATE and isinstance(made, Shard):
        if made.dim >= shift and lay.call.inputs[0].dims[made.dim - shift] != 1:
            yield f"{lay.input(0)} becomes {lay.output()} without a message"
        return
    want = Shard(have.dim + shift, have.packed, have.routed) if isinstance(have, Shard) else have
    yield from result_is(lay, 0, made, want)


def slice_(lay: Lay) -> Iterator[str]:
    """A rank's own shard of what is whole, or a range: of a cut dim only where several tensors lie side by side."""
    attrs, have, made = lay.call.attrs_as(SliceAttrs), lay.ins[0], lay.outs[0]
    if isinstance(have, Shard) and isinstance(made, Shard) and have.routed != made.routed:
        yield f"rows go to their experts, or back, without a message: {lay.input(0)} becomes {lay.output()}"
    own = have == REPLICATE and isinstance(made, Shard) and made.dim == attrs.dim and not attrs.drop
    if own or (lay.shards and have == made):
        return
    if isinstance(have, Shard) and have.dim == attrs.dim:
        if attrs.dealt:
            yield from result_is(lay, 0, made, have)
        elif (not have.packed or attrs.drop) and lay.axis not in SAMPLES:
            yield f"a range is taken out of a dim that is cut: {lay.input(0)}, dim {attrs.dim}"
        return
    want = have
    if isinstance(have, Shard):
        want = Shard(have.dim - (attrs.drop and have.dim > attrs.dim), have.packed, have.routed)
    yield from result_is(lay, 0, made, want)


def pad(lay: Lay) -> Iterator[str]:
    """The adjoint of a slice: along the padded dim shards lie side by side."""
    attrs, have = lay.call.attrs_as(SliceAttrs), lay.ins[0]
    want = have
    if have == PARTIAL and _holds_copies(lay, attrs.dim) and lay.outs[0] == Shard(attrs.dim, packed=True):
        return
    if isinstance(have, Shard):
        shift = attrs.drop and have.dim >= attrs.dim
        want = Shard(have.dim + shift, have.packed or (not attrs.drop and have.dim == attrs.dim), have.routed)
    yield from result_is(lay, 0, lay.outs[0], want)


def concat(lay: Lay) -> Iterator[str]:
    """Pieces lie alike; cut along the joined dim, they make a packed one."""
    dim, first = lay.call.attrs_as(ConcatAttrs).dim, lay.ins[0]
    copies = _holds_copies(lay, dim) and isinstance(first, Shard) and first.dim == dim
    for i, p in enumerate(lay.ins[1:], 1):
        joined = isinstance(p, Shard) and isinstance(first, Shard) and p.dim == first.dim == dim
        if not alike(lay.axis, p, first) and not joined and not (copies and p == PARTIAL):
            yield f"pieces lie differently: {lay.input(0)} and {lay.input(i)}"
            return
    want = Shard(dim, packed=True) if isinstance(first, Shard) and first.dim == dim else first
    yield from result_is(lay, 0, lay.outs[0], want)


def _holds_copies(lay: Lay, dim: int) -> bool:
    """Whether beside shards the result has entries of which every rank holds a copy: parts of sums stay with them."""
    size = lay.call.outputs[0].dims[dim]
    return without_lone(size) != size


def lookup(lay: Lay) -> Iterator[str]:
    """A letter that is cut is cut in all that have it; what is looked up is whole, but for samples among themselves."""
    attrs = lay.call.attrs_as(LookupAttrs)
    cut = {w[p.dim] for w, p in zip(attrs.letters, lay.all, strict=False) if isinstance(p, Shard)}
    if not attrs.letters or lay.axis in SAMPLES or not cut:
        if not cut and not attrs.adds and attrs.letters and lay.axis not in SAMPLES:
            moved = isinstance(lay.ins[0], Partial)
            yield from result_is(lay, 0, lay.outs[0], PARTIAL if moved else REPLICATE)
        return
    if len(cut) > 1:
        yield f"operands are cut along different letters {sorted(cut)}, spec {attrs.spec}: {_listed(lay)}"
        return
    (letter,) = cut
    whole = [i for i, (w, p) in enumerate(zip(attrs.letters, lay.ins, strict=False)) if letter in w and p == REPLICATE]
    if whole:
        yield f"one operand is cut along '{letter}' and another is whole, spec {attrs.spec}: {_listed(lay)}"
    elif letter not in attrs.letters[-1] and (not attrs.adds or lay.outs[0] != PARTIAL):
        yield f"'{letter}' is looked up and is cut, spec {attrs.spec}: {_listed(lay)}"


def images(lay: Lay) -> Iterator[str]:
    """A letter that is cut is cut in all that have it, results too, but for samples, which are a replica's own."""
    attrs = lay.call.attrs
    assert isinstance(attrs, WindowAttrs | ChannelNormAttrs)
    if has(lay.call, Trait.BACKWARD) and isinstance(lay.ins[0], Partial):
        for k, p in enumerate(lay.outs):
            yield from result_is(lay, k, p, PARTIAL)
        return
    yield from no_sums(lay)
    lies = list(zip(attrs.letters, lay.all, strict=True))
    cut = {w[p.dim] for w, p in lies if isinstance(p, Shard)}
    if lay.axis in SAMPLES or not cut:
        return
    whole = [w for w, p in lies if p == REPLICATE and cut & set(w)]
    if len(cut) > 1 or whole or REPLICATE in lay.outs:
        yield f"cut along {sorted(cut)}, which results must have or sum over, spec {attrs.spec}: {_listed(lay)}"


def _listed(lay: Lay) -> str:
    return ", ".join(lay.input(i) for i in range(len(lay.ins)))


LAWS: Mapping[str, Law] = {
    "elementwise": elementwise, "cast": same, "copy": same, "accumulate": same, "identity": identity,
    "rope": rope, "rope_bwd": rope, "reshape": view, "permute": permute, "expand": expand, "slice": slice_,
    "pad": pad, "concat": concat, "gather": lookup, "scatter": lookup,
    **dict.fromkeys(("window", "window_bwd", "channel_norm", "channel_norm_bwd"), images),
}  # fmt: skip
