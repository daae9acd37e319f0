"""What each operator of ONNX is in the IR: one table for the standard, one for com.microsoft."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import onnx

from ..call import Call, Rule, numel
from ..shapes.items import Item, constant
from . import attention, contrib, data, images, pointwise, products, rows, samples, views


def _shape(call: Call) -> tuple[Item]:
    dims = call.dims(0)
    return (constant(list(dims[call.int_("start", 0) : call.int_("end", len(dims))])),)


def _size(call: Call) -> tuple[Item]:
    return (constant(np.array(numel(call.dims(0)), dtype=object)),)


STANDARD: Mapping[str, Rule] = MappingProxyType(
    {
        **views.RULES,
        **pointwise.RULES,
        **rows.RULES,
        **products.RULES,
        **data.RULES,
        **images.RULES,
        **attention.RULES,
        **samples.RULES,
        "Shape": _shape,
        "Size": _size,
    }
)
CONTRIB: Mapping[str, Rule] = MappingProxyType(dict(contrib.RULES))


def takes_sequences(node: onnx.NodeProto) -> bool:
    """Whether an operator takes sequences of tensors."""
    return node.op_type in data.TAKE_SEQUENCES
