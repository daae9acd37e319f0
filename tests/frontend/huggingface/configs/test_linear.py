"""Models with delta rules, linear attention and other recurrences: one scan a layer, states in the cache of decode."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import estimate, lower
from slipstick.frontend.huggingface.configs.models import Config
from slipstick.frontend.loading import load, load_config
from slipstick.ir.graph import Graph, Node, Phase, Role, Workload
from slipstick.ir.ops.fused.attention import AttentionAttrs
from slipstick.ir.ops.fused.scan import ScanAttrs
from slipstick.ir.plan import Family, make_plan
from tests.frontend.sums import num_ops

transformers = pytest.importorskip("transformers", reason="builds its models; install slipstick[hf]")
torch = pytest.importorskip("torch")

Fields = Mapping[str, object]

SIZES: Fields = {
    "vocab_size": 256, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2,
}  # fmt: skip
DELTA: Fields = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 24,
}  # fmt: skip
BOTH: Fields = {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}
MOE: Fields = {
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
}  # fmt: skip
LATENT: Fields = {"kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
KDA: Fields = {"num_key_value_heads": 4, "moe_intermediate_size": 32, "linear_head_dim": 16, "linear_num_heads": 4}

FAMILIES: Mapping[str, Fields] = {
    "qwen3_next": {**SIZES, **DELTA, **BOTH, **MOE},
    "kimi_linear": {**SIZES, **KDA, **LATENT, **BOTH, "num_experts": 4, "num_experts_per_token": 2},
    "minimax": {**SIZES, **BOTH, "num_local_experts": 4, "num_experts_per_tok": 2, "block_size": 32},
    "recurrent_gemma": {**SIZES, "num_hidden_layers": 2, "block_types": ["recurrent", "attention"], "lru_width": 64},
    "rwkv": {**SIZES, "num_hidden_layers": 2, "attention_hidden_size": 64},
    "xlstm": {**SIZES, "num_hidden_layers": 2, "hidden_size": 128, "num_heads": 2, "chunk_size": 16},
}  # fmt: skip
# Of each family: kind of its scans, chunk in training, layers that have one, and in decode the dims of a state.
SCANS = {
    "qwen3_next": ("delta", 64, 1, (4, 16, 24)),
    "kimi_linear": ("delta", 64, 1, (4, 16, 16)),
    "minimax": ("linear", 32, 1, (4, 16, 16)),
    "recurrent_gemma": ("gated", 0, 1, (64, 1, 1)),
    "rwkv": ("linear", 0, 2, (64, 3, 1)),
    "xlstm": ("linear", 16, 2, (2, 32, 64)),
}
# Short convolutions a layer with a scan; RWKV shifts by one token instead, and keeps one for each of two shifts.
CONVS: Mapping[str, int] = {"minimax": 0, "xlstm": 0, "rwkv": 0}
TAILS: Mapping[str, int] = {"minimax": 0, "xlstm": 0, "rwkv": 2}


def config(model_type: str) -> Config:
    text = json.dumps({**FAMILIES[model_type], "model_type": model_type})
    return Config(model_type, "test", text, model_type)


def num_parameters(model_type: str, fields: Fields) -> int:
    """Distinct parameters of the model as transformers builds it."""
    with torch.device("meta"):
        made = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(model_type, **fields))
    return sum(p.numel() for p in made.parameters())


def scans(graph: Graph) -> list[Node]:
    return [n for region in graph.regions for n in region.nodes if n.op == "scan"]


@pytest.mark.parametrize("model_type", FAMILIES)
def test_each_recurrence_is_one_scan_forward_and_one_backward(model_type: str) -> None:
    graph = load_config(config(model_type))
    kind, chunk, layers, _ = SCANS[model_type]
    ahead, back = num_ops(graph), num_ops(graph, Phase.BACKWARD)
    assert (ahead["scan"], back["scan_bwd"]) == (layers, layers)
    assert ahead["conv"] == CONVS.get(model_type, 1) * layers == back["conv_bwd"]
    assert {n.attrs for n in scans(graph)} == {ScanAttrs(kind, chunk, False)}
    assert graph.num_parameters == num_parameters(model_type, FAMILIES[model_type])


@pytest.mark.parametrize("model_type", FAMILIES)
def test_prefill_leaves_its_states_and_decode_takes_them_up_step_by_step(model_type: str) -> None:
    kind, chunk, layers, state = SCANS[model_type]
    ahead, step = (load_config(config(model_type), w) for w in (Workload.PREFILL, Workload.DECODE))
    tails = TAILS.get(model_type, 1)
    for graph in (ahead, step):
        assert num_ops(graph)["keep_state"] == layers * (1 + tails)
        assert num_ops(graph)["scan"] == layers
    assert {n.attrs for n in scans(ahead)} == {ScanAttrs(kind, chunk, False)}
    assert {n.attrs for n in scans(step)} == {ScanAttrs(kind, 0, True)}
    given = [v for region in step.regions for v in region.values if v.role is Role.CACHE and v.name.endswith(".state")]
    assert {v.type.dims[1:] for v in given} == {state}
    assert {str(v.type.dtype) for v in given} == {"fp32"}


def test_a_state_is_written_where_it_was_read() -> None:
    graph = load_config(config("qwen3_next"), Workload.DECODE)
    region = next(r for r in graph.regions if any(n.op == "scan" for n in r.nodes))
    (kept,) = (n for n in region.nodes if n.op == "scan")
    assert region.by_id[kept.outputs[1]].storage == region.by_id[kept.inputs[-1]].storage


def test_biases_by_position_and_sinks_of_tokens_are_part_of_attention() -> None:
    """Two layers of Inkling 2, sliding and full: each has taps a token or fixed ones, a bias, and sinks."""
    fields = {
        **SIZES, "num_hidden_layers": 2, "layer_types": ["hybrid_sliding", "hybrid"], "n_routed_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_layers_per_attn_res_block": 2, "rel_extent": 8,
        "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "swa_head_dim": 16, "sliding_window_size": 8,
    }  # fmt: skip
    given = Config("inkling", "test", json.dumps({**fields, "model_type": "inkling2_text"}), "inkling2_text")
    graph = load_config(given, Workload.DECODE)
    found = [n.attrs for region in graph.regions for n in region.nodes if isinstance(n.attrs, AttentionAttrs)]
    assert sum(a.bias for a in found) == 2  # attention over the layers before has none
    assert graph.num_parameters == num_parameters("inkling2_text", fields)


def test_a_last_layer_of_the_first_kind_is_sharded_after_the_layer_behind_it() -> None:
    """Backward goes from the last layer on, of whatever kind that is; scans are split by heads."""
    kinds = ["linear_attention", "full_attention", "full_attention", "linear_attention"]
    fields = {**FAMILIES["qwen3_next"], "num_hidden_layers": 4, "layer_types": kinds, "model_type": "qwen3_next"}
    graph = lower(load_config(Config("hybrid", "test", json.dumps(fields), "qwen3_next")), Family()).graph
    found = [r.by_id[n.outputs[0]].type for r in graph.regions for n in r.nodes if n.op == "scan"]
    assert [str(t) for t in found] == ["bf16[mbs, seq, 4/tp, 24]"]


PUBLISHED = {"qwen3-next-80b-a3b": 79_674_391_296, "kimi-linear-48b-a3b": 49_122_675_072}


def test_parameters_of_the_published_sizes() -> None:
    """By hand from the configs: matrices, norms, and what a delta rule learns a head."""
    d, vocab, heads, width = 2048, 151_936, 32, 128
    keys, values = 16 * width, heads * width
    delta = d * (2 * keys + 2 * values) + d * 2 * heads + 4 * (2 * keys + values) + 2 * heads + width + values * d
    attention = d * 2 * 16 * 256 + 2 * d * 2 * 256 + 16 * 256 * d + 2 * 256
    layer = 512 * (d + 3 * d * 512) + 3 * d * 512 + d + 2 * d
    assert 36 * delta + 12 * attention + 48 * layer + 2 * vocab * d + d == PUBLISHED["qwen3-next-80b-a3b"]
    d, vocab = 2304, 163_840
    inner, latent, rope = heads * width, 512, 64
    gates = 2 * (d * width + width * inner) + d * heads
    delta = 4 * d * inner + gates + 4 * 3 * inner + inner + heads + width
    keys_values = d * (latent + rope) + latent + latent * heads * 2 * width
    attention = d * heads * (width + rope) + keys_values + inner * d
    sparse, dense = 256 * (d + 3 * d * 1024) + 3 * d * 1024, 3 * d * 9216
    total = 20 * delta + 7 * attention + 26 * sparse + dense + 27 * 2 * d + 2 * vocab * d + d
    assert total == PUBLISHED["kimi-linear-48b-a3b"]


@pytest.mark.parametrize(
    ("name", "workload"),
    [("qwen3-next-80b-a3b", Workload.DECODE), ("kimi-linear-48b-a3b", Workload.PREFILL)],
)
def test_published_sizes_are_estimated_from_end_to_end(name: str, workload: Workload, configs: Path) -> None:
    graph = load(str(configs / f"{name}.json"), workload)
    assert graph.num_parameters == PUBLISHED[name]
    plan = make_plan(num_gpus=8, tp=4, ep=2, family=Family(workload=workload, ep=True), seq_len=4096, micro_batch=1)
    found = estimate(graph, load_system("dgx-h100"), plan)
    # either step reads at least the weights that one token uses: 3 billion of 2 bytes over four GPUs of 3.35 TB/s
    assert found.metrics["step_time_s"] > 3e9 * 2 / 4 / 3.35e12
    assert found.breakdown_s["compute.scan"] > 0
