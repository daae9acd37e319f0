"""Operators of pictures, sequences and low precision: dims by their definitions, work by what they read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto

from slipstick.frontend.onnx import load_onnx
from slipstick.frontend.onnx.loading import value_types
from slipstick.ir.errors import NotUnderstoodError, UnsupportedOpError
from slipstick.ir.graph import Graph, Node, Workload

from .conftest import Writer

Save = Callable[[onnx.ModelProto], Path]


def kinds(model: onnx.ModelProto, *names: str) -> list[str]:
    """The types of values as text."""
    found = value_types(model, Workload.PREFILL, {})
    return [str(found[name]) for name in names]


def nodes(graph: Graph) -> list[Node]:
    return [n for region in graph.regions for n in region.nodes]


def test_a_resize_is_by_factors_or_to_sizes(writer: Writer) -> None:
    w = writer
    x = w.input("x", ("batch", 3, 5, 6))
    factors = w.node("Resize", [x, "", w.floats("f", [1.0, 1.0, 1.5, 2.0])], "a")  # floor(5 x 1.5) = 7
    w.node("Resize", [x, "", "", w.ints("s", [10, 12])], "b", axes=[2, 3])
    w.node("Resize", [x, "", w.floats("h", [0.5, 3.0])], "c", axes=[3, 0])
    assert kinds(w.model(factors, "b", "c"), "a", "b", "c") == [
        "fp32[batch, 3, 7, 12]", "fp32[batch, 3, 10, 12]", "fp32[3*batch, 3, 5, 3]",
    ]  # fmt: skip


def test_a_global_pool_reads_all_positions(writer: Writer, saved: Save) -> None:
    writer.node("GlobalAveragePool", [writer.input("x", ("batch", 3, 5, 6))], "y")
    (node,) = nodes(load_onnx(saved(writer.model("y"))))
    assert node.op == "reduce"  # 3 x 30 numbers a sample are read, 3 written


def test_windows_behind_the_input_are_left_out(writer: Writer) -> None:
    """Rounding up, ceil((2 + 2 - 3) / 3) + 1 = 2 windows, of which the second begins at 3 = 2 + 1: in the padding."""
    x = writer.input("x", ("batch", 1, 2, 2))
    y = writer.node("AveragePool", [x], kernel_shape=[3, 3], strides=[3, 3], pads=[1, 1, 1, 1], ceil_mode=1)
    assert kinds(writer.model(y), y) == ["fp32[batch, 1, 1, 1]"]


def test_samples_of_a_grid_and_of_regions(writer: Writer) -> None:
    w = writer
    x = w.input("x", ("batch", 3, 32, 32))
    y = w.node("GridSample", [x, w.input("grid", ("batch", 8, 9, 2))])
    places = w.node("Squeeze", [w.input("which", ("batch", 1), TensorProto.INT64), w.ints("one", [1])])
    r = w.node("RoiAlign", [x, w.input("regions", ("batch", 4)), places], output_height=7, output_width=6)
    assert kinds(w.model(y, r), y, r) == ["fp32[batch, 3, 8, 9]", "fp32[batch, 3, 7, 6]"]


def test_a_transposed_convolution_is_cut_unevenly(writer: Writer, saved: Save) -> None:
    """(5 - 1) 2 + 3 = 11 positions are made, of which 10 are asked for."""
    x = writer.input("x", ("batch", 4, 5))
    y = writer.node("ConvTranspose", [x, writer.weight("w", (4, 8, 3))], strides=[2], output_shape=[10])
    model = writer.model(y)
    assert kinds(model, y) == ["fp32[batch, 8, 10]"]
    conv, copy = nodes(load_onnx(saved(model)))
    assert (conv.op, copy.op) == ("conv", "copy")


def test_sequences_of_known_length_are_followed(writer: Writer) -> None:
    w = writer
    x = w.input("x", ("batch", 6))
    s = w.node("SplitToSequence", [x, w.ints("each", [2, 4])], axis=1)
    longer = w.node("SequenceInsert", [s, x])
    at = w.node("SequenceAt", [longer, w.ints("last", [-1])], "at")
    w.node("ConcatFromSequence", [longer], "all", axis=1)
    length = w.node("SequenceLength", [longer])
    w.node("Expand", [w.node("Reshape", [length, w.ints("one", [1])]), w.ints("to", [5])], "number")
    assert kinds(w.model(at, "all", "number"), "at", "all", "number") == [
        "fp32[batch, 6]", "fp32[batch, 12]", "int64[5]",
    ]  # fmt: skip


def test_a_sequence_is_no_tensor(writer: Writer) -> None:
    s = writer.node("SequenceConstruct", [writer.input("x", ("batch", 6))])
    writer.node("Relu", [s], "y")
    with pytest.raises(NotUnderstoodError, match="a sequence is given where a tensor is needed"):
        kinds(writer.model("y"), "y")


def test_texts_are_refused(writer: Writer) -> None:
    writer.node("StringNormalizer", [writer.input("x", ("batch",), TensorProto.STRING)], "y")
    with pytest.raises(NotUnderstoodError, match="input 'x' has the element type STRING, which is not a number's"):
        kinds(writer.model("y"), "y")


def test_a_quantised_convolution_multiplies_whole_numbers(writer: Writer, saved: Save) -> None:
    w = writer
    x = w.input("x", ("batch", 3, 8, 8), TensorProto.UINT8)
    scale, zero = w.floats("scale", [0.5]), w.weight("zero", (), TensorProto.UINT8)
    weight = w.weight("w", (16, 3, 3, 3), TensorProto.INT8)
    y = w.node("QLinearConv", [x, scale, zero, weight, scale, zero, scale, zero], "y")
    model = w.model(y)
    assert kinds(model, "y") == ["uint8[batch, 16, 6, 6]"]
    graph = load_onnx(saved(model))
    assert [n.op for n in nodes(graph)] == ["conv"]


def test_an_operator_without_a_rule_is_the_function_that_the_standard_defines(writer: Writer, saved: Save) -> None:
    """MeanVarianceNormalization is (x - E[x]) / sqrt(E[x^2] - E[x]^2)."""
    x = writer.input("x", ("batch", 3, 8, 8))
    graph = load_onnx(saved(writer.model(writer.node("MeanVarianceNormalization", [x], "y"))))
    assert sum(n.op == "reduce" for n in nodes(graph)) == 2  # the mean of x, and of its square


def test_what_the_standard_does_not_define_is_refused(writer: Writer) -> None:
    writer.node("ImageDecoder", [writer.input("x", (1000,), TensorProto.UINT8)], "y")
    with pytest.raises(UnsupportedOpError, match="'ImageDecoder'"):
        kinds(writer.model("y"), "y")


def test_a_model_that_computes_nothing_copies(writer: Writer, saved: Save) -> None:
    writer.node("Identity", [writer.input("x", ("batch", 4))], "y")
    assert [n.op for n in nodes(load_onnx(saved(writer.model("y"))))] == ["copy"]


def test_a_static_model_is_read_with_its_own_sizes(writer: Writer, saved: Save) -> None:
    writer.node("MatMul", [writer.input("x", (4, 8)), writer.weight("w", (8, 2))], "y")
    graph = load_onnx(saved(writer.model("y")))
    assert str(graph.regions[0].values[-1].type) == "fp32[4, 2]"


@pytest.mark.parametrize(
    ("equation", "found"),
    [
        ("bij,bjk->bik", "fp32[batch, 6, 6]"),
        ("bij,bjk", "fp32[6, 6]"),  # letters that stand once, in their order: i, k
        ("...ij,...jk->...ik", "fp32[batch, 6, 6]"),
        ("bii,bij->bi", "fp32[batch, 6]"),
    ],
)
def test_einsum_in_all_its_forms(equation: str, found: str, writer: Writer) -> None:
    x = writer.input("x", ("batch", 6, 6))
    y = writer.node("Einsum", [x, x], equation=equation)
    assert kinds(writer.model(y), y) == [found]
