"""ONNX models with wrong parts: nodes, names, attributes, tensors, shapes, versions, or bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import onnx

from .mutate import times
from .seeds import ROOT

_OPS = (
    "If", "Loop", "Scan", "Einsum", "Reshape", "x", "", "Attention", "MatMul", "Concat", "Slice", "Gather", "Range",
    "ConstantOfShape", "Tile", "Expand", "Resize", "Identity", "GroupQueryAttention", "Constant",
)  # fmt: skip
# Operators that may stand for one another.
_ALIKE = (
    ("Add", "Mul", "Sub", "Div", "Max", "Min"), ("Sigmoid", "Tanh", "Relu", "Erf", "Exp", "Neg", "Sqrt", "Softplus"),
    ("ReduceMean", "ReduceSum", "ReduceMax"), ("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"),
    ("Cos", "Sin"), ("And", "Or"),
)  # fmt: skip
_PLACES = ("../../../../etc/passwd", "/etc/passwd", "/dev/zero", "nowhere", "", "\x00", ".")


@cache
def _seeds() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted((ROOT / "tests" / "data" / "onnx").glob("*.onnx")))


def mutated(rng: random.Random, flipped: Callable[[random.Random, bytes], bytes]) -> bytes:
    """Return a model with one to three parts that are others or wrong, or some wrong bytes."""
    kind = rng.random()
    if kind < 0.2:
        return flipped(rng, rng.choice(_seeds()))
    model = onnx.load_from_string(rng.choice(_seeds()))
    for _ in range(times(rng, [1, 1, 2, 3])):
        if model.graph.node:
            rng.choice(_OTHERS if kind < 0.65 else _CHANGES)(rng, model)
    return bytes(model.SerializeToString())


def _operator(rng: random.Random, model: onnx.ModelProto) -> None:
    """Take another operator of as many inputs."""
    nodes = [(node, alike) for node in model.graph.node for alike in _ALIKE if node.op_type in alike]
    if nodes:
        node, alike = rng.choice(nodes)
        node.op_type = rng.choice(alike)


def _cut(rng: random.Random, model: onnx.ModelProto) -> None:
    """End the graph at some node."""
    nodes = model.graph.node
    at = rng.randrange(len(nodes) // 2, len(nodes))
    del nodes[at + 1 :]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in nodes[at].output if name)


def _rename(rng: random.Random, model: onnx.ModelProto) -> None:
    """Name a value otherwise, wherever it stands."""
    old = rng.choice([name for node in model.graph.node for name in node.output if name])
    for node in model.graph.node:
        for names in (node.input, node.output):
            for at, name in enumerate(names):
                names[at] = f"{old}.x" if name == old else name
    for value in (*model.graph.output, *model.graph.value_info):
        value.name = f"{old}.x" if value.name == old else value.name


def _size(rng: random.Random, model: onnx.ModelProto) -> None:
    """Give a size of an input that is open."""
    dims = [dim for value in model.graph.input for dim in value.type.tensor_type.shape.dim if dim.dim_param]
    if dims:
        rng.choice(dims).dim_value = rng.choice([1, 2, 16, 128])


def _double(rng: random.Random, model: onnx.ModelProto) -> None:
    """Compute something twice, and hand it out."""
    twin = model.graph.node.add()
    twin.CopyFrom(rng.choice(list(model.graph.node)[:-1]))
    for at, name in enumerate(twin.output):
        twin.output[at] = f"{name}.twin"
    model.graph.output.append(onnx.ValueInfoProto(name=twin.output[0]))


def _node(rng: random.Random, model: onnx.ModelProto) -> None:
    nodes = model.graph.node
    kind = rng.randrange(4)
    if kind == 0:
        del nodes[rng.randrange(len(nodes))]
    elif kind == 1:
        nodes.insert(rng.randrange(len(nodes)), rng.choice(nodes))
    elif kind == 2:
        rng.choice(nodes).op_type = rng.choice(_OPS)
    else:
        rng.choice(nodes).domain = rng.choice(["com.microsoft", "x", "ai.onnx.ml", "\x1b[31m"])


def _name(rng: random.Random, model: onnx.ModelProto) -> None:
    nodes = model.graph.node
    names = ["", "x", *rng.choice(nodes).output, *[tensor.name for tensor in model.graph.initializer][:5]]
    node = rng.choice(nodes)
    if node.input and rng.random() < 0.6:
        node.input[rng.randrange(len(node.input))] = rng.choice(names)
    elif node.output:
        node.output[0] = rng.choice(names)


def _attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    given = [attribute for node in model.graph.node for attribute in node.attribute]
    if not given:
        return
    attribute, kind = rng.choice(given), rng.randrange(3)
    if kind == 0:
        attribute.i = rng.choice([0, -1, 10**9, -(2**63), 2**63 - 1, 7])
    elif kind == 1:
        del attribute.ints[:]
        attribute.ints.extend(rng.choices([0, -1, 1, 2, 10**9, -(2**40)], k=rng.randrange(6)))
    else:
        kind_of = onnx.AttributeProto.AttributeType.ValueType(rng.randrange(15))
        attribute.type = kind_of  # pyright: ignore[reportAttributeAccessIssue]


def _tensor(rng: random.Random, model: onnx.ModelProto) -> None:
    if not model.graph.initializer:
        return
    tensor, kind = rng.choice(model.graph.initializer), rng.randrange(3)
    if kind == 0:
        del tensor.dims[:]
        tensor.dims.extend(rng.choices([0, -1, 1, 2, 64, 2**31, 2**62, 10**12], k=rng.randrange(5)))
    elif kind == 1:
        tensor.data_type = rng.randrange(30)
    else:
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.ClearField("raw_data")
        for key, value in (("location", rng.choice(_PLACES)), ("length", rng.choice(["-1", "9" * 14, "x"]))):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, value


def _shape(rng: random.Random, model: onnx.ModelProto) -> None:
    given = rng.choice(model.graph.input) if model.graph.input else None
    if given is not None and given.type.tensor_type.shape.dim:
        rng.choice(given.type.tensor_type.shape.dim).dim_value = rng.choice([0, -1, 2**62, 1])


def _version(rng: random.Random, model: onnx.ModelProto) -> None:
    if model.opset_import:
        model.opset_import[0].version = rng.choice([0, -1, 1, 5, 999])


_OTHERS = (_operator, _operator, _cut, _rename, _size, _double)
_CHANGES = (_node, _node, _name, _name, _attribute, _attribute, _tensor, _shape, _version)
