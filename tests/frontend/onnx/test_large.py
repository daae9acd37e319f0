"""A model of 405B parameters without its weights: small files, little time, little memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from onnx import TensorProto

from .conftest import Writer

HALF = TensorProto.FLOAT16
HIDDEN, FFN, LAYERS, VOCABULARY, HEADS, KV_HEADS = 16384, 53248, 126, 128256, 128, 8
PROGRAM = """
import resource, sys, time
start = time.process_time()
from slipstick import Family, estimate, load, load_system, make_plan
graph = load(sys.argv[1], "decode")
plan = make_plan(num_gpus=8, tp=8, kv_len=8192, seq_len=1, family=Family(workload=graph.workload))
answer = estimate(graph, load_system("dgx-h100"), plan)
loaded = sorted({"torch", "transformers"} & sys.modules.keys())
rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(time.process_time() - start, rss, loaded, answer.memory_bytes["weights"])
"""


def write(path: Path) -> None:
    """Llama 3.1 405B as deployed: four-bit weights in blocks of 32, fused norms, grouped attention with a cache."""
    w = Writer()
    ids = w.input("input_ids", ("batch_size", "sequence_length"), TensorProto.INT64)
    w.input("lengths", ("batch_size",), TensorProto.INT32)
    w.input("total", (), TensorProto.INT32)
    w.weight("cos", (131072, 64), HALF)
    w.weight("sin", (131072, 64), HALF)
    x = w.node("Gather", [w.weight("model.embed_tokens.weight", (VOCABULARY, HIDDEN), HALF), ids])
    w.nodes[-1].name = "/model/embed_tokens/Gather"
    for layer in range(LAYERS):
        x = _layer(w, layer, x)
    x = w.node(
        "SimplifiedLayerNormalization", [x, w.weight("model.norm.weight", (HIDDEN,), HALF)], name="/model/norm/N"
    )
    logits = w.node("MatMul", [x, w.weight("lm_head.weight", (HIDDEN, VOCABULARY), HALF)], name="/lm_head/MatMul")
    path.write_bytes(w.model(logits).SerializeToString())


def _layer(w: Writer, layer: int, x: str) -> str:
    at = f"/model/layers.{layer}"

    def bits(given: str, module: str, n: int, k: int) -> str:
        name = f"model.layers.{layer}.{module}"
        weights = [w.weight(f"{name}.qweight", (n, k // 32, 16), TensorProto.UINT8),
                   w.weight(f"{name}.scales", (n * k // 32,), HALF)]  # fmt: skip
        return w.node("MatMulNBits", [given, *weights], "", "com.microsoft", f"{at}/{module.replace('.', '/')}/MatMul",
                      N=n, K=k, bits=4, block_size=32)  # fmt: skip

    def norm(module: str, given: str) -> str:
        gain = w.weight(f"model.layers.{layer}.{module}.weight", (HIDDEN,), HALF)
        return w.node("SimplifiedLayerNormalization", [given, gain], name=f"{at}/{module}/LayerNorm")

    y = norm("input_layernorm", x)
    width = HIDDEN * KV_HEADS // HEADS
    qkv = [bits(y, f"self_attn.{p}_proj", n, HIDDEN) for p, n in (("q", HIDDEN), ("k", width), ("v", width))]
    past = [w.input(f"past_key_values.{layer}.{p}", ("batch_size", KV_HEADS, "past_sequence_length", 128), HALF)
            for p in ("key", "value")]  # fmt: skip
    made = [f"a{layer}", f"k{layer}", f"v{layer}"]
    a = w.node("GroupQueryAttention", [*qkv, *past, "lengths", "total", "cos", "sin"], made,
               "com.microsoft", f"{at}/self_attn/Gqa", num_heads=HEADS, kv_num_heads=KV_HEADS, do_rotary=1)  # fmt: skip
    x = w.node("Add", [x, bits(a, "self_attn.o_proj", HIDDEN, HIDDEN)], name=f"{at}/Add")
    y = norm("post_attention_layernorm", x)
    gate, up = (bits(y, f"mlp.{p}_proj", FFN, HIDDEN) for p in ("gate", "up"))
    act = w.node("Mul", [gate, w.node("Sigmoid", [gate], name=f"{at}/mlp/Sigmoid")], name=f"{at}/mlp/Mul")
    act = w.node("Mul", [act, up], name=f"{at}/mlp/Mul_1")
    return w.node("Add", [x, bits(act, "mlp.down_proj", HIDDEN, FFN)], name=f"{at}/Add_1")


@pytest.mark.slow
def test_a_405b_model_without_weights_is_estimated_at_once(tmp_path: Path) -> None:
    path = tmp_path / "llama-405b.onnx"
    write(path)
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    cpu_s, rss_mib, *_ = map(float, done.stdout.split()[:2])
    assert cpu_s < 3.0
    assert rss_mib < 500
    assert "[]" in done.stdout
    layer = HIDDEN * HIDDEN * 2 + HIDDEN * HIDDEN // 16 * 2 + 3 * HIDDEN * FFN
    table = HIDDEN * VOCABULARY * 2
    per_element = 0.5 + 2 / 32
    gains = (2 * LAYERS + 1) * HIDDEN * 2
    weights = (LAYERS * layer * per_element + 2 * table) / 8 + gains
    assert float(done.stdout.split()[-1]) == pytest.approx(weights, rel=1e-9)
