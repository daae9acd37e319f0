"""Versions of the standard operators: old ones lifted by onnx's converter, those that are functions of simpler ones.

From version 13 on sizes and axes are inputs; before they are attributes. The converter knows most operators; a file
that it refuses is read as it is, by rules that know the old forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol, cast

import numpy as np
import onnx
from onnx import TensorProto, TypeProto, defs, shape_inference, version_converter

from ...ir.errors import NotUnderstoodError, UnsupportedOpError
from ...ir.types import DType
from .call import Call
from .shapes.items import ELEMENTS, Item, constant

# The version that rules are written for, and older ones that are lifted to it.
LIFTED_TO = 13
_STANDARD = ("", "ai.onnx")
# What onnx's own code raises of files that it does not understand.
CONVERTER_ERRORS = (
    version_converter.ConvertError,
    shape_inference.InferenceError,
    RuntimeError,
    ValueError,
    TypeError,
    IndexError,
)


def opset(model: onnx.ModelProto) -> int:
    """Return the version of the standard operators; NotUnderstoodError for one beyond the newest that is known."""
    newest = int(onnx.defs.onnx_opset_version())
    found: list[int] = [entry.version for entry in model.opset_import if entry.domain in _STANDARD]
    if not found:
        return 1 if model.ir_version < 3 and not model.opset_import else newest
    if not 1 <= found[0] <= newest:
        raise NotUnderstoodError(
            f"opset {found[0]}: 1 to {newest} are understood; onnx.version_converter makes others of it"
        )
    return found[0]


def lifted(model: onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Return the model in a version that rules are written for where onnx's converter makes it so, and what to say.

    Bodies and local functions are not converted by it, so that a model with any is read as it is.
    """
    version = opset(model)
    if version >= LIFTED_TO:
        return model, ()
    if model.functions or any(a.HasField("g") or a.graphs for node in model.graph.node for a in node.attribute):
        return model, (f"opset {version} is read as it is",)
    try:
        made = version_converter.convert_version(model, LIFTED_TO)
    except (*CONVERTER_ERRORS, AttributeError):
        return model, (f"opset {version} is read as it is: onnx's converter does not lift it",)
    if made is None or not made.graph.node:
        return model, (f"opset {version} is read as it is: onnx's converter does not lift it",)
    # Put weights back as they were: the converter forgets where their numbers are.
    before = {t.name: t for t in model.graph.initializer}
    for tensor in made.graph.initializer:
        source = before.get(tensor.name)
        if source is not None and list(source.dims) == list(tensor.dims):
            tensor.CopyFrom(source)
    return made, (f"opset {version} is read as {LIFTED_TO}, lifted by onnx's converter",)


# What old forms keep as an attribute, and which input it has become.
_BECAME_INPUTS: Mapping[str, Mapping[str, int]] = {
    "Reshape": {"shape": 1},
    "Squeeze": {"axes": 1},
    "Unsqueeze": {"axes": 1},
    "ReduceSum": {"axes": 1},
    "Slice": {"starts": 1, "ends": 2, "axes": 3},
    "Pad": {"pads": 1, "paddings": 1},
    "Split": {"split": 1},
    "TopK": {"k": 1},
    "Upsample": {"scales": 1},
    "Expand": {"shape": 1},
    "Tile": {"repeats": 1},
}


def modern(call: Call) -> Call:
    """Return a call with attributes of old forms as the inputs that they have become."""
    places = _BECAME_INPUTS.get(call.op)
    if places is None or call.node.domain not in _STANDARD:
        return call
    inputs = list(call.inputs)
    for name, place in places.items():
        given = call.attributes.get(name)
        if given is None or (place < len(inputs) and inputs[place] is not None):
            continue
        inputs += [None] * (place + 1 - len(inputs))
        inputs[place] = _numbers(given)
    return replace(call, inputs=tuple(inputs))


def _numbers(attribute: onnx.AttributeProto) -> Item:
    if attribute.type == onnx.AttributeProto.FLOATS:
        return constant(np.array(list(attribute.floats), dtype=object), DType.FP32)
    return constant([attribute.i] if attribute.type == onnx.AttributeProto.INT else list(attribute.ints))


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
    made.tensor_type.elem_type = ELEMENTS.get(item.type.dtype, TensorProto.FLOAT)
    made.tensor_type.shape.SetInParent()
    for d in item.dims:
        dim = made.tensor_type.shape.dim.add()
        if isinstance(d, int):
            dim.dim_value = d
        else:
            dim.dim_param = str(d)
    return made
