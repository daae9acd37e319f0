"""Local functions of a model, written out where they are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from ....ir.errors import NotUnderstoodError
from ..call import Call
from ..shapes.items import Item
from ..translate import Names, Translation


def inlined(translation: Translation, function: onnx.FunctionProto, call: Call) -> Sequence[Item | None]:
    """Write the body of a function for one call and return its outputs."""
    if len(call.inputs) > len(function.input):
        raise NotUnderstoodError(f"function '{function.name}' takes {len(function.input)} inputs")
    names = Names(dict.fromkeys(function.input))
    names.items.update(zip(function.input, call.inputs, strict=False))
    given = {a.name: a for a in function.attribute_proto} | dict(call.attributes)
    nodes = [_filled(node, given) for node in function.node]
    translation.deeper().run(nodes, names, {}, call.origin.scope)
    wanted = len(call.node.output)
    return [names.find(name) if k < wanted and call.node.output[k] else None for k, name in enumerate(function.output)]


def _filled(node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """Put the caller's attributes in for those that refer to them; one that nobody gives is left out."""
    if not any(a.ref_attr_name for a in node.attribute):
        return node
    made = onnx.NodeProto()
    made.CopyFrom(node)
    del made.attribute[:]
    for attribute in node.attribute:
        source = given.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if source is not None:
            copy = made.attribute.add()
            copy.CopyFrom(source)
            copy.name = attribute.name
    return made
