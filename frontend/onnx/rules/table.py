"""What each operator of ONNX is in the IR: one table for the standard, one for com.microsoft."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import onnx

from ..call import Call, Rule, numel
from ..shapes.items import Item, constant
from . import (
    attention as rules_attention,
)
from . import (
    contrib as rules_contrib,
)
from . import (
    data as rules_data,
)
from . import (
    dynamic as rules_dynamic,
)
from . import (
    images as rules_images,
)
from . import (
    pointwise as rules_pointwise,
)
from . import (
    products as rules_products,
)
from . import (
    quantised as rules_quantised,
)
from . import (
    recurrent as rules_recurrent,
)
from . import (
    rows as rules_rows,
)
from . import (
    samples as rules_samples,
)
from . import (
    sequences as rules_sequences,
)
from . import (
    views as rules_views,
)


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
