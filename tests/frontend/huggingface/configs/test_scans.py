"""State space models and short convolutions of transformers: scans in every workload, states kept as caches."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

import pytest

from slipstick.frontend.huggingface.configs.models import config_of
from slipstick.frontend.loading import load_config
from slipstick.ir.graph import Graph, Role, Workload
from slipstick.ir.ops import op_def
from slipstick.ir.ops.base import OpClass
from slipstick.ir.types import DType

transformers = pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")
torch = pytest.importorskip("torch")

Fields = Mapping[str, object]
BASE: Fields = {
    "vocab_size": 160, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
MAMBA: Fields = {**BASE, "state_size": 8, "intermediate_size": 128, "num_hidden_layers": 3}
MAMBA2: Fields = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 32, "mamba_n_groups": 1, "mamba_expand": 2}
SHORT = ["conv", "full_attention", "conv", "conv", "full_attention", "conv"]
# The model, its sizes, and how many of its layers scan, convolve and attend.
CASES: Mapping[str, tuple[Fields, int, int, int]] = {
    "mamba": (MAMBA, 3, 3, 0),
    "mamba2": (
        {**BASE, "num_heads": 8, "head_dim": 16, "state_size": 32, "n_groups": 2, "num_hidden_layers": 3}, 3, 3, 0,
    ),
    "bamba": ({**BASE, **MAMBA2, "num_hidden_layers": 6, "attn_layer_indices": [1, 4]}, 4, 4, 2),
    "falcon_h1": ({**BASE, **MAMBA2, "mamba_d_ssm": 128, "head_dim": 16, "num_hidden_layers": 2}, 2, 2, 2),
    "jamba": (
        {**BASE, "num_hidden_layers": 8, "attn_layer_period": 4, "attn_layer_offset": 2, "expert_layer_period": 2,
         "num_experts": 4, "mamba_d_state": 8, "mamba_dt_rank": 4}, 6, 6, 2,
    ),
    "nemotron_h": (
        {**BASE, "num_hidden_layers": 8, "hybrid_override_pattern": "M-M*M-M*", "mamba_num_heads": 8,
         "mamba_head_dim": 16, "ssm_state_size": 32, "n_groups": 2, "head_dim": 16}, 4, 4, 2,
    ),
    "lfm2": ({**BASE, "num_hidden_layers": 6, "layer_types": SHORT}, 0, 4, 2),
}  # fmt: skip


def traced(model_type: str, workload: Workload) -> Graph:
    return load_config(config_of(model_type, {"model_type": model_type, **CASES[model_type][0]}), workload)


def counted(graph: Graph) -> Counter[str]:
    """Nodes by op over the whole depth."""
    found: Counter[str] = Counter()
    for region in graph.regions:
        for node in region.nodes:
            found[node.op] += graph.counts[region.name]
    return found


def parameters_of(model_type: str) -> int:
    config = transformers.AutoConfig.for_model(model_type, **CASES[model_type][0])
    with torch.device("meta"):
        return sum(p.numel() for p in transformers.AutoModelForCausalLM.from_config(config).parameters())


@pytest.mark.parametrize("model_type", ["mamba", "bamba", "jamba", "nemotron_h", "lfm2"])
def test_training_scans_forward_and_back(model_type: str) -> None:
    graph, (_, scans, convs, attentions) = traced(model_type, Workload.TRAIN), CASES[model_type]
    ops = counted(graph)
    assert (ops["scan"], ops["conv"], ops["attention"]) == (scans, convs, attentions)
    assert (ops["scan_bwd"], ops["conv_bwd"], ops["attention_bwd"]) == (scans, convs, attentions)
    assert graph.num_parameters == parameters_of(model_type)
    assert len(graph.regions) > 2, graph.notes  # folded


@pytest.mark.parametrize("model_type", ["mamba", "lfm2"])
def test_prefill_leaves_states_and_keys(model_type: str) -> None:
    graph, (_, scans, convs, attentions) = traced(model_type, Workload.PREFILL), CASES[model_type]
    ops = counted(graph)
    assert (ops["scan"], ops["conv"], ops["attention"]) == (scans, convs, attentions)
    assert (ops["keep_state"], ops["kv_append"]) == (scans + convs, 2 * attentions)


@pytest.mark.parametrize("model_type", ["falcon_h1", "jamba", "nemotron_h"])
def test_decode_reads_states_and_writes_them_where_they_were(model_type: str) -> None:
    graph, (_, scans, convs, attentions) = traced(model_type, Workload.DECODE), CASES[model_type]
    ops = counted(graph)
    assert (ops["scan"], ops["conv"], ops["attention"]) == (scans, convs, attentions)
    names: Counter[str] = Counter()
    for region in graph.regions:
        for v in region.of_role(Role.CACHE):
            names[v.name] += graph.counts[region.name]
        caches = {v.id for v in region.of_role(Role.CACHE)}
        assert all(region.by_id[n.key].storage in caches for n in region.nodes if n.op == "keep_state")
    assert names["cache.*.state"] == scans
    assert names["cache.*.conv_state"] == convs
    assert names["cache.*.keys"] == names["cache.*.values"] == attentions


def test_nothing_of_a_recurrence_is_spelled_out(traced_mamba: Graph) -> None:
    """No product, no running sum, no loop: between the projections there are only a convolution and a scan."""
    (block,) = (r for r in traced_mamba.regions if r.name == "block0")
    kinds = [op_def(n.op).kind for n in block.nodes]
    assert kinds.count(OpClass.MATMUL) == 2  # in, out
    assert kinds.count(OpClass.SCAN) == kinds.count(OpClass.CONV) == 1


@pytest.fixture(scope="module")
def traced_mamba() -> Graph:
    return traced("mamba2", Workload.PREFILL)


def test_states_are_kept_in_fp32(traced_mamba: Graph) -> None:
    """[batch, heads, n, p] and [batch, channels, kernel]: 128 values and 2 x 2 x 32 of B and C pass the convolution."""
    (block,) = (r for r in traced_mamba.regions if r.name == "block0")
    kept = {block.by_id[n.key].type.rank: block.by_id[n.key].type for n in block.nodes if n.op == "keep_state"}
    assert kept[4].dims[1:] == (8, 32, 16)
    assert kept[4].dtype is DType.FP32
    assert kept[3].dims[1:] == (128 + 2 * 2 * 32, 4)
    assert kept[3].dtype is DType.BF16


def test_layers_that_share_their_weights_count_them_once() -> None:
    """Zamba: one block of attention for several layers, and its gradient adds up from layer to layer."""
    fields = {
        **BASE, "num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid"] * 2,
        "mamba_d_state": 8, "mamba_dt_rank": 4, "mamba_expand": 2, "n_mamba_heads": 2, "attention_head_dim": 32,
    }  # fmt: skip
    config = config_of("zamba", {"model_type": "zamba", **fields})
    graph = load_config(config, Workload.TRAIN)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(**json.loads(config.text))
        )
    assert graph.num_parameters == sum(p.numel() for p in model.parameters())
    assert counted(graph)["scan"] == 4 * 2  # one a head of Mamba
    assert graph.notes == ()
