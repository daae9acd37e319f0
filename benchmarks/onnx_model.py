"""Llama 3.1 405B in ONNX as deployed: four-bit weights in blocks of 32, fused norms, grouped attention with a cache.

The weights are in a file that does not exist; `python -m benchmarks.onnx_model PATH` writes the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from onnx import TensorProto, helper

HIDDEN, FFN, LAYERS, VOCABULARY, HEADS, KV_HEADS = 16384, 53248, 126, 128256, 128, 8
BLOCK = 32
HALF = TensorProto.FLOAT16
_WIDTH = HIDDEN * KV_HEADS // HEADS
_CONTRIB = "com.microsoft"


@dataclass
class _Writer:
    """The model as far as it is written."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def input(self, name: str, dims: Sequence[int | str], dtype: int = HALF) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, list(dims)))
        return name

    def weight(self, name: str, dims: Sequence[int], dtype: int = HALF) -> str:
        entry = onnx.StringStringEntryProto(key="location", value="absent.bin")
        tensor = TensorProto(name=name, dims=dims, data_type=dtype, external_data=[entry])
        tensor.data_location = TensorProto.EXTERNAL
        self.weights.append(tensor)
        return name

    def node(self, op: str, inputs: Sequence[str], name: str, options: dict[str, int] | None = None) -> str:
        """A node of one result, which has its name; with options one of the contributed operators."""
        made = helper.make_node(op, list(inputs), [name], name=name, domain="" if options is None else _CONTRIB)
        made.attribute.extend(helper.make_attribute(key, value) for key, value in (options or {}).items())
        self.nodes.append(made)
        return name

    def linear(self, given: str, module: str, n: int, k: int) -> str:
        """A product with a weight of four bits and its scales."""
        packed = [
            self.weight(f"{_parameter(module)}.qweight", (n, k // BLOCK, BLOCK // 2), TensorProto.UINT8),
            self.weight(f"{_parameter(module)}.scales", (n * k // BLOCK,)),
        ]
        return self.node(
            "MatMulNBits", [given, *packed], f"{module}/MatMul", {"N": n, "K": k, "bits": 4, "block_size": BLOCK}
        )

    def norm(self, given: str, module: str) -> str:
        gain = self.weight(f"{_parameter(module)}.weight", (HIDDEN,))
        return self.node("SimplifiedLayerNormalization", [given, gain], f"{module}/Norm")


def write(path: Path) -> None:
    """Write the model to a file of a few hundred kilobytes."""
    w = _Writer()
    ids = w.input("input_ids", ("batch_size", "sequence_length"), TensorProto.INT64)
    w.input("lengths", ("batch_size",), TensorProto.INT32)
    w.input("total", (), TensorProto.INT32)
    for name in ("cos", "sin"):
        w.weight(name, (131072, 64))
    x = w.node(
        "Gather", [w.weight("model.embed_tokens.weight", (VOCABULARY, HIDDEN)), ids], "/model/embed_tokens/Gather"
    )
    for layer in range(LAYERS):
        x = _layer(w, layer, x)
    x = w.norm(x, "/model/norm")
    logits = w.node("MatMul", [x, w.weight("lm_head.weight", (HIDDEN, VOCABULARY))], "/lm_head/MatMul")
    graph = helper.make_graph(w.nodes, "llama", w.inputs, [onnx.ValueInfoProto(name=logits)], w.weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(_CONTRIB, 1)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets).SerializeToString())


def _layer(w: _Writer, layer: int, x: str) -> str:
    at = f"/model/layers.{layer}"
    y = w.norm(x, f"{at}/input_layernorm")
    qkv = [w.linear(y, f"{at}/self_attn/{p}_proj", n, HIDDEN) for p, n in (("q", HIDDEN), ("k", _WIDTH), ("v", _WIDTH))]
    cache = ("batch_size", KV_HEADS, "past_sequence_length", HIDDEN // HEADS)
    past = [w.input(f"past_key_values.{layer}.{p}", cache) for p in ("key", "value")]
    heads = {"num_heads": HEADS, "kv_num_heads": KV_HEADS, "do_rotary": 1}
    a = w.node("GroupQueryAttention", [*qkv, *past, "lengths", "total", "cos", "sin"], f"{at}/self_attn/Gqa", heads)
    x = w.node("Add", [x, w.linear(a, f"{at}/self_attn/o_proj", HIDDEN, HIDDEN)], f"{at}/Add")
    y = w.norm(x, f"{at}/post_attention_layernorm")
    gate, up = (w.linear(y, f"{at}/mlp/{p}_proj", FFN, HIDDEN) for p in ("gate", "up"))
    act = w.node("Mul", [gate, w.node("Sigmoid", [gate], f"{at}/mlp/Sigmoid")], f"{at}/mlp/Mul")
    act = w.node("Mul", [act, up], f"{at}/mlp/Mul_1")
    return w.node("Add", [x, w.linear(act, f"{at}/mlp/down_proj", HIDDEN, FFN)], f"{at}/Add_1")


def _parameter(module: str) -> str:
    return module.strip("/").replace("/", ".")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
