"""Attention over windows of tokens and over chosen blocks: FLOPs as torch counts them, cached entries, and lengths."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import cache

import pytest

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

from slipstick.benchmarks.coverage.graphs import counted, of_config
from slipstick.benchmarks.coverage.oracle import BATCH, Oracle, count
from slipstick.ir.graph import Graph, Phase, Workload
from slipstick.ir.ops.fused.attention import AttentionAttrs
from slipstick.ir.sizes.expr import symbol
from slipstick.ir.sizes.rounding import floor_div

KV = symbol("kv")
# Heads, their width, the indexer's, and tokens of a window that one entry stands for.
HEADS, WIDTH, INDEX_HEADS, INDEX_WIDTH, CHOSEN, RATE, HEAVY = 4, 32, 4, 16, 5, 4, 16
V4: Mapping[str, object] = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": HEADS, "head_dim": WIDTH, "q_lora_rank": 32,
    "o_groups": 2, "o_lora_rank": 16, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "vocab_size": 128, "index_n_heads": INDEX_HEADS, "index_head_dim": INDEX_WIDTH, "index_topk": CHOSEN,
    "sliding_window": 64, "num_hash_layers": 1,
    "compress_rates": {"compressed_sparse_attention": RATE, "heavily_compressed_attention": HEAVY},
    "layer_types": ["compressed_sparse_attention", "heavily_compressed_attention"],
}  # fmt: skip
BUDGET = 8
QWEN4: Mapping[str, object] = {
    "hidden_size": 64, "num_hidden_layers": 2, "layer_types": ["linear_attention", "indexed_attention"],
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2, "vocab_size": 128,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 32, "indexer_budget": BUDGET,
    "indexer_compress_ratio": RATE,
}  # fmt: skip


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Transformers says what a config leaves open; nobody is there to read it."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@cache
def of_v4(workload: str) -> Graph:
    return of_config("deepseek_v4", V4, Workload(workload))


@cache
def theirs() -> Oracle:
    return count("deepseek_v4", V4)


def attention(graph: Graph) -> list[AttentionAttrs]:
    nodes = (n for r in graph.regions for n in r.nodes if n.op == "attention")
    return [n.attrs for n in nodes if isinstance(n.attrs, AttentionAttrs)]


@pytest.mark.slow
@pytest.mark.oracle
def test_entries_of_windows_are_attended_to_beside_the_last_tokens() -> None:
    """Both parts together have the products that transformers has over one tensor of keys, forward and backward."""
    train, found = of_v4("train"), theirs()
    assert counted(train, Phase.FORWARD) == found.forward
    assert counted(train, Phase.BACKWARD) == found.backward
    assert counted(of_v4("prefill"), Phase.FORWARD) == found.prefill
    assert float(train.num_parameters.evaluate({})) == found.num_parameters
    own, beside = [a for a in attention(train) if a.window], [a for a in attention(train) if not a.window]
    assert [a.window for a in own] == [64] * 2
    # One layer has an indexer that chooses entries, in the other each query sees the windows before it.
    assert [(a.keys, a.bias) for a in beside] == [(CHOSEN, False), (0, True)]


@pytest.mark.slow
@pytest.mark.oracle
def test_a_decode_step_closes_a_window_of_each_layer() -> None:
    """It has one entry more than torch's, whose last token closes none: of two layers, and of the indexer of one."""
    entry, scored = 4 * HEADS * WIDTH, 2 * INDEX_HEADS * INDEX_WIDTH
    decode, found = of_v4("decode"), theirs().decode
    assert found is not None
    assert counted(decode, Phase.FORWARD).flops - found.flops == BATCH * (2 * entry + scored)


def test_entries_are_cached_one_a_window() -> None:
    values = (v for r in of_v4("decode").regions for v in r.values)
    kept = sorted((v.name.rpartition(".")[2], str(v.type.dims[2])) for v in values if v.name and ".entries." in v.name)
    sparse, heavy = str(floor_div(KV, RATE)), str(floor_div(KV, HEAVY))
    assert kept == [("compressor", heavy), ("compressor", sparse), ("indexer", sparse)]


def test_a_recording_without_a_whole_window_is_not_taken_for_longer_sequences() -> None:
    """An example of 48 tokens has windows of 16 and of 4; a graph of it holds from two of the longer ones on."""
    (bound,) = of_v4("train").bounds
    assert (bound.name, bound.low, bound.high, bound.step) == ("seq", 2 * HEAVY, 0, HEAVY)


@pytest.mark.parametrize("workload", ["train", "decode"])
def test_an_indexer_of_blocks_chooses_their_tokens_and_those_behind_the_last(workload: str) -> None:
    graph = of_config("qwen4_exp_text", QWEN4, Workload(workload))
    (chosen,) = attention(graph)
    assert chosen.keys == BUDGET + RATE - 1
    (scores,) = ((r, n) for r in graph.regions for n in r.nodes if n.op == "index_keys")
    region, node = scores
    q, k, _ = (region.by_id[i].type.dims for i in node.inputs)
    length = KV + 1 if workload == "decode" else symbol("seq")
    assert (q[1], k[2], k[3]) == (4, floor_div(length, RATE), 32)


def test_positions_of_one_length_make_a_graph_of_that_length() -> None:
    """Axial positions of 8 x 16 tokens train at 128 tokens; the line of the model's code is named."""
    fields = {
        "attn_layers": ["local", "lsh"], "axial_pos_shape": [8, 16], "axial_pos_embds_dim": [16, 48],
        "hidden_size": 64, "num_attention_heads": 2, "attention_head_size": 32, "feed_forward_size": 64,
        "max_position_embeddings": 128, "num_buckets": 4, "is_decoder": True, "vocab_size": 128,
    }  # fmt: skip
    graph = of_config("reformer", fields, Workload.TRAIN)
    assert [(b.name, b.low, b.high) for b in graph.bounds] == [("seq", 128, 128)]
    assert any("seq is fixed at 128" in note and "modeling_reformer.py" in note for note in graph.notes)
