"""What tests of ONNX share: a writer of models whose weights are absent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

DATA = Path(__file__).parents[2] / "data" / "onnx"
Shape = Sequence[int | str]
Attribute = int | float | str | Sequence[int] | onnx.GraphProto | onnx.TensorProto


@dataclass
class Writer:
    """A model under construction; names of results are those of `nodes`."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    functions: list[onnx.FunctionProto] = field(default_factory=list)

    def input(self, name: str, dims: Shape, dtype: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, list(dims)))
        return name

    def weight(self, name: str, dims: Sequence[int], dtype: int = TensorProto.FLOAT) -> str:
        """A weight in a file that does not exist."""
        entry = onnx.StringStringEntryProto(key="location", value="absent.bin")
        tensor = TensorProto(name=name, dims=dims, data_type=dtype, external_data=[entry])
        tensor.data_location = TensorProto.EXTERNAL
        self.weights.append(tensor)
        return name

    def ints(self, name: str, values: Sequence[int]) -> str:
        self.weights.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return name

    def floats(self, name: str, values: Sequence[float]) -> str:
        self.weights.append(helper.make_tensor(name, TensorProto.FLOAT, [len(values)], values))
        return name

    def node(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str] | str = "", domain: str = "", name: str = "",
        **attributes: Attribute,
    ) -> str:  # fmt: skip
        made = [outputs or f"{op}_{len(self.nodes)}"] if isinstance(outputs, str) else list(outputs)
        made_node = helper.make_node(op, list(inputs), made, name=name, domain=domain)
        made_node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self.nodes.append(made_node)
        return made[0]

    def contrib(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str] | str = "", **attributes: Attribute
    ) -> str:
        return self.node(op, inputs, outputs, "com.microsoft", "", **attributes)

    def model(self, *results: str, opset: int = 21) -> onnx.ModelProto:
        self.outputs += [onnx.ValueInfoProto(name=name) for name in results]
        graph = helper.make_graph(self.nodes, "test", self.inputs, self.outputs, self.weights)
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        opsets += [helper.make_opsetid(f.domain, 1) for f in self.functions]
        return helper.make_model(graph, opset_imports=opsets, functions=self.functions)


@pytest.fixture
def writer() -> Writer:
    """An empty model."""
    return Writer()


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[onnx.ModelProto], Path]:
    """Write a model to a file."""

    def write(model: onnx.ModelProto) -> Path:
        path = tmp_path / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    return write


@pytest.fixture(scope="session")
def exported() -> Path:
    """The folder of exported files."""
    return DATA
