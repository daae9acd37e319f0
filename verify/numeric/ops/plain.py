"""References of views, products, pointwise functions, reductions and lookups; recorded calls run again in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ....ir.graph import Node
from ....ir.meaning import Argument, In, OperatorCall, Out
from ....ir.ops import Trait, has
from ....ir.ops.tensors.images import ChannelNormAttrs
from ....ir.ops.tensors.layout import ConcatAttrs, PermuteAttrs, SliceAttrs
from ....ir.ops.tensors.matmul import MatmulAttrs
from ....ir.ops.tensors.normalize import ALONG_DIM, DimAttrs, ReduceAttrs
from ....ir.sizes.expr import Expr
from ....ir.types import DType
from ..call import NotComputedError, RankCall, Reference

_WHOLE = {
    DType.INT64: torch.int64,
    DType.INT32: torch.int64,
    DType.INT16: torch.int64,
    DType.INT8: torch.int64,
    DType.UINT8: torch.int64,
    DType.BOOL: torch.bool,
}
_RANDOM = ("bernoulli", "rand", "randn", "uniform", "normal", "exponential", "native_dropout")


def real_dtype(dtype: DType) -> torch.dtype:
    """Return the type that references compute in for a type of the graph: float64 for all that is floating."""
    return _WHOLE.get(dtype, torch.complex128 if dtype is DType.COMPLEX64 else torch.float64)


def run_program(node: Node, inputs: Sequence[Tensor], sizes: Mapping[str, int]) -> tuple[Tensor, ...]:
    """Run a node's recorded program; `sizes` are the numbers of the symbols that its arguments speak of.

    NotComputedError where the node was not recorded, draws random numbers, or calls an operator of ours.
    """
    meaning = node.meaning
    if meaning is None:
        raise NotComputedError(f"'{node.op}' at '{node.scope or 'the top'}' has no recorded call")
    made: list[object] = []

    def tensor(given: In | Out) -> Tensor:
        found = inputs[given.index] if isinstance(given, In) else made[given.step]
        if isinstance(found, tuple | list) and isinstance(given, Out):
            found = found[given.part]
        if not isinstance(found, Tensor):
            raise NotComputedError(f"'{node.op}' at '{node.scope or 'the top'}' reads what is no tensor")
        return torch.view_as_complex(found.contiguous()) if isinstance(given, In) and given.pairs else found

    def real(given: Argument) -> object:
        if isinstance(given, In | Out):
            return tensor(given)
        if isinstance(given, Expr):
            return int(given.evaluate({k: float(v) for k, v in sizes.items()}))
        if isinstance(given, DType):
            return real_dtype(given)
        return [real(g) for g in given] if isinstance(given, tuple) else given

    for step in meaning.steps:
        made.append(_called(step, {name: real(value) for name, value in step.arguments}))
    found = (tensor(o) for o in meaning.outputs)
    return tuple(torch.view_as_real(f).contiguous() if f.is_complex() else f for f in found)


def _called(step: OperatorCall, arguments: Mapping[str, object]) -> object:
    space, name, *overload = step.operator.split(".")
    plain = name.removesuffix("_") if not name.endswith("__") else name
    if space != "aten":
        raise NotComputedError(f"'{step.operator}' has no reference implementation")
    if plain in _RANDOM and arguments.get("p") != 0.0:
        raise NotComputedError(f"'{step.operator}' draws random numbers")
    packet = getattr(torch.ops.aten, plain if hasattr(torch.ops.aten, plain) else name)
    chosen = overload[0] if overload else "default"
    operator = getattr(packet, chosen if chosen in packet.overloads() else packet.overloads()[0])
    names = {a.name for a in operator._schema.arguments}
    given = {k: v for k, v in arguments.items() if k in names and k not in ("pin_memory", "non_blocking")}
    # Arguments that are required and were not recorded, because they were None.
    for a in operator._schema.arguments:
        if a.name not in given and not a.has_default_value():
            if a.type.kind() != "OptionalType":  # torch would end the process
                raise NotComputedError(f"'{step.operator}' is recorded without its '{a.name}'")
            given[a.name] = None
    result = operator(**given)
    return _widened(result)


def _widened(result: object) -> object:
    """Results of operators that make their own type (a range, a cast) in the type of references."""
    if isinstance(result, tuple | list):
        return tuple(_widened(r) for r in result)
    if not isinstance(result, Tensor):
        return result
    if result.is_floating_point():
        return result.double()
    return result.long() if not result.is_complex() and result.dtype is not torch.bool else result


Made = tuple[Tensor, ...]


def run_recorded(call: RankCall) -> Made:
    """Run what was recorded of a node on what a rank holds, as every op without a reference of its own is run."""
    return run_program(call.node, call.inputs, call.sizes)


def _cast(call: RankCall) -> Made:
    """Rounding is off: a cast between floating types changes nothing."""
    return (call.inputs[0].to(real_dtype(call.results[0].type.dtype)).expand(call.dims[0]),)


def _same(call: RankCall) -> Made:
    return (call.inputs[0],)


def _copy(call: RankCall) -> Made:
    given = call.inputs[0]
    return (given.expand(call.dims[0]).clone() if given.shape != call.dims[0] else given.clone(),)


def _reshape(call: RankCall) -> Made:
    return (call.inputs[0].reshape(call.dims[0]),)


def _permute(call: RankCall) -> Made:
    attrs = call.node.attrs
    assert isinstance(attrs, PermuteAttrs)
    return (call.inputs[0].permute(attrs.dims),)


def _expand(call: RankCall) -> Made:
    return (call.inputs[0].expand(call.dims[0]),)


def _slice(call: RankCall) -> Made:
    attrs = call.node.attrs
    assert isinstance(attrs, SliceAttrs)
    start = call.local(attrs.start)
    if attrs.drop:
        return (call.inputs[0].select(attrs.dim, start),)
    return (call.inputs[0].narrow(attrs.dim, start, call.dims[0][attrs.dim]),)


def _pad(call: RankCall) -> Made:
    attrs, source = call.node.attrs, call.inputs[0]
    assert isinstance(attrs, SliceAttrs)
    made = source.new_zeros(call.dims[0])
    start = call.local(attrs.start)
    if attrs.drop:
        made.select(attrs.dim, start).copy_(source)
    else:
        made.narrow(attrs.dim, start, source.shape[attrs.dim]).copy_(source)
    return (made,)


def _concat(call: RankCall) -> Made:
    attrs = call.node.attrs
    assert isinstance(attrs, ConcatAttrs)
    return (torch.cat(call.inputs, attrs.dim),)


def _matmul(call: RankCall) -> Made:
    """A bias is added in the epilogue: once, where the product is a partial sum."""
    attrs = call.node.attrs
    assert isinstance(attrs, MatmulAttrs)
    if attrs.scales:
        raise NotComputedError("products of scaled operands are not run: references do not round")
    made = torch.einsum(attrs.spec, call.inputs[0].double(), call.inputs[1].double())
    return (made + call.inputs[2] if len(call.inputs) > 2 else made,)


def _reduce(call: RankCall) -> Made:
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
    return run_recorded(call)[: len(call.node.outputs)]


def _along(call: RankCall) -> Made:
    if call.node.meaning is None and isinstance(call.node.attrs, DimAttrs) and has(call.node, Trait.LINEAR):
        return (call.inputs[0].cumsum(call.node.attrs.dim),)
    return run_recorded(call)[: len(call.node.outputs)]


def _parts(call: RankCall) -> Made:
    """As recorded; a norm over samples of which a rank has some is another than over all, and is not compared."""
    attrs = call.node.attrs
    if isinstance(attrs, ChannelNormAttrs) and not attrs.given:
        x = has(call.node, Trait.BACKWARD)
        kept = set(attrs.letters[0]).intersection(*(w for w in attrs.letters if 0 < len(w) < len(attrs.letters[0])))
        if any(call.shares(int(x), d) > 1 for d, c in enumerate(attrs.letters[0]) if c not in kept):
            raise NotComputedError("statistics of a replica's own samples, which are not those of all")
    return run_recorded(call)[: len(call.node.outputs)]


def _gather(call: RankCall) -> Made:
    """Lookups as recorded; a repetition by sizes of the whole repeats as often as a rank's part asks for."""
    name = call.node.meaning.steps[0].operator if call.node.meaning is not None else ""
    if name.startswith(("aten.repeat", "aten.tile")) and "interleave" not in name:
        source, dims = call.inputs[0], call.dims[0]
        shape = (1,) * (len(dims) - source.dim()) + tuple(source.shape)
        return (source.repeat([d // s for d, s in zip(dims, shape, strict=True)]),)
    return run_recorded(call)


REFERENCES: Mapping[str, Reference] = {
    "cast": _cast, "identity": _same, "accumulate": _same, "copy": _copy,
    "reshape": _reshape, "permute": _permute, "expand": _expand, "slice": _slice, "pad": _pad, "concat": _concat,
    "matmul": _matmul, "reduce": _reduce, **dict.fromkeys(ALONG_DIM, _along), "gather": _gather,
    "window": _parts, "window_bwd": _parts, "channel_norm": _parts, "channel_norm_bwd": _parts,
}  # fmt: skip
