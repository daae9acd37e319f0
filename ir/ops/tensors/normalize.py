"""Norms, softmax, reductions, top-k and the loss."""

from __future__ import annotations

from collections.abc import Iterator

from ...records import dataclass
from ...sizes.expr import Dim, as_expr
from ...types import TensorType
from ..base import Attrs, OpCall, OpClass, OpDef, ShardChoice, Work, first_dims, makes, no_check, same_dims, traffic
from ..index_map import IndexMap, Tensor, lacking, numbered, tensor
from ..traits import Trait


@dataclass(frozen=True, slots=True)
class NormAttrs(Attrs):
    """`kind` is rms or layer; the last dim is normalised."""

    kind: str


@dataclass(frozen=True, slots=True)
class DimAttrs(Attrs):
    """`dim` is the dim along which the op runs; `across` says that ranks that cut it exchange its maxima and sums."""

    dim: int
    across: bool = False


@dataclass(frozen=True, slots=True)
class ReduceAttrs(Attrs):
    """`fn` is sum, mean, max, ...; `dims` are removed, or kept with size 1."""

    fn: str
    dims: tuple[int, ...]
    keepdim: bool = False


_NORM_FLOPS = {"rms": 4, "layer": 7}


@makes(first_dims)
def _check_first(call: OpCall) -> Iterator[str]:
    yield from same_dims(call.outputs[0].dims, call.inputs[0].dims, "result")


@makes(first_dims)
def _check_alike(call: OpCall) -> Iterator[str]:
    for output in call.outputs:
        yield from same_dims(output.dims, call.inputs[0].dims, "result")


def _work_norm(call: OpCall) -> Work:
    return traffic(call, call.inputs[0].numel * _NORM_FLOPS[call.attrs_as(NormAttrs).kind])


def _work_norm_bwd(call: OpCall) -> Work:
    return traffic(call, call.inputs[0].numel * 2 * _NORM_FLOPS[call.attrs_as(NormAttrs).kind])


def _work_softmax(call: OpCall) -> Work:
    return traffic(call, call.inputs[0].numel * 5)


def _work_softmax_bwd(call: OpCall) -> Work:
    return traffic(call, call.inputs[0].numel * 4)


def _reduced(call: OpCall) -> tuple[Dim, ...]:
    attrs, dims = call.attrs_as(ReduceAttrs), call.inputs[0].dims
    return tuple(1 if i in attrs.dims else d for i, d in enumerate(dims) if i not in attrs.dims or attrs.keepdim)


@makes(_reduced)
def _check_reduce(call: OpCall) -> Iterator[str]:
    attrs, t = call.attrs_as(ReduceAttrs), call.inputs[0]
    if not all(0 <= d < t.rank for d in attrs.dims):
        yield f"dims {attrs.dims} are not all dims of {t}"
    yield from same_dims(call.outputs[0].dims, _reduced(call), f"{attrs.fn} over dims {attrs.dims} of {t}")


def _work_reduce(call: OpCall) -> Work:
    return traffic(call, call.inputs[0].numel)


def _work_loss(call: OpCall) -> Work:
    """About 6 FLOPs a logit (maximum, exponential, sum); one pass over the logits."""
    return traffic(call, call.inputs[0].numel * 6)


@makes(lambda call: ())
def _check_loss(call: OpCall) -> Iterator[str]:
    yield from same_dims(call.inputs[1].dims, call.inputs[0].dims[:-1], "targets")
    yield from same_dims(
        tuple(as_expr(d) for d in call.outputs[1].dims),
        (*(as_expr(d) for d in call.inputs[0].dims[:-1]), as_expr(3)),
        "statistics",
    )


def _work_loss_bwd(call: OpCall) -> Work:
    return traffic(call, call.inputs[1].numel * 2)


@makes(lambda call: call.inputs[1].dims)
def _check_loss_bwd(call: OpCall) -> Iterator[str]:
    yield from same_dims(call.outputs[0].dims, call.inputs[1].dims, "gradient of the logits")


def _map_norm(call: OpCall, _axis: str) -> IndexMap:
    """Row by row, of all dims but the last."""
    rows = (*numbered(call.inputs[0].rank - 1), "h!")
    weights = (tensor(rows[-t.rank :]) for t in call.inputs[1:])
    return IndexMap((tensor(rows), *weights), tuple(_rows(t, rows) for t in call.outputs), exact=True)


def _map_norm_bwd(call: OpCall, _axis: str) -> IndexMap:
    """Row by row; gradients of weight and bias are sums over all rows. Linear in dy."""
    factors = [f"d{i}" for i in range(call.inputs[0].rank - 1)]
    rows = (*factors, "h!")
    outputs = tuple(tensor(rows[-t.rank :]) for t in call.outputs)
    return IndexMap(
        tuple(_rows(t, rows) for t in call.inputs), outputs, lacking(outputs, factors), linear=((0,),), exact=True
    )


def _rows(kind: TensorType, rows: tuple[str | None, ...]) -> Tensor:
    """Return the factors of a weight, which is a row, of rows, or of their statistics: one entry in a row's place."""
    if kind.rank < len(rows):
        return tensor(rows[-kind.rank :])
    return tensor(rows if kind.dims[-1] != 1 else (*rows[:-1], None))


# A running sum, and a gradient in that of the result.
_LINEAR = ("cumsum", "softmax_bwd")


def _map_along(call: OpCall, _axis: str) -> IndexMap:
    """All dims stay but the one that is run along; a running sum and a gradient are linear in the first operand."""
    dim = call.attrs_as(DimAttrs).dim
    size = call.inputs[0].dims[dim]

    def factors(kind: TensorType) -> Tensor:
        return tensor(f"d{i}" if i != dim else "n!" if d == size else None for i, d in enumerate(kind.dims))

    is_linear = call.op in _LINEAR
    return IndexMap(
        tuple(map(factors, call.inputs)), tuple(map(factors, call.outputs)), linear=((0,),) if is_linear else ()
    )


def _map_reduce(call: OpCall, _axis: str) -> IndexMap:
    """Dims stay or go; over one that goes a sum is partial, and so is a mean, which divides by all entries."""
    attrs = call.attrs_as(ReduceAttrs)
    given = numbered(call.inputs[0].rank)
    kept = (None if i in attrs.dims else f for i, f in enumerate(given) if attrs.keepdim or i not in attrs.dims)
    outputs = (tensor(kept),) * len(call.outputs)
    if attrs.fn not in ("sum", "mean"):
        return IndexMap((tensor(given),), outputs)
    sums = tuple((f"d{i}", k) for i in attrs.dims for k in range(len(outputs)))
    return IndexMap((tensor(given),), outputs, sums, linear=((0,),))


def _map_loss(call: OpCall, _axis: str) -> IndexMap:
    """Rows: the mean over all of them is a sum of parts. Vocabulary: statistics are; the loss is made of their sum."""
    rows = numbered(call.inputs[0].rank - 1)
    sums = (*((f, 0) for f in rows if f is not None), ("v", 1))
    return IndexMap(
        (tensor((*rows, "v")), tensor(rows)), ((), tensor((*rows, None))), sums, same=(("v", 0),), exact=True
    )


def _map_loss_bwd(call: OpCall, _axis: str) -> IndexMap:
    """Entry by entry, from statistics of whole rows; linear in the gradient of the loss."""
    rows = numbered(call.inputs[1].rank - 1)
    logits = tensor((*rows, "v"))
    return IndexMap(((), logits, tensor(rows), tensor((*rows, None))), (logits,), linear=((0,),), exact=True)


OPS = (
    OpDef("norm", OpClass.NORM, _work_norm, "rms or layer norm; inputs: x, weight, bias; outputs: y and row statistics",
          _check_first, NormAttrs, min_inputs=1, max_inputs=3, num_outputs=None,
          traits=frozenset({Trait.NORMALISES_ROWS}), index_map=_map_norm,
          shard=ShardChoice(names=(0,))),
    OpDef("norm_bwd", OpClass.NORM, _work_norm_bwd,
          "backward of a norm; inputs: dy, x, row statistics, weight; outputs: dx, dweight, dbias",
          _check_first, NormAttrs, min_inputs=3, max_inputs=6, num_outputs=None,
          traits=frozenset({Trait.NORMALISES_ROWS, Trait.BACKWARD}), index_map=_map_norm_bwd,
          shard=ShardChoice(names=(1,))),
    OpDef("softmax", OpClass.REDUCTION, _work_softmax, "softmax along a dim", _check_alike, DimAttrs, max_inputs=1,
          traits=frozenset({Trait.SOFTMAX}), index_map=_map_along),
    OpDef("softmax_bwd", OpClass.REDUCTION, _work_softmax_bwd, "backward of softmax; inputs: dy, y", _check_alike,
          DimAttrs, min_inputs=2, max_inputs=2, traits=frozenset({Trait.SOFTMAX, Trait.BACKWARD}),
          index_map=_map_along),
    OpDef("reduce", OpClass.REDUCTION, _work_reduce, "sum, mean, max, ... over dims", _check_reduce, ReduceAttrs,
          max_inputs=1, traits=frozenset({Trait.REDUCES}), index_map=_map_reduce,
          shard=ShardChoice(sums="always")),
    OpDef("cumsum", OpClass.REDUCTION, _work_reduce, "running sum along a dim", _check_alike, DimAttrs, max_inputs=1,
          traits=frozenset({Trait.LINEAR}), index_map=_map_along),
    OpDef("topk", OpClass.REDUCTION, _work_softmax, "largest entries along a dim; outputs: values, indices", no_check,
          DimAttrs, max_inputs=1, num_outputs=2, traits=frozenset({Trait.CHOOSES}), index_map=_map_along),
    OpDef("sort", OpClass.REDUCTION, _work_softmax, "sort along a dim; outputs: values, indices", no_check, DimAttrs,
          max_inputs=1, num_outputs=2, index_map=_map_along),
    OpDef("cross_entropy", OpClass.LOSS, _work_loss,
          "mean loss; inputs: logits [.., vocab], targets; outputs: loss, statistics [.., 3] (max, sum, target logit)",
          _check_loss, min_inputs=2, max_inputs=2, num_outputs=2, index_map=_map_loss),
    OpDef("cross_entropy_bwd", OpClass.LOSS, _work_loss_bwd,
          "gradient of the logits; inputs: dloss, logits, targets, statistics", _check_loss_bwd, min_inputs=4,
          max_inputs=4, traits=frozenset({Trait.BACKWARD}), index_map=_map_loss_bwd,
          shard=ShardChoice(names=(1,))),
)  # fmt: skip
# Ops that run along one dim and treat all others alike: sharding rules, laws and references read this.
ALONG_DIM = tuple(op.name for op in OPS if op.attrs is DimAttrs)
