"""A compiled graph as an ONNX file for viewers: a node each, with what it costs as its metadata.

Operators are those of the graph, in the domain `slipstick`, so that no runtime can run the file; Netron and the `onnx`
package show it. Metadata are `metadata_props` of nodes (ONNX IR 10): module, phase, runs, time, bound, FLOPs, bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path

from onnx import AttributeProto, ModelProto, NodeProto, ValueInfoProto, helper

from ...driver.estimate import Estimate
from ...frontend.onnx.shapes.items import ELEMENTS as ONNX_ELEMENTS
from ...ir.graph import Attrs, Node, Region
from ...ir.sizes.expr import Expr
from ...ir.text.files import write_atomically
from ...ir.types import DType
from .costed import CostedNode, costed_rows
from .nodes import shown

DOMAIN = "slipstick"
# The IR of ONNX that has metadata of nodes, and the opset of its time.
_IR, _OPSET = 10, 22
# Element types with scales, and TF32, are there what they rest as.
_AT_REST = {
    DType.TF32: DType.FP32,
    DType.FP8_ROW: DType.FP8,
    DType.FP8_BLOCK: DType.FP8,
    DType.FP8_TILE: DType.FP8,
    DType.MXFP8: DType.FP8,
    DType.NVFP4: DType.FP4,
    DType.MXFP4: DType.FP4,
    DType.INT4_GROUP: DType.INT4,
}
ELEMENTS: Mapping[DType, int] = ONNX_ELEMENTS | {dtype: ONNX_ELEMENTS[rest] for dtype, rest in _AT_REST.items()}


def onnx_graph(answer: Estimate) -> ModelProto:
    """Return the graph after the passes: regions one after the other, each once, with how often it runs as metadata.

    Sizes are those of the plan where it says them; a size that stays open has its expression as name.
    """
    graph = answer.table.lowered.graph
    rows = {row.node: row for row in costed_rows(answer)}
    env = {name: column[0].item() for name, column in answer.table.plans.columns.items()}
    nodes: list[NodeProto] = []
    inputs, outputs, inner = list[ValueInfoProto](), list[ValueInfoProto](), list[ValueInfoProto]()
    for region in graph.regions:
        nodes += [_node(region, node, graph.counts[region.name], rows) for node in region.nodes]
        kept = {port.value for port in region.outputs} | {value for _, value in region.grads}
        for value in region.values:
            sizes, kind = [_size(dim, env) for dim in value.type.dims], ELEMENTS[value.type.dtype]
            info = helper.make_tensor_value_info(_name(region, value.id), kind, sizes, doc_string=value.name)
            made = value.id in region.producer
            (inner if made and value.id not in kept else outputs if made else inputs).append(info)
    made_graph = helper.make_graph(nodes, graph.name, inputs, outputs, value_info=inner)
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(made_graph, opset_imports=opsets, producer_name=DOMAIN, ir_version=_IR)
    helper.set_model_props(model, {"step_time_us": repr(float(answer.metrics["step_time_s"]) * 1e6)})
    return model


def _node(region: Region, node: Node, count: int, rows: Mapping[str, CostedNode]) -> NodeProto:
    name = f"{region.name}/%{node.key}"
    made = NodeProto(
        op_type=node.op,
        domain=DOMAIN,
        name=name,
        input=[_name(region, value) for value in node.inputs],
        output=[_name(region, value) for value in node.outputs],
        attribute=list(_attributes(node.attrs)),
    )
    said = {"namespace": node.scope, "region": region.name, "region_runs": str(count)} | dict(
        shown(node, rows.get(name))
    )
    for key, text in said.items():
        made.metadata_props.add(key=key, value=text)
    return made


def _name(region: Region, value: int) -> str:
    return f"{region.name}/{value}"


def _attributes(attrs: Attrs) -> Iterator[AttributeProto]:
    """Yield the options of an op that ONNX can hold; a size that is open as its text."""
    for field in fields(attrs):
        value = getattr(attrs, field.name)
        if isinstance(value, tuple):
            plain = [str(one) if isinstance(one, Expr) else one for one in value]
            alike = len({type(one) for one in plain}) == 1
            if plain:
                yield helper.make_attribute(field.name, plain if alike else [str(one) for one in plain])
        elif value is not None:
            yield helper.make_attribute(field.name, value if isinstance(value, bool | int | float) else str(value))


def _size(dim: int | Expr, env: Mapping[str, float]) -> int | str:
    if not isinstance(dim, Expr):
        return dim
    found = dim.evaluate(env) if set(dim.symbols) <= set(env) else None
    return str(dim) if found is None else int(found)


def write_onnx(answer: Estimate, path: Path) -> None:
    """Write the graph after the passes as an ONNX file."""
    write_atomically(path, onnx_graph(answer).SerializeToString())
