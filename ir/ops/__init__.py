"""The op list: every op with its schema, type rule and work rule."""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from ..errors import UnknownNameError, UsageError
from ..graph import Node, Region
from . import collectives, custom, host, optimizer, quantise, unpriced
from .base import OpCall, OpClass, OpDef, Work
from .fused import attention, experts, index_keys, routing, scan
from .index_map import IndexMap
from .tensors import conv, images, layout, lookup, matmul, normalize, pointwise
from .traits import Trait

_FAMILIES = (
    matmul, attention, index_keys, experts, scan, conv, images, routing, pointwise, quantise, normalize, layout, lookup,
    collectives, optimizer, host, custom, unpriced,
)  # fmt: skip
OPS: dict[str, OpDef] = {}
_ANSWERS: dict[str, frozenset[Trait | OpClass]] = {}


def register_op(op: OpDef) -> None:
    """Add an op: rules, laws and proofs follow from its definition; UsageError for a name that is taken."""
    if op.name in OPS:
        raise UsageError(f"op '{op.name}' is there already: {OPS[op.name].doc}; give yours another name")
    OPS[op.name], _ANSWERS[op.name] = op, op.traits | {op.kind}


for _family in _FAMILIES:
    for _op in _family.OPS:
        register_op(_op)


class _Applied(Protocol):
    """What applies an op: a node of a graph, a call, an entry of a program."""

    @property
    def op(self) -> str:
        """The name of the op."""
        ...


def op_def(name: str) -> OpDef:
    """Return an op by name; UnknownNameError names the nearest."""
    try:
        return OPS[name]
    except KeyError:
        raise UnknownNameError.of("op", name, OPS) from None


def has(node: _Applied, *asked: Trait | OpClass, backward: bool | None = None) -> bool:
    """Whether a node's op has one of some traits or classes; `backward` asks for one direction, without it both do.

    >>> gradient = Node("attention_bwd", (0, 1, 2, 3, 4, 5), (6, 7, 8))
    >>> has(gradient, Trait.ATTENDS), has(gradient, Trait.ATTENDS, backward=False)
    (True, False)
    """
    known = _ANSWERS[node.op]
    return not known.isdisjoint(asked) and backward in (None, Trait.BACKWARD in known)


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


# What is worked out of a region reads this, and families of plans share most regions. A large model has a dozen.
@lru_cache(maxsize=512)
def works_of(region: Region) -> tuple[Work, ...]:
    """Return what each node of a region costs, in their order."""
    return tuple(work_of(region, node) for node in region.nodes)


def index_map_of(call: OpCall, axis: str) -> IndexMap | None:
    """Return what the op is along a mesh axis; None for what moves data between ranks, or is not known."""
    return _index_map(call, axis if op_def(call.op).by_axis else "")


def complaints_of(region: Region, node: Node) -> tuple[str, ...]:
    """Return what is wrong with the node's call, nothing when it keeps the op's type rule."""
    return _complaints(call_of(region, node))


# Passes leave most calls as they are, and families of plans share theirs: each is looked at once. A graph has hundreds.
@lru_cache(maxsize=8192)
def _work(call: OpCall) -> Work:
    return op_def(call.op).work(call)


# Laws and proofs ask for a call along one axis after another.
@lru_cache(maxsize=8192)
def _index_map(call: OpCall, axis: str) -> IndexMap | None:
    rule = op_def(call.op).index_map
    return rule(call, axis) if rule is not None else None


@lru_cache(maxsize=8192)
def _complaints(call: OpCall) -> tuple[str, ...]:
    return tuple(op_def(call.op).complaints(call))


__all__ = [
    "OPS",
    "IndexMap",
    "OpCall",
    "OpClass",
    "OpDef",
    "Trait",
    "Work",
    "call_of",
    "complaints_of",
    "has",
    "index_map_of",
    "op_def",
    "register_op",
    "work_of",
    "works_of",
]
