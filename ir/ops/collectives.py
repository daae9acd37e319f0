"""Communication between the ranks of a mesh axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..expr import Expr, as_expr, total
from .base import Attrs, OpCall, OpClass, OpDef, free, no_check


@dataclass(frozen=True, slots=True)
class CollectiveAttrs(Attrs):
    """The mesh axis, the tensor dim that is gathered or scattered (-1: none), and why it was inserted."""

    axis: str
    dim: int = -1
    why: str = ""


def message_bytes(call: OpCall) -> Expr:
    """Return S, the bytes of the full logical vector.

    All-reduce: what each rank holds; all-gather: the gathered result; reduce-scatter and all-to-all: what each rank
    puts in; send, recv, broadcast: the message.
    """
    tensors = call.outputs if call.op == "all_gather" else call.inputs
    return total(t.num_bytes for t in tensors)


def _check_scaled(call: OpCall) -> Iterator[str]:
    attrs = call.attrs_as(CollectiveAttrs)
    if not call.inputs or attrs.dim >= call.inputs[0].rank:
        yield f"dim {attrs.dim} is not a dim of the input"
        return
    small, large = (call.inputs, call.outputs) if call.op == "all_gather" else (call.outputs, call.inputs)
    for a, b in zip(small, large, strict=True):
        ratio = as_expr(b.dims[attrs.dim]) / as_expr(a.dims[attrs.dim])
        if len(ratio.terms) != 1:
            yield f"{a} is not a shard of {b} along dim {attrs.dim}"


OPS = (
    OpDef("all_reduce", OpClass.COMMUNICATION, free, "sum over the axis, result everywhere", no_check,
          CollectiveAttrs, num_outputs=None),
    OpDef("all_gather", OpClass.COMMUNICATION, free, "shards joined along a dim, everywhere", _check_scaled,
          CollectiveAttrs, num_outputs=None),
    OpDef("reduce_scatter", OpClass.COMMUNICATION, free, "sum over the axis, each rank keeps its shard",
          _check_scaled, CollectiveAttrs, num_outputs=None),
    OpDef("all_to_all", OpClass.COMMUNICATION, free, "exchange of shards: another dim becomes the sharded one",
          no_check, CollectiveAttrs, num_outputs=None),
    OpDef("broadcast", OpClass.COMMUNICATION, free, "one rank's tensor to all", no_check, CollectiveAttrs),
    OpDef("send", OpClass.COMMUNICATION, free, "to the next rank of the axis", no_check, CollectiveAttrs),
    OpDef("recv", OpClass.COMMUNICATION, free, "from the previous rank of the axis", no_check, CollectiveAttrs),
)  # fmt: skip
