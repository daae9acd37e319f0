"""Norms, softmax, reductions, top-k and the loss."""

from __future__ import annotations

from collections.abc import Iterator

from ...records import dataclass
from ...sizes.expr import as_expr
from ..base import Attrs, OpCall, OpClass, OpDef, Work, no_check, same_dims, traffic
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


def _check_first(call: OpCall) -> Iterator[str]:
    yield from same_dims(call.outputs[0].dims, call.inputs[0].dims, "result")


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


def _check_reduce(call: OpCall) -> Iterator[str]:
    attrs, t = call.attrs_as(ReduceAttrs), call.inputs[0]
    if not all(0 <= d < t.rank for d in attrs.dims):
        yield f"dims {attrs.dims} are not all dims of {t}"
    kept = tuple(1 if i in attrs.dims else d for i, d in enumerate(t.dims) if i not in attrs.dims or attrs.keepdim)
    yield from same_dims(call.outputs[0].dims, kept, f"{attrs.fn} over dims {attrs.dims} of {t}")


def _work_reduce(call: OpCall) -> Work:
    return traffic(call, call.inputs[0].numel)


def _work_loss(call: OpCall) -> Work:
    """About 6 FLOPs a logit (maximum, exponential, sum); one pass over the logits."""
    return traffic(call, call.inputs[0].numel * 6)


def _check_loss(call: OpCall) -> Iterator[str]:
    yield from same_dims(call.inputs[1].dims, call.inputs[0].dims[:-1], "targets")
    yield from same_dims(
        tuple(as_expr(d) for d in call.outputs[1].dims),
        (*(as_expr(d) for d in call.inputs[0].dims[:-1]), as_expr(3)),
        "statistics",
    )


def _work_loss_bwd(call: OpCall) -> Work:
    return traffic(call, call.inputs[1].numel * 2)


def _check_loss_bwd(call: OpCall) -> Iterator[str]:
    yield from same_dims(call.outputs[0].dims, call.inputs[1].dims, "gradient of the logits")


OPS = (
    OpDef("norm", OpClass.NORM, _work_norm, "rms or layer norm; inputs: x, weight, bias; outputs: y and row statistics",
          _check_first, NormAttrs, min_inputs=1, max_inputs=3, num_outputs=None,
          traits=frozenset({Trait.NORMALISES_ROWS})),
    OpDef("norm_bwd", OpClass.NORM, _work_norm_bwd,
          "backward of a norm; inputs: dy, x, row statistics, weight; outputs: dx, dweight, dbias",
          _check_first, NormAttrs, min_inputs=3, max_inputs=6, num_outputs=None,
          traits=frozenset({Trait.NORMALISES_ROWS, Trait.BACKWARD})),
    OpDef("softmax", OpClass.REDUCTION, _work_softmax, "softmax along a dim", _check_alike, DimAttrs, max_inputs=1,
          traits=frozenset({Trait.SOFTMAX})),
    OpDef("softmax_bwd", OpClass.REDUCTION, _work_softmax_bwd, "backward of softmax; inputs: dy, y", _check_alike,
          DimAttrs, min_inputs=2, max_inputs=2, traits=frozenset({Trait.SOFTMAX, Trait.BACKWARD})),
    OpDef("reduce", OpClass.REDUCTION, _work_reduce, "sum, mean, max, ... over dims", _check_reduce, ReduceAttrs,
          max_inputs=1, traits=frozenset({Trait.REDUCES})),
    OpDef("cumsum", OpClass.REDUCTION, _work_reduce, "running sum along a dim", _check_alike, DimAttrs, max_inputs=1,
          traits=frozenset({Trait.LINEAR})),
    OpDef("topk", OpClass.REDUCTION, _work_softmax, "largest entries along a dim; outputs: values, indices", no_check,
          DimAttrs, max_inputs=1, num_outputs=2, traits=frozenset({Trait.CHOOSES})),
    OpDef("sort", OpClass.REDUCTION, _work_softmax, "sort along a dim; outputs: values, indices", no_check, DimAttrs,
          max_inputs=1, num_outputs=2),
    OpDef("cross_entropy", OpClass.LOSS, _work_loss,
          "mean loss; inputs: logits [.., vocab], targets; outputs: loss, statistics [.., 3] (max, sum, target logit)",
          _check_loss, min_inputs=2, max_inputs=2, num_outputs=2),
    OpDef("cross_entropy_bwd", OpClass.LOSS, _work_loss_bwd,
          "gradient of the logits; inputs: dloss, logits, targets, statistics", _check_loss_bwd, min_inputs=4,
          max_inputs=4, traits=frozenset({Trait.BACKWARD})),
)  # fmt: skip
# Ops that run along one dim and treat all others alike: sharding rules, laws and references read this.
ALONG_DIM = tuple(op.name for op in OPS if op.attrs is DimAttrs)
