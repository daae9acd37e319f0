"""In which type the products of a node run, and in which type their weights, or keys and values, are read."""

from __future__ import annotations

from ...ir.graph import Node, Region
from ...ir.ops.fused.experts import ExpertsAttrs
from ...ir.types import DType

# The first of the weights of a bank, and of the keys that attention reads, among the inputs.
_SECOND = {"experts": 3, "expert_bank": 1, "attention": 1, "matmul": 1, "grouped_matmul": 1}


def operand_types(region: Region, node: Node) -> tuple[DType, DType]:
    """Return the type that is multiplied and that of the second operand; of other ops that of the first input twice.

    What is multiplied is what rows of activations and queries are in: weights in fewer bits are widened on their way
    to the matrix units.
    """
    source = node.inputs[0] if node.inputs else node.outputs[0]
    first = region.by_id[source].type.dtype
    place = _SECOND.get(node.op)
    if place is None:
        return first, first
    if isinstance(node.attrs, ExpertsAttrs) and node.attrs.products:
        first = DType(node.attrs.products)
    second = region.by_id[node.inputs[place]].type.dtype
    return first, second
