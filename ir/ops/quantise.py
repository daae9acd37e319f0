"""Tensors to low precision with scales, in rows, in columns, or both in one go."""

from __future__ import annotations

from collections.abc import Iterator

from ..records import dataclass
from ..sizes.expr import total
from .base import Attrs, OpCall, OpClass, OpDef, Work, same_dims
from .index_map import IndexMap, numbered, tensor
from .traits import Trait

# Absolute value, maximum, multiplication, rounding: an element of each copy.
FLOPS_PER_ELEMENT = 4


@dataclass(frozen=True, slots=True)
class QuantiseAttrs(Attrs):
    """`reads` is how often the tensor passes through memory: twice where its maximum must be known first.

    `frees` says that of a weight the copies are kept alone: what is cast is a buffer that is there for something else.
    `columns` says that of the shard of a weight the copy in columns is made, where none is made of the one in rows.
    """

    reads: int = 1
    frees: bool = False
    columns: bool = False


def _check(call: OpCall) -> Iterator[str]:
    reads = call.attrs_as(QuantiseAttrs).reads
    if not 1 <= reads <= 3:
        yield f"reads is {reads}, not 1 to 3"
    if len(call.outputs) > 2:
        yield f"makes a copy in rows, one in columns, or both, has {len(call.outputs)} results"
    for out in call.outputs:
        yield from same_dims(out.dims, call.inputs[0].dims, "copy and tensor")


def _work(call: OpCall) -> Work:
    """Bytes read as often as the tensor passes, copies with their scales written once."""
    reads = call.attrs_as(QuantiseAttrs).reads
    return Work(
        vector_flops=call.inputs[0].numel * (FLOPS_PER_ELEMENT * len(call.outputs)),
        read_bytes=call.inputs[0].num_bytes * reads,
        write_bytes=total(t.num_bytes for t in call.outputs),
    )


def _index_map(call: OpCall, _axis: str) -> IndexMap:
    """Entry by entry, with a scale for those beside it; rounding is not linear."""
    alike = tensor(numbered(call.inputs[0].rank))
    return IndexMap((alike,), (alike,) * len(call.outputs))


OPS = (
    OpDef(
        "quantise",
        OpClass.ELEMENTWISE,
        _work,
        "a tensor in low precision with scales: in rows, in columns, or both",
        _check,
        QuantiseAttrs,
        max_inputs=1,
        num_outputs=None,
        traits=frozenset({Trait.SAME_VALUES, Trait.QUANTISES}),
        index_map=_index_map,
    ),
)
