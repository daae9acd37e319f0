"""The node that a graph holds for each kind of kernel: from it come the bytes that models count."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ....ir.graph import Attrs
from ....ir.ops import OpCall
from ....ir.ops.tensors.normalize import DimAttrs, NormAttrs, ReduceAttrs
from ....ir.ops.tensors.pointwise import ElementwiseAttrs
from ....ir.types import DType, TensorType
from .ground import HEAD_DIM, VOCABULARY, Ground

Node: TypeAlias = Callable[[Ground], OpCall]


def pointwise(fn: str, num_inputs: int) -> Node:
    """Return a pointwise function of tensors alike."""

    def call(at: Ground) -> OpCall:
        t = at.kind(at.rows, at.cols)
        return OpCall("elementwise", ElementwiseAttrs((fn,)), (t,) * num_inputs, (t,))

    return call


def norm(kind: str) -> tuple[Node, Node]:
    """Return the forward and backward of a norm of a kind."""
    num_stats = 1 if kind == "rms" else 2

    def parts(at: Ground) -> tuple[TensorType, tuple[TensorType, ...], tuple[TensorType, ...]]:
        weights = (at.kind(at.cols),) * num_stats
        return at.kind(at.rows, at.cols), weights, (at.kind(at.rows, 1, dtype=DType.FP32),) * num_stats

    def forward(at: Ground) -> OpCall:
        x, weights, stats = parts(at)
        return OpCall("norm", NormAttrs(kind), (x, *weights), (x, *stats))

    def backward(at: Ground) -> OpCall:
        x, weights, stats = parts(at)
        return OpCall("norm_bwd", NormAttrs(kind), (x, x, *stats, weights[0]), (x, *weights))

    return forward, backward


def rope(op: str) -> Node:
    """Return a rotary embedding, or its backward."""

    def call(at: Ground) -> OpCall:
        x, table = at.kind(1, at.cols // HEAD_DIM, at.rows, HEAD_DIM), at.kind(1, 1, at.rows, HEAD_DIM)
        return OpCall(op, Attrs(), (x, table, table), (x,))

    return call


def embedding(at: Ground) -> OpCall:
    """A lookup."""
    ids, table = at.kind(at.rows, dtype=DType.INT64), at.kind(VOCABULARY, at.cols)
    return OpCall("embedding", Attrs(), (ids, table), (at.kind(at.rows, at.cols),))


def embedding_bwd(at: Ground) -> OpCall:
    """The gradient of a lookup's table."""
    ids, table = at.kind(at.rows, dtype=DType.INT64), at.kind(VOCABULARY, at.cols)
    return OpCall("embedding_bwd", Attrs(), (at.kind(at.rows, at.cols), ids), (table,))


def softmax(op: str, num_inputs: int) -> Node:
    """Return a softmax, or its backward."""

    def call(at: Ground) -> OpCall:
        t = at.kind(at.rows, at.cols)
        return OpCall(op, DimAttrs(1), (t,) * num_inputs, (t,))

    return call


def loss(at: Ground) -> OpCall:
    """The loss."""
    logits, labels = at.kind(at.rows, at.cols), at.kind(at.rows, dtype=DType.INT64)
    stats = at.kind(at.rows, 3, dtype=DType.FP32)
    return OpCall("cross_entropy", Attrs(), (logits, labels), (at.kind(dtype=DType.FP32), stats))


def loss_bwd(at: Ground) -> OpCall:
    """The gradient of the logits."""
    logits, labels = at.kind(at.rows, at.cols), at.kind(at.rows, dtype=DType.INT64)
    stats = at.kind(at.rows, 3, dtype=DType.FP32)
    return OpCall("cross_entropy_bwd", Attrs(), (at.kind(dtype=DType.FP32), logits, labels, stats), (logits,))


def reduce(at: Ground) -> OpCall:
    """A sum over rows."""
    return OpCall("reduce", ReduceAttrs("sum", (0,)), (at.kind(at.rows, at.cols),), (at.kind(at.cols),))


def copy(at: Ground) -> OpCall:
    """A copy."""
    t = at.kind(at.rows, at.cols)
    return OpCall("copy", Attrs(), (t,), (t,))
