"""Queries, keys and values in one tensor: what attention then keeps, against counts by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slipstick.driver.estimate import lower
from slipstick.frontend import config_of, load_config
from slipstick.ir.graph import Graph, Region
from slipstick.ir.plan import Family
from slipstick.ir.verify import verify
from slipstick.passes.manager import parse_pipeline

Traced = Callable[[str], Graph]
ENV = {"mbs": 3.0, "seq": 64.0, "tp": 2.0, "dp": 1.0}
HIDDEN, TOKENS = 64, 3 * 64


@pytest.fixture(scope="module")
def all_heads() -> Graph:
    """tiny-llama with as many heads for keys as for queries."""
    pytest.importorskip("transformers", reason="builds the model; install slipstick[hf]")
    config = Path(__file__).parents[2] / "data" / "configs" / "tiny-llama.json"
    return load_config(config_of("all-heads", {**json.loads(config.read_text()), "num_key_value_heads": 4}))


def block(graph: Graph, kernels: str, **policy: object) -> Region:
    return lower(graph, Family(kernels=kernels, **policy)).graph.region("block0")  # type: ignore[arg-type]


def test_keys_and_values_are_kept_twice(traced: Traced) -> None:
    # tiny-gpt2 has as many heads for keys as for queries and one projection whose result attention reads in place:
    # 2 bytes each for queries, keys and values. Merged: those three, and keys and values again.
    graph = traced("tiny-gpt2.train")
    saved = {k: float(block(graph, k).saved_bytes.evaluate(ENV)) for k in ("eager", "merged")}
    assert saved["merged"] - saved["eager"] == 2 * 2 * TOKENS * HIDDEN / 2


def test_three_projections_give_what_one_gives(all_heads: Graph) -> None:
    # tiny-llama with as many heads for keys as for queries, each rotated in a tensor of its own.
    saved = {k: float(block(all_heads, k).saved_bytes.evaluate(ENV)) for k in ("eager", "merged")}
    assert saved["merged"] - saved["eager"] == 2 * 2 * TOKENS * HIDDEN / 2


def test_attention_reads_queries_where_all_three_lie(all_heads: Graph) -> None:
    made = block(all_heads, "merged")
    forward = next(n for n in made.nodes if n.op == "attention")
    backward = next(n for n in made.nodes if n.op == "attention_bwd")
    queries = made.by_id[forward.inputs[0]]
    assert made.by_id[queries.storage].type.dims[3] == 3 * queries.type.dims[3]
    assert backward.inputs[1:4] == forward.inputs[:3]
    assert made.by_id[queries.storage].saved


def test_fewer_heads_for_keys_change_nothing(traced: Traced) -> None:
    graph = traced("tiny-llama.train")
    assert block(graph, "merged") == block(graph, "eager")


def test_the_graph_stays_sound_and_inference_is_left_alone(traced: Traced) -> None:
    for policy in ("none", "full", "selective"):
        verify(lower(traced("tiny-gpt2.train"), Family(kernels="merged", recompute=policy, sp=True)).graph, "all")
    decode = parse_pipeline("shard").run(traced("tiny-llama.decode"))[0]
    assert parse_pipeline("merge_heads").run(decode)[1][0].changed is False
