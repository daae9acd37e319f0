"""References of views, products, pointwise functions, reductions and lookups on one rank."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ....ir.ops import Trait, has
from ....ir.ops.tensors.images import ChannelNormAttrs
from ....ir.ops.tensors.layout import ConcatAttrs, PermuteAttrs, SliceAttrs
from ....ir.ops.tensors.matmul import MatmulAttrs
from ....ir.ops.tensors.normalize import ALONG_DIM, DimAttrs, ReduceAttrs
from ..call import Call, NotComputedError, Reference
from ..models.programs import real_dtype, run_program

Made = tuple[Tensor, ...]


def _program(call: Call) -> Made:
    return run_program(call.node, call.inputs, call.sizes)


def _cast(call: Call) -> Made:
    """Rounding is off: a cast between floating types changes nothing."""
    return (call.inputs[0].to(real_dtype(call.results[0].type.dtype)).expand(call.dims[0]),)


def _same(call: Call) -> Made:
    return (call.inputs[0],)


def _copy(call: Call) -> Made:
    given = call.inputs[0]
    return (given.expand(call.dims[0]).clone() if given.shape != call.dims[0] else given.clone(),)


def _reshape(call: Call) -> Made:
    return (call.inputs[0].reshape(call.dims[0]),)


def _permute(call: Call) -> Made:
    attrs = call.node.attrs
    assert isinstance(attrs, PermuteAttrs)
    return (call.inputs[0].permute(attrs.dims),)


def _expand(call: Call) -> Made:
    return (call.inputs[0].expand(call.dims[0]),)


def _slice(call: Call) -> Made:
    attrs = call.node.attrs
    assert isinstance(attrs, SliceAttrs)
    start = call.local(attrs.start)
    if attrs.drop:
        return (call.inputs[0].select(attrs.dim, start),)
    return (call.inputs[0].narrow(attrs.dim, start, call.dims[0][attrs.dim]),)


def _pad(call: Call) -> Made:
    attrs, source = call.node.attrs, call.inputs[0]
    assert isinstance(attrs, SliceAttrs)
    made = source.new_zeros(call.dims[0])
    start = call.local(attrs.start)
    if attrs.drop:
        made.select(attrs.dim, start).copy_(source)
    else:
        made.narrow(attrs.dim, start, source.shape[attrs.dim]).copy_(source)
    return (made,)


def _concat(call: Call) -> Made:
    attrs = call.node.attrs
    assert isinstance(attrs, ConcatAttrs)
    return (torch.cat(call.inputs, attrs.dim),)


def _matmul(call: Call) -> Made:
    """A bias is added in the epilogue: once, where the product is a partial sum."""
    attrs = call.node.attrs
    assert isinstance(attrs, MatmulAttrs)
    if attrs.scales:
        raise NotComputedError("products of scaled operands are not run: references do not round")
    made = torch.einsum(attrs.spec, call.inputs[0].double(), call.inputs[1].double())
    return (made + call.inputs[2] if len(call.inputs) > 2 else made,)


def _reduce(call: Call) -> Made:
    """A mean over a dim of which each rank has a part is a summand of the mean of all."""
    attrs = call.node.attrs
    assert isinstance(attrs, ReduceAttrs)
    if attrs.fn == "mean":
        share = 1
        for dim in attrs.dims:
            share *= call.shares(0, dim)
        source = call.inputs[0].double()
        return (source.mean(attrs.dims, keepdim=attrs.keepdim) / share if attrs.dims else source,)
    if attrs.fn == "sum":
        source = call.inputs[0]
        return (source.sum(attrs.dims, keepdim=attrs.keepdim) if attrs.dims else source,)
    return _program(call)[: len(call.node.outputs)]


def _along(call: Call) -> Made:
    if call.node.meaning is None and isinstance(call.node.attrs, DimAttrs) and has(call.node, Trait.LINEAR):
        return (call.inputs[0].cumsum(call.node.attrs.dim),)
    return _program(call)[: len(call.node.outputs)]


def _parts(call: Call) -> Made:
    """As recorded; a norm over samples of which a rank has some is another than over all, and is not compared."""
    attrs = call.node.attrs
    if isinstance(attrs, ChannelNormAttrs) and not attrs.given:
        x = has(call.node, Trait.BACKWARD)
        kept = set(attrs.letters[0]).intersection(*(w for w in attrs.letters if 0 < len(w) < len(attrs.letters[0])))
        if any(call.shares(int(x), d) > 1 for d, c in enumerate(attrs.letters[0]) if c not in kept):
            raise NotComputedError("statistics of a replica's own samples, which are not those of all")
    return _program(call)[: len(call.node.outputs)]


def _gather(call: Call) -> Made:
    """Lookups as recorded; a repetition by sizes of the whole repeats as often as a rank's part asks for."""
    name = call.node.meaning.steps[0].operator if call.node.meaning is not None else ""
    if name.startswith(("aten.repeat", "aten.tile")) and "interleave" not in name:
        source, dims = call.inputs[0], call.dims[0]
        shape = (1,) * (len(dims) - source.dim()) + tuple(source.shape)
        return (source.repeat([d // s for d, s in zip(dims, shape, strict=True)]),)
    return _program(call)


REFERENCES: Mapping[str, Reference] = {
    "elementwise": _program, "cast": _cast, "identity": _same, "accumulate": _same, "copy": _copy,
    "reshape": _reshape, "permute": _permute, "expand": _expand, "slice": _slice, "pad": _pad, "concat": _concat,
    "matmul": _matmul, "reduce": _reduce, **dict.fromkeys(ALONG_DIM, _along), "gather": _gather,
    "scatter": _program, "window": _parts, "window_bwd": _parts, "channel_norm": _parts, "channel_norm_bwd": _parts,
}  # fmt: skip
