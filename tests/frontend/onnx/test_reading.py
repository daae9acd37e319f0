"""Files that are damaged, hostile or simply wrong: one line that says where, and no more work than needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from slipstick.frontend import load
from slipstick.frontend.onnx import load_onnx
from slipstick.frontend.onnx.reading import KEPT_BYTES, MAX_DEPTH, lean
from slipstick.ir.errors import NotBuiltError, NotUnderstoodError, UnsupportedOpError, UsageError
from slipstick.ir.text.limits import limits

from .conftest import Writer

Save = Callable[[onnx.ModelProto], Path]


def linear(w: Writer) -> Writer:
    """One layer: [batch, seq, 8] to [batch, seq, 4]."""
    w.node("MatMul", [w.input("x", ("batch", "seq", 8)), w.weight("w", (8, 4))], "y")
    return w


def test_the_numbers_of_large_weights_are_not_read() -> None:
    large = numpy_helper.from_array(np.zeros(KEPT_BYTES, dtype=np.float32), "large")
    small = numpy_helper.from_array(np.arange(3, dtype=np.int64), "small")
    node = helper.make_node("Identity", ["large"], ["y"])
    model = helper.make_model(helper.make_graph([node], "g", [], [], [large, small]))
    kept = lean(memoryview(model.SerializeToString()))
    assert len(kept) < 200
    again = onnx.ModelProto.FromString(kept)
    assert [(t.name, list(t.dims), bool(t.raw_data)) for t in again.graph.initializer] == [
        ("large", [KEPT_BYTES], False),
        ("small", [3], True),
    ]
    assert again.graph.node == model.graph.node


def test_every_truncation_is_refused_in_one_line(writer: Writer, tmp_path: Path) -> None:
    data = linear(writer).model("y").SerializeToString()
    path = tmp_path / "part.onnx"
    said = [found for size in range(len(data)) if (found := refusal(path, data[:size]))]
    assert len(said) > len(data) - 40  # what is cut off at the very end is the list of versions
    assert all(str(path) in text and "\n" not in text for text in said)


def refusal(path: Path, data: bytes) -> str:
    """What is said of a file with these bytes; nothing where it is read."""
    path.write_bytes(data)
    try:
        load_onnx(path)
    except NotUnderstoodError as error:
        return str(error)
    return ""


def test_a_circle_names_a_node_in_it(writer: Writer, saved: Save) -> None:
    writer.input("x", ("batch", "seq", 8))
    writer.node("Add", ["x", "b"], "a", name="first")
    writer.node("Relu", ["a"], "b", name="second")
    with pytest.raises(NotUnderstoodError, match="'first' waits for itself: the graph has a circle"):
        load_onnx(saved(writer.model("b")))


def test_nodes_in_a_wrong_order_are_sorted(writer: Writer, saved: Save) -> None:
    model = linear(writer).model("z")
    model.graph.node.insert(0, helper.make_node("Relu", ["y"], ["z"]))
    graph = load_onnx(saved(model))
    assert [n.op for n in graph.region("prologue").nodes] == ["matmul", "elementwise"]


@pytest.mark.parametrize("where", ["/etc/passwd", "../weights.bin", "a/../../weights.bin", "C:\\w.bin", "..\\w", ""])
def test_external_data_may_not_lie_outside_of_the_folder(where: str, writer: Writer, saved: Save) -> None:
    model = linear(writer).model("y")
    model.graph.initializer[0].external_data[0].value = where
    with pytest.raises(NotUnderstoodError, match=r"external data of 'w' at .*: only files in the folder of the model"):
        load_onnx(saved(model))


def test_external_data_below_the_folder_is_fine_and_not_opened(writer: Writer, saved: Save) -> None:
    model = linear(writer).model("y")
    model.graph.initializer[0].external_data[0].value = "weights/part-1.bin"
    assert load_onnx(saved(model)).num_parameters == 32


def test_versions_that_are_not_known_are_refused(writer: Writer, saved: Save) -> None:
    with pytest.raises(NotUnderstoodError, match="opset 99: 1 to "):
        load_onnx(saved(linear(writer).model("y", opset=99)))


def test_what_nothing_makes_is_named(writer: Writer, saved: Save) -> None:
    writer.node("Relu", ["lost"], "y", name="relu")
    with pytest.raises(NotUnderstoodError, match="Relu node 'relu': 'lost' is read, and nothing makes it"):
        load_onnx(saved(writer.model("y")))


def test_a_name_that_is_made_twice_is_refused(writer: Writer, saved: Save) -> None:
    linear(writer).node("Relu", ["x"], "y")
    with pytest.raises(NotUnderstoodError, match="'y' is made twice"):
        load_onnx(saved(writer.model("y")))


def test_nodes_of_a_file_are_bounded(writer: Writer, saved: Save) -> None:
    name = writer.input("x", ("batch", 8))
    for _ in range(limits().nodes + 1):
        name = writer.node("Relu", [name])
    with pytest.raises(NotUnderstoodError, match=r"more than 50,000 nodes; SLIPSTICK_LIMITS=N raises"):
        load_onnx(saved(writer.model(name)))


def convolution(w: Writer, group: int, window: tuple[int, ...], channels: int, weight: tuple[int, ...]) -> None:
    w.node(
        "Conv", [w.input("x", ("batch", channels, 8, 8)), w.weight("w", weight)], "y", group=group, kernel_shape=window
    )


@pytest.mark.parametrize("group", [0, -1, -3, 2, 3, 4, 2**40])
@pytest.mark.parametrize("window", [(3, 3), (10**9, 10**9), (3,), (3, 2), (0, 0)])
def test_groups_and_windows_that_a_weight_has_not_are_refused(
    group: int, window: tuple[int, ...], writer: Writer, saved: Save
) -> None:
    convolution(writer, group, window, 12, (8, 6, 3, 3))
    if (group, window) == (2, (3, 3)):
        assert load_onnx(saved(writer.model("y"))).num_parameters == 8 * 6 * 9
        return
    with pytest.raises(NotUnderstoodError, match="groups divide the channels of both, and kernel_shape is that of"):
        load_onnx(saved(writer.model("y")))


def test_groups_divide_what_a_convolution_makes(writer: Writer, saved: Save) -> None:
    convolution(writer, 2, (3, 3), 12, (7, 6, 3, 3))
    with pytest.raises(NotUnderstoodError, match="group=2"):
        load_onnx(saved(writer.model("y")))


@pytest.mark.parametrize("dims", [(8, 4), ("n", 4), (8, 5), (8,), (8, 4, 1), (10**6, 4)])
def test_a_stored_value_that_is_an_input_has_one_shape(
    dims: tuple[int | str, ...], writer: Writer, saved: Save
) -> None:
    linear(writer).input("w", dims)
    if dims in ((8, 4), ("n", 4)):
        assert load_onnx(saved(writer.model("y"))).num_parameters == 32
        return
    with pytest.raises(NotUnderstoodError, match=r"'w' is stored with dims \[8, 4\], and is an input of"):
        load_onnx(saved(writer.model("y")))


@pytest.mark.parametrize("size", [-1, 2**62])
def test_absurd_dims_are_refused(size: int, writer: Writer, saved: Save) -> None:
    writer.node("MatMul", [writer.input("x", ("batch", "seq", 8)), writer.weight("w", (8, size))], "y")
    with pytest.raises(NotUnderstoodError, match=f"initializer 'w' has a dim of {size}; 0 to "):
        load_onnx(saved(writer.model("y")))


def test_operators_without_a_rule_are_all_listed(writer: Writer, saved: Save) -> None:
    linear(writer).contrib("MatMulNBit", ["y"], "a")
    writer.node("Celtic", ["a"], "b")
    with pytest.raises(UnsupportedOpError, match=r"2 operator.*'Celtic'.*MatMulNBit'.*did you mean 'MatMulNBits'"):
        load_onnx(saved(writer.model("b")))


def test_a_dim_without_a_meaning_says_how_to_give_it_one(writer: Writer, saved: Save) -> None:
    writer.node("MatMul", [writer.input("x", ("rows", 8)), writer.weight("w", (8, 4))], "y")
    path = saved(writer.model("y"))
    with pytest.raises(NotUnderstoodError, match="dim 'rows' of input 'x' is not known: --dim rows=batch"):
        load_onnx(path)
    assert str(load_onnx(path, dims={"rows": "tokens"}).region("prologue").values[-1].type) == "fp32[batch*seq, 4]"
    assert str(load_onnx(path, dims={"rows": "77"}).region("prologue").values[-1].type) == "fp32[77, 4]"
    with pytest.raises(UsageError, match="unknown size of dim 'rows' 'bach'; did you mean 'batch'"):
        load_onnx(path, dims={"rows": "bach"})


def test_a_name_is_known_everywhere_once_its_place_tells_it(writer: Writer, saved: Save) -> None:
    w = writer
    y = w.node("MatMul", [w.input("extra", ("s72", "s70", 8)), w.weight("w", (8, 4))])
    w.node("Gather", [w.weight("table", (16, 4)), w.input("input_ids", ("s72", "s70"), TensorProto.INT64)], "rows")
    graph = load_onnx(saved(w.model(w.node("Add", [y, "rows"]))))
    assert str(graph.regions[0].values[-1].type) == "fp32[batch, seq, 4]"


def test_bodies_without_end_are_refused(saved: Save) -> None:
    graph = helper.make_graph([helper.make_node("Identity", ["c"], ["y"])], "g", [], [onnx.ValueInfoProto(name="y")])
    for _ in range(MAX_DEPTH + 2):
        node = helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([node], "g", [], [onnx.ValueInfoProto(name="y")])
    graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    with pytest.raises(NotUnderstoodError, match=f"nested more than {MAX_DEPTH} deep"):
        load_onnx(saved(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])))


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.onnx"
    with pytest.raises(NotUnderstoodError, match="there is no such file"):
        load_onnx(path)
    path.write_text("not a model at all")
    with pytest.raises(NotUnderstoodError, match="is not an ONNX model"):
        load_onnx(path)


def test_quantised_weights_are_not_trained_and_dims_are_of_onnx_alone(writer: Writer, saved: Save) -> None:
    scale, low = writer.weight("s", (4,)), writer.weight("q", (8, 4), TensorProto.INT8)
    wide = writer.node("DequantizeLinear", [low, scale], axis=1)
    path = saved(writer.model(writer.node("MatMul", [writer.input("x", ("batch", "seq", 8)), wide])))
    with pytest.raises(NotBuiltError, match="'q' rests in int8, which is not trained"):
        load_onnx(path, "train")
    with pytest.raises(UsageError, match="--dim a: of ONNX"):
        load("llama-3.1-8b", "prefill", dims={"a": "batch"})
