"""Shapes of values against onnxruntime's symbolic shape inference, over all sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from slipstick.frontend.onnx.loading import value_types
from slipstick.frontend.onnx.reading import read_model
from slipstick.ir.graph import Workload
from slipstick.ir.sizes.expr import as_expr

from .conftest import Writer

pytest.importorskip("onnxruntime", reason="the oracle; install slipstick[dev]")

SIZES = {"batch": 3, "seq": 48, "kv": 80}
# What torch calls the dims of the ids of the exported files.
NAMES = {"s72": "batch", "s70": "seq"}


def in_numbers(model: onnx.ModelProto, workload: Workload = Workload.PREFILL) -> dict[str, tuple[float, ...]]:
    """The shapes that our rules find, for three sequences of 48 tokens."""
    env = {name: float(size) for name, size in SIZES.items()}
    return {
        name: tuple(float(as_expr(d).evaluate(env)) for d in kind.dims)
        for name, kind in value_types(model, workload, {}).items()
    }


def by_onnxruntime(model: onnx.ModelProto) -> dict[str, tuple[float, ...]]:
    """The same by onnxruntime, of values whose dims are all formulas of batch and seq."""
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference  # type: ignore[import-untyped]

    for info in model.graph.input:
        for d in info.type.tensor_type.shape.dim:
            if d.dim_param:
                d.dim_value = SIZES[NAMES.get(d.dim_param, d.dim_param)]
    for node in model.graph.node:  # of constants it knows tensors alone
        if node.op_type == "Constant" and node.attribute[0].name != "value":
            numbers = np.array(helper.get_attribute_value(node.attribute[0]))
            node.attribute[0].CopyFrom(helper.make_attribute("value", numpy_helper.from_array(numbers)))
    for tensor in model.graph.initializer:  # it looks into some
        if tensor.external_data:
            zeros = np.zeros(tuple(tensor.dims), dtype=helper.tensor_dtype_to_np_dtype(tensor.data_type))
            tensor.CopyFrom(numpy_helper.from_array(zeros, tensor.name))
    done = SymbolicShapeInference.infer_shapes(model, auto_merge=True)
    assert done is not None
    found: dict[str, tuple[float, ...]] = {}
    for info in done.graph.value_info:
        dims = info.type.tensor_type.shape.dim
        if all(d.WhichOneof("value") == "dim_value" for d in dims):
            found[info.name] = tuple(float(d.dim_value) for d in dims)
    return found


def agree(model: onnx.ModelProto, least: int) -> None:
    """Every shape that onnxruntime knows is ours, too, and it knows at least so many."""
    ours = in_numbers(model)
    theirs = by_onnxruntime(model)
    assert len(theirs) >= least
    assert {name: ours[name] for name in theirs if name in ours} == theirs


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-llama-optimised"])
def test_an_exported_model_has_the_shapes_that_onnxruntime_finds(name: str, exported: Path) -> None:
    agree(read_model(exported / f"{name}.onnx"), 150)


def _products(w: Writer, x: str) -> list[str]:
    y = w.node("MatMul", [x, w.weight("w", (64, 32))])
    wide = w.node("Unsqueeze", [x, w.ints("one", [1])])
    gram = w.node("MatMul", [wide, w.node("Transpose", [wide], perm=[0, 1, 3, 2])])
    flat = w.node("Reshape", [x, w.ints("rows", [-1, 64])])
    gemm = w.node("Gemm", [flat, w.weight("g", (96, 64)), w.weight("c", (96,))], transB=1)
    return [y, gram, gemm, w.node("Einsum", [x, w.weight("e", (64, 4, 8))], equation="bsd,dhk->bhsk")]


def _views(w: Writer, x: str) -> list[str]:
    shape = w.node("Shape", [x])
    batch = w.node("Gather", [shape, w.ints("zero", [0])])
    target = w.node("Concat", [batch, w.ints("rest", [-1, 4, 16])], axis=0)
    heads = w.node("Reshape", [x, target])
    half = w.node("Slice", [heads, w.ints("from", [8]), w.ints("to", [2**62]), w.ints("axis", [3])])
    w.node("Split", [heads, w.ints("sizes", [5, 11])], ["a", "b"], axis=-1)
    padded = w.node("Pad", [x, w.ints("pads", [0, 1, 0, 0, 2, 0])])
    tiled = w.node("Tile", [heads, w.ints("times", [1, 1, 3, 1])])
    flat = w.node("Flatten", [heads], axis=2)
    picked = w.node("Gather", [heads, w.ints("heads", [0, 2, 3])], axis=2)
    every = w.node("Slice", [heads, w.ints("s0", [0]), w.ints("s1", [16]), w.ints("s2", [3]), w.ints("s3", [4])])
    return [half, "a", "b", padded, tiled, flat, picked, every]


def _rows(w: Writer, x: str) -> list[str]:
    norm = w.node("LayerNormalization", [x, w.weight("g", (64,)), w.weight("b", (64,))], axis=-1)
    total = w.node("ReduceSum", [x, w.ints("last", [-1])], keepdims=0)
    mean = w.node("ReduceMean", [x, w.ints("both", [1, 2])], keepdims=1)
    w.node("TopK", [x, w.ints("k", [5])], ["values", "indices"], axis=-1)
    arg = w.node("ArgMax", [x], axis=1, keepdims=0)
    return [norm, total, mean, "values", "indices", arg, w.node("Softmax", [x], axis=-1)]


def _data(w: Writer, x: str) -> list[str]:
    ids = w.node("ArgMax", [x], axis=2, keepdims=0)
    rows = w.node("Gather", [w.weight("table", (100, 24)), ids])
    places = w.node("Unsqueeze", [ids, w.ints("end", [-1])])
    some = w.node("GatherND", [x, places])
    at = w.node("GatherElements", [x, w.node("ArgMax", [x], axis=1)], axis=1)
    cond = w.node("Greater", [x, w.node("Neg", [x])])
    return [rows, some, at, w.node("Where", [cond, x, w.node("Relu", [x])]), w.node("CumSum", [x, w.ints("one", [1])])]


def _images(w: Writer, x: str) -> list[str]:
    image = w.node("Reshape", [x, w.ints("image", [-1, 16, 48, 64])])
    pooled = w.node("MaxPool", [image], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    mean = w.node("GlobalAveragePool", [image])
    kernel = w.weight("kernel", (32, 8, 3, 3))
    conv = w.node("Conv", [image, kernel, w.weight("bias", (32,))], group=2, strides=[2, 2], pads=[1, 1, 1, 1])
    uneven = w.node("Conv", [image, kernel], group=2, pads=[0, 0, 2, 1], dilations=[2, 1])
    grown = w.node("ConvTranspose", [conv, w.weight("up", (32, 16, 2, 2))], strides=[2, 2])
    return [pooled, mean, conv, uneven, grown, w.node("DepthToSpace", [image], blocksize=4)]


@pytest.mark.parametrize("part", [_products, _views, _rows, _data])
def test_rules_of_shapes_are_those_of_onnxruntime(part: Callable[[Writer, str], list[str]], writer: Writer) -> None:
    results = part(writer, writer.input("x", ("batch", "seq", 64)))
    agree(writer.model(*results), len(results))


def test_attention_of_contrib_operators_has_the_shapes_of_onnxruntime(writer: Writer) -> None:
    w = writer
    x = w.input("x", ("batch", "seq", 64), TensorProto.FLOAT16)
    half = TensorProto.FLOAT16
    total = w.contrib("SkipSimplifiedLayerNormalization", [x, x, w.weight("g", (64,), half)], ["n", "", "", "sum"])
    q = w.contrib("MatMulNBits", [total, w.weight("qw", (64, 2, 16), TensorProto.UINT8), w.weight("qs", (128,), half)],
                  K=64, N=64, bits=4, block_size=32)  # fmt: skip
    mha = w.contrib("MultiHeadAttention", [q, q, q], num_heads=4)
    gelu = w.contrib("BiasGelu", [mha, w.weight("fb", (64,), half)])
    tables = w.weight("cos", (512, 8), half), w.weight("sin", (512, 8), half)
    turned = w.contrib("RotaryEmbedding", [gelu, w.input("places", ("batch", "seq"), TensorProto.INT64), *tables])
    agree(w.model(mha, turned, gelu, "sum"), 5)


def test_a_dim_that_stays_a_sum_is_divided_by_it(writer: Writer) -> None:
    w = writer
    past = w.input("past_key_values.0.key", ("batch", 4, "past_sequence_length", 16))
    new = w.input("new", ("batch", 4, "sequence_length", 16))
    joined = w.node("Concat", [past, new], axis=2)
    flat = w.node("Reshape", [joined, w.ints("flat", [-1, 16])])
    length = w.node("Gather", [w.node("Shape", [joined]), w.ints("two", [2])])
    back = w.node("Reshape", [flat, w.node("Concat", [w.ints("head", [-1, 4]), length, w.ints("tail", [16])], axis=0)])
    types = value_types(w.model(back), Workload.DECODE, {})
    assert str(types[joined]) == str(types[back]) == "fp32[batch, 4, kv + 1, 16]"
    assert str(types[flat]) == "fp32[4*batch*kv + 4*batch, 16]"
