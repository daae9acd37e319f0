"""Files of opsets before 13: lifted by onnx's converter, or read as they are where it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from slipstick.frontend.onnx import load_onnx
from slipstick.frontend.onnx.loading import value_types
from slipstick.frontend.onnx.standard import lifted
from slipstick.ir.graph import Workload

from .conftest import Writer

Save = Callable[[onnx.ModelProto], Path]


def old_views(w: Writer) -> str:
    """Sizes and axes as attributes: [batch, 1, 8, 6] by way of many views to [batch, 8, 12, 2]."""
    x = w.node("Squeeze", [w.input("x", ("batch", 1, 8, 6))], axes=[1])  # [batch, 8, 6]
    y = w.node("Slice", [x], starts=[0], ends=[4], axes=[2])  # [batch, 8, 4]
    z = w.node("Pad", [y], pads=[0, 0, 1, 0, 0, 1])  # [batch, 8, 6]
    w.node("Split", [z], ["a", "b"], axis=2, split=[2, 4])
    u = w.node("Unsqueeze", ["a"], axes=[3])  # [batch, 8, 2, 1]
    up = w.node("Upsample", [u, w.floats("scales", [1.0, 1.0, 6.0, 2.0])])  # [batch, 8, 12, 2]
    return w.node("Dropout", [up], "y")


@pytest.mark.parametrize("opset", [9])
def test_old_forms_are_lifted(opset: int, writer: Writer, saved: Save) -> None:
    model = writer.model(old_views(writer), opset=opset)
    assert str(value_types(model, Workload.PREFILL, {})["y"]) == "fp32[batch, 8, 12, 2]"
    graph = load_onnx(saved(model))
    assert any(note.startswith(f"opset {opset} is read as 13, lifted") for note in graph.notes)


@pytest.mark.parametrize("opset", [7, 8, 9, 10, 11, 12])
def test_every_old_version_is_read(opset: int, writer: Writer, saved: Save) -> None:
    w = writer
    rows = w.node("Unsqueeze", [w.node("MatMul", [w.input("x", ("batch", "seq", 8)), w.weight("w", (8, 4))])], axes=[1])
    made = load_onnx(saved(w.model(w.node("ReduceSum", [rows], "y", axes=[3], keepdims=0), opset=opset)))
    assert made.num_parameters == 32
    assert str(made.regions[0].values[-1].type) == "fp32[batch, 1, seq]"


def test_a_model_with_bodies_is_read_as_it_is(writer: Writer, saved: Save) -> None:
    w = writer
    body = helper.make_graph(
        [helper.make_node("Unsqueeze", ["x"], ["t"], axes=[1]), helper.make_node("Relu", ["t"], ["u"])],
        "body", [], [onnx.ValueInfoProto(name="u")],
    )  # fmt: skip
    w.input("x", ("batch", 8))
    w.input("c", (), TensorProto.BOOL)
    w.node("If", ["c"], "y", then_branch=body, else_branch=body)
    graph = load_onnx(saved(w.model("y", opset=11)))
    assert "opset 11 is read as it is" in graph.notes
    assert str(graph.regions[0].values[-1].type) == "fp32[batch, 1, 8]"


def test_weights_stay_where_they_are(writer: Writer) -> None:
    writer.node("MatMul", [writer.input("x", ("batch", 8)), writer.weight("w", (8, 4))], "y")
    made, notes = lifted(writer.model("y", opset=11))
    (weight,) = made.graph.initializer
    assert weight.external_data[0].value == "absent.bin"
    assert len(notes) == 1


def test_a_new_version_stays_as_it_is(writer: Writer) -> None:
    writer.node("Relu", [writer.input("x", ("batch", 8))], "y")
    model = writer.model("y", opset=13)
    assert lifted(model) == (model, ())
