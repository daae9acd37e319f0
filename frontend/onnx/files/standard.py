"""Operators that the standard itself writes as functions of simpler ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol, cast

import onnx
from onnx import TensorProto, TypeProto, defs

from ....ir.errors import UnsupportedOpError
from ....ir.types import DType
from ..call import Call
from ..shapes.items import DTYPES, Item
from .lifting import CONVERTER_ERRORS


class _Schema(Protocol):
    """What onnx says of an operator; its own stubs leave some of that out."""

    has_function: bool
    has_context_dependent_function: bool
    function_opset_versions: list[int]
    context_dependent_function_opset_versions: list[int]
    since_version: int
    attributes: Mapping[str, defs.OpSchema.Attribute]

    def get_function_with_opset_version(self, version: int, /) -> bytes:
        """Return the body written for a version."""
        ...

    def get_context_dependent_function_with_opset_version(
        self, version: int, node: bytes, inputs: list[bytes], /
    ) -> bytes:
        """Return the body for a node with inputs of given types."""
        ...


_STANDARD = ("", "ai.onnx")
# An element type of ONNX for each of ours; of several that we do not tell apart the first.
_ELEMENTS: dict[DType, int] = {}
for _element, _dtype in DTYPES.items():
    _ELEMENTS.setdefault(_dtype, _element)


def has_body(node: onnx.NodeProto, opset: int) -> bool:
    """Whether the standard says what simpler operators a node stands for."""
    schema = _schema(node, opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def body_of(call: Call) -> tuple[onnx.FunctionProto, int]:
    """Return the function that a call stands for, and the version of the operators in it."""
    schema = _schema(call.node, call.opset)
    assert schema is not None
    versions = sorted(schema.function_opset_versions or schema.context_dependent_function_opset_versions)
    fitting = [v for v in versions if v <= max(call.opset, schema.since_version)]
    version = fitting[-1] if fitting else versions[0]
    function = onnx.FunctionProto()
    if schema.function_opset_versions:
        function.ParseFromString(schema.get_function_with_opset_version(version))
    else:
        kinds = [_type(item).SerializeToString() for item in call.inputs]
        try:
            text = schema.get_context_dependent_function_with_opset_version(
                version, call.node.SerializeToString(), kinds
            )
        except CONVERTER_ERRORS as error:
            raise UnsupportedOpError(f"no function for these inputs: {error}") from error
        function.ParseFromString(text)
    if not function.node:
        raise UnsupportedOpError("the standard has no function for these inputs")
    return function, version


def with_defaults(call: Call) -> Call:
    """Return a call with the attributes that the standard fills in where they are left out."""
    schema = _schema(call.node, call.opset)
    assert schema is not None
    filled = {n: a.default_value for n, a in schema.attributes.items() if a.default_value.type}
    return replace(call, attributes={**filled, **call.attributes})


def _schema(node: onnx.NodeProto, opset: int) -> _Schema | None:
    domain = "" if node.domain in _STANDARD else node.domain
    try:
        found = defs.get_schema(node.op_type, opset, domain) if not domain else defs.get_schema(node.op_type, domain)
        return cast(_Schema, found)
    except defs.SchemaError:
        return None


def _type(item: Item | None) -> TypeProto:
    """Return the type of an input as ONNX writes it; an open dim has its expression as name."""
    made = TypeProto()
    if item is None:
        return made
    made.tensor_type.elem_type = _ELEMENTS.get(item.type.dtype, TensorProto.FLOAT)
    made.tensor_type.shape.SetInParent()
    for d in item.dims:
        dim = made.tensor_type.shape.dim.add()
        if isinstance(d, int):
            dim.dim_value = d
        else:
            dim.dim_param = str(d)
    return made
