"""Sizes that a file leaves to data or does not name: what the error says to write, and what comes of writing it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from slipstick.frontend.onnx import load_onnx
from slipstick.frontend.onnx.loading import value_types
from slipstick.ir.errors import NotUnderstoodError, TraceError, UnknownNameError, UsageError
from slipstick.ir.graph import Workload

from .conftest import Writer

Save = Callable[[onnx.ModelProto], Path]


def kind(model: onnx.ModelProto, name: str, dims: Mapping[str, str]) -> str:
    """The type of a value as text."""
    return str(value_types(model, Workload.PREFILL, dims)[name])


def refused(model: onnx.ModelProto, dims: Mapping[str, str]) -> str:
    """What is said of a model that is not read."""
    with pytest.raises(NotUnderstoodError) as error:
        value_types(model, Workload.PREFILL, dims)
    return str(error.value)


@pytest.mark.parametrize(
    ("op", "results", "asked", "found"),
    [
        ("NonZero", ["y"], "y.1", "int64[2, 5]"),
        ("Unique", ["y"], "y.0", "fp32[5]"),
    ],
)
def test_a_length_that_data_make_is_told(op: str, results: list[str], asked: str, found: str, writer: Writer) -> None:
    writer.node(op, [writer.input("x", ("batch", 8))], results)
    model = writer.model("y")
    assert refused(model, {}).endswith(f"depends on data: --dim {asked}=NUMBER")
    assert kind(model, "y", {asked: "5"}) == found


def test_a_length_may_grow_with_the_batch(writer: Writer) -> None:
    writer.node("NonZero", [writer.input("x", ("batch", 8))], "y")
    assert kind(writer.model("y"), "y", {"y.1": "batch*4"}) == "int64[2, 4*batch]"


def test_boxes_that_are_left_are_told(writer: Writer) -> None:
    boxes, scores = writer.input("boxes", ("batch", 100, 4)), writer.input("scores", ("batch", 3, 100))
    writer.node("NonMaxSuppression", [boxes, scores], "left")
    model = writer.model("left")
    assert refused(model, {}).endswith("--dim left.0=NUMBER")
    assert kind(model, "left", {"left.0": "20"}) == "int64[20, 3]"


def test_what_the_file_declares_is_taken(writer: Writer) -> None:
    writer.node("NonZero", [writer.input("x", ("batch", 8))], "y")
    model = writer.model("y")
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.INT64, [2, 7]))
    assert kind(model, "y", {}) == "int64[2, 7]"
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "found"
    assert refused(model, {}).endswith("--dim found=NUMBER")
    assert kind(model, "y", {"found": "9"}) == "int64[2, 9]"


def test_numbers_that_an_input_holds_are_told(writer: Writer) -> None:
    shape = writer.input("shape", (2,), TensorProto.INT64)
    writer.node("Reshape", [writer.input("x", ("batch", 8)), writer.node("Identity", [shape])], "y")
    model = writer.model("y")
    assert refused(model, {}).endswith("--dim 'shape[0]'=NUMBER --dim 'shape[1]'=NUMBER")
    assert kind(model, "y", {"shape[0]": "-1", "shape[1]": "4"}) == "fp32[2*batch, 4]"


def test_dims_without_a_name_are_called_after_their_place_and_all_listed(writer: Writer) -> None:
    writer.input("x", (1, "rows", 8))
    x = writer.inputs[0].type.tensor_type.shape.dim
    x[0].Clear()
    writer.node("Relu", ["x"], "y")
    model = writer.model("y")
    said = refused(model, {})
    assert "dim 0, which has no name, of input 'x', dim 'rows' of input 'x' are not known" in said
    assert "--dim x.0=batch|seq|kv|total|tokens|NUMBER --dim rows=batch|seq|kv|total|tokens|NUMBER" in said
    assert kind(model, "y", {"x.0": "batch", "rows": "16"}) == "fp32[batch, 16, 8]"
    x[0].dim_value = -1  # what some exporters write for the same
    assert kind(model, "y", {"x.0": "3", "x.1": "seq"}) == "fp32[3, seq, 8]"


def test_a_fixed_dim_may_be_opened(writer: Writer) -> None:
    writer.node("Relu", [writer.input("x", (1, 8))], "y")
    assert kind(writer.model("y"), "y", {"x.0": "batch"}) == "fp32[batch, 8]"


def test_an_empty_input_is_empty_and_said_to_be(writer: Writer, saved: Save) -> None:
    empty = writer.input("x", (0, 8))
    writer.node("Concat", [empty, writer.input("z", ("batch", 8))], "y", axis=0)
    writer.node("Relu", ["y"], "r")
    assert "input 'x' is empty: fp32[0, 8]" in load_onnx(saved(writer.model("r"))).notes


def test_how_often_a_loop_runs_is_told(writer: Writer) -> None:
    w = writer
    x, trips = w.input("x", ("batch", 8)), w.input("trips", (), TensorProto.INT64)
    inner = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Concat", ["held", "held"], ["more"], axis=1)],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("held", TensorProto.FLOAT, None),
        ],
        [onnx.ValueInfoProto(name="on"), onnx.ValueInfoProto(name="more")],
    )
    w.node("Loop", [trips, "", x], "y", body=inner)
    model = w.model("y")
    with pytest.raises(TraceError, match=r"how often the Loop runs depends on data: --dim 'trips\[0\]'=NUMBER"):
        value_types(model, Workload.PREFILL, {})
    assert kind(model, "y", {"trips[0]": "3"}) == "fp32[batch, 64]"  # twice as wide, three times


@pytest.mark.parametrize("size", ["0", "-4", "many", "batch+"])
def test_what_is_no_size_is_refused(size: str, writer: Writer) -> None:
    writer.node("Relu", [writer.input("x", ("rows", 8))], "y")
    with pytest.raises(UsageError, match="rows"):
        value_types(writer.model("y"), Workload.PREFILL, {"rows": size})


def test_a_dim_that_no_file_has_is_refused_with_the_nearest(writer: Writer) -> None:
    writer.node("Relu", [writer.input("x", ("batch", "rows"))], "y")
    model = writer.model("y")
    assert kind(model, "y", {"rows": "5"}) == "fp32[batch, 5]"
    assert kind(model, "y", {"x.1": "5"}) == "fp32[batch, 5]"
    for name in ("row", "y.1"):
        with pytest.raises(UnknownNameError, match=f"unknown dim of the file '{name}'.*allowed: batch, rows"):
            kind(model, "y", {"rows": "5", name: "7"})
