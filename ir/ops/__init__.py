"""The op list: every op with its schema, type rule and work rule."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from ..errors import UnknownNameError
from ..graph import Node, Region
from . import collectives, custom, host, optimizer, quantise, unpriced
from .base import OpCall, OpClass, OpDef, Work
from .fused import attention, experts, index_keys, routing, scan
from .tensors import conv, images, layout, lookup, matmul, normalize, pointwise

_FAMILIES = (
    matmul, attention, index_keys, experts, scan, conv, images, routing, pointwise, quantise, normalize, layout, lookup,
    collectives, optimizer, host, custom, unpriced,
)  # fmt: skip
OPS: Mapping[str, OpDef] = MappingProxyType({d.name: d for family in _FAMILIES for d in family.OPS})


def op_def(name: str) -> OpDef:
    """Return an op by name; UnknownNameError names the nearest."""
    if name not in OPS:
        raise UnknownNameError.of("op", name, OPS)
    return OPS[name]


def call_of(region: Region, node: Node) -> OpCall:
    """Return the node as an op applied to types."""
    return OpCall(node.op, node.attrs, region.types(node.inputs), region.types(node.outputs))


def work_of(region: Region, node: Node) -> Work:
    """Return what the node costs whatever the machine.

    >>> from slipstick.ir.types import DType, TensorType
    >>> from slipstick.ir.ops.tensors.matmul import MatmulAttrs
    >>> t = lambda *dims: TensorType(dims, DType.BF16)
    >>> call = OpCall("matmul", MatmulAttrs("mk,nk->mn"), (t(2, 3), t(5, 3)), (t(2, 5),))
    >>> op_def("matmul").work(call).tensor_flops
    60
    """
    return _work(call_of(region, node))


def complaints_of(region: Region, node: Node) -> tuple[str, ...]:
    """Return what is wrong with the node's call, nothing when it keeps the op's type rule."""
    return _complaints(call_of(region, node))


# Passes leave most calls as they are, and families of plans share theirs: each is looked at once. A graph has hundreds.
@lru_cache(maxsize=8192)
def _work(call: OpCall) -> Work:
    return op_def(call.op).work(call)


@lru_cache(maxsize=8192)
def _complaints(call: OpCall) -> tuple[str, ...]:
    return tuple(op_def(call.op).complaints(call))


__all__ = ["OPS", "OpCall", "OpClass", "OpDef", "Work", "call_of", "complaints_of", "op_def", "work_of"]
