"""Attention of transformers' models: biases, soft caps, chosen keys, windows, sinks, chunks, and rotary embedding."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

import pytest

from slipstick.frontend.fold.balance import count_parameters
from slipstick.frontend.huggingface.configs.building import build
from slipstick.frontend.huggingface.configs.models import config_of
from slipstick.frontend.loading import load_config
from slipstick.ir.graph import Graph, Node, Region, Workload
from slipstick.ir.ops import work_of
from slipstick.ir.ops.fused.attention import AttentionAttrs, extra_inputs
from slipstick.ir.sizes.expr import symbol
from slipstick.ir.types import DType
from tests.frontend.huggingface.configs.test_experts_of_models import COMMON, LATENT

Fields: TypeAlias = dict[str, object]
B, S, KV = symbol("batch"), symbol("seq"), symbol("kv")
DENSE: Fields = COMMON | {"intermediate_size": 96, "head_dim": 16}
SPARSE: Fields = COMMON | LATENT | {
    "intermediate_size": 96, "moe_intermediate_size": 32, "n_routed_experts": 8, "n_shared_experts": 1, "n_group": 1,
    "topk_group": 1, "first_k_dense_replace": 2, "index_n_heads": 4, "index_head_dim": 16, "index_topk": 5,
}  # fmt: skip


def traced(model_type: str, fields: Fields, workload: str = "prefill") -> Graph:
    config = config_of(model_type, {"model_type": model_type} | fields)
    graph = load_config(config, Workload(workload))
    assert graph.num_parameters == count_parameters(build(config.text, DType.BF16))
    return graph


def nodes(graph: Graph, op: str) -> list[tuple[Region, Node, AttentionAttrs]]:
    found = []
    for region in graph.regions:
        for node in region.nodes:
            if node.op == op:
                assert isinstance(node.attrs, AttentionAttrs)
                found.append((region, node, node.attrs))
    return found


@pytest.mark.parametrize(
    ("model_type", "fields"),
    [("bloom", {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 128}),
     ("mpt", {"d_model": 64, "n_layers": 2, "n_heads": 4, "vocab_size": 128, "max_seq_len": 64})],
    ids=["bloom", "mpt"],
)  # fmt: skip
@pytest.mark.parametrize(("workload", "keys"), [("train", S), ("decode", KV + 1)])
def test_alibi_is_one_number_a_head_and_key(model_type: str, fields: Fields, workload: str, keys: object) -> None:
    graph = traced(model_type, fields, workload)
    ((region, node, attrs),) = nodes(graph, "attention")
    bias = region.by_id[extra_inputs("attention", attrs, node.inputs)["bias"]].type
    assert attrs == AttentionAttrs(bias=True)
    assert bias.dims[1:] == (4, 1, keys)
    assert bias.dims[0] in (1, B)
    # Slopes are no parameters: the backward phase gives no gradient of the bias.
    assert all(len(n.outputs) == 3 for _, n, _ in nodes(graph, "attention_bwd"))


def test_soft_caps_and_alternating_windows() -> None:
    graph = traced("gemma2", DENSE | {"attn_logit_softcapping": 30.0, "sliding_window": 24})
    assert {(a.softcap, a.window) for _, _, a in nodes(graph, "attention")} == {(30.0, 24), (30.0, 0)}


@pytest.mark.parametrize("model_type", ["deepseek_v32", "glm_moe_dsa"])
def test_an_indexer_chooses_the_keys_of_each_query(model_type: str) -> None:
    graph = traced(model_type, SPARSE)
    ((region, node, attrs),) = nodes(graph, "attention")
    assert attrs == AttentionAttrs(keys=5)
    chooser = region.producer[extra_inputs("attention", attrs, node.inputs)["ids"]]
    assert chooser.op == "index_keys"
    assert work_of(region, chooser).tensor_flops == B * S * S * (2 * 4 * 16)
    # What the module does with the scores of all heads and keys on its way to the choice is in no graph.
    widest = [v.type.dims for v in region.values if v.type.rank == 4 and v.type.dims.count(S) > 1]
    assert widest == []


def test_an_indexer_caches_its_keys_and_is_not_trained_by_the_loss() -> None:
    decode = traced("deepseek_v32", SPARSE, "decode")
    caches = Counter(v.name.rpartition(".")[2] for r in decode.regions for v in r.values if v.role == "cache")
    assert caches == {"keys": 1, "values": 1, "index_keys": 1}
    train = traced("deepseek_v32", SPARSE, "train")
    ops = Counter(n.op for r in train.regions for n in r.nodes)
    assert (ops["index_keys"], ops["attention"], ops["attention_bwd"]) == (1, 1, 1)


def test_layers_that_see_their_chunk_have_its_keys() -> None:
    fields = DENSE | {"num_hidden_layers": 4, "num_local_experts": 4, "attention_chunk_size": 32,
                      "intermediate_size_mlp": 48, "no_rope_layers": [1, 0, 1, 0]}  # fmt: skip
    graph = traced("llama4_text", fields)
    assert {a.window for _, _, a in nodes(graph, "attention")} == {0, 32}
    # Rotated are queries and keys of the layers with positions, each by one operator.
    ropes = [(r.name, sum(n.op == "rope" for n in r.nodes)) for r in graph.regions]
    assert sorted(count for _, count in ropes) == [0, 0, 0, 2]


@pytest.mark.parametrize(
    ("model_type", "fields", "norms"),
    [("cohere", {"use_qk_norm": True}, 0), ("qwen3", {}, 4), ("gemma4_unified_text", {}, 0)],
)
def test_queries_and_keys_are_rotated_by_one_operator_each(model_type: str, fields: Fields, norms: int) -> None:
    graph = traced(model_type, DENSE | fields)
    layer = next(r for r in graph.regions if r.name == "block0")
    ops = Counter(n.op for n in layer.nodes)
    assert (ops["rope"], ops["attention"]) == (2, 1)
    # Qwen3: in front of attention and of the FFN, and of queries and of keys.
    assert not norms or ops["norm"] == norms
