"""What each operator of ONNX is in the IR: one table for the standard, one for com.microsoft."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import onnx

from . import (
    rules_attention,
    rules_contrib,
    rules_data,
    rules_dynamic,
    rules_images,
    rules_pointwise,
    rules_products,
    rules_quantised,
    rules_recurrent,
    rules_rows,
    rules_samples,
    rules_sequences,
    rules_views,
)
from .call import Call, Rule, numel
from .items import Item, constant


def _shape(call: Call) -> tuple[Item]:
    return (constant(list(call.dims(0))),)


def _size(call: Call) -> tuple[Item]:
    return (constant([numel(call.dims(0))]),)


STANDARD: Mapping[str, Rule] = MappingProxyType(
    {
        **rules_views.RULES,
        **rules_pointwise.RULES,
        **rules_rows.RULES,
        **rules_products.RULES,
        **rules_data.RULES,
        **rules_images.RULES,
        **rules_quantised.RULES,
        **rules_attention.RULES,
        **rules_recurrent.RULES,
        **rules_dynamic.RULES,
        **rules_samples.RULES,
        **rules_sequences.RULES,
        "Shape": _shape,
        "Size": _size,
    }
)
CONTRIB: Mapping[str, Rule] = MappingProxyType(dict(rules_contrib.RULES))


def takes_sequences(node: onnx.NodeProto) -> bool:
    """Whether an operator takes sequences of tensors."""
    return node.op_type in rules_sequences.TAKE_SEQUENCES
