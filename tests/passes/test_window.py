"""Caches of windowed layers, and bytes of KV cache a token by the closed forms of MHA, GQA, MQA, MLA and windows."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import Lowered, estimate, lower
from slipstick.frontend import load
from slipstick.ir.graph import Graph, Node, Region, Workload
from slipstick.ir.ops import work_of
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.sizes.expr import as_expr, symbol
from slipstick.ir.sizes.rounding import smaller
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.text.printer import print_graph

# Of each model: layers, elements of a cached token and layer, layers with a window, and the window.
# Llama 2 7B: 32 heads of 128; Llama 3.1 70B: 8 key-value heads of 128; DeepSeek-V3: 512 + 64; gpt-oss: 8 of 64.
CACHES = {
    "llama-2-7b": (32, 2 * 32 * 128, 0, 0),
    "llama-3.1-70b": (80, 2 * 8 * 128, 0, 0),
    "deepseek-v3": (61, 512 + 64, 0, 0),
    "gpt-oss-120b": (36, 2 * 8 * 64, 18, 128),
}
# Over how many ranks at most heads are distributed; latents are whole on every rank.
HEADS = {"llama-2-7b": 32, "llama-3.1-70b": 8, "deepseek-v3": 1, "gpt-oss-120b": 8}


@cache
def lowered(model: str, phase: Workload) -> Lowered:
    return lower(load(model, str(phase)), Family(workload=phase))


def cache_bytes(model: str, phase: Workload, tokens: int, tp: int, batch: int) -> float:
    done, decode = lowered(model, phase), phase is Workload.DECODE
    plan = make_plan(
        num_gpus=tp, tp=tp, seq_len=1 if decode else tokens, kv_len=tokens - 1 if decode else 0, micro_batch=batch,
        family=Family(workload=phase),
    )  # fmt: skip
    return estimate(done.source, load_system("dgx-h200"), plan, lowered=done).memory_bytes["kv_cache"]


@pytest.mark.parametrize("model", CACHES)
@pytest.mark.parametrize("phase", [Workload.PREFILL, Workload.DECODE])
@settings(max_examples=10)
@given(tokens=st.integers(1, 40000), tp=st.sampled_from([1, 2, 4, 8, 16, 32]), batch=st.integers(1, 64))
def test_cache_is_that_of_the_closed_form(model: str, phase: Workload, tokens: int, tp: int, batch: int) -> None:
    layers, elements, windowed, window = CACHES[model]
    held = (layers - windowed) * tokens + windowed * min(tokens, window)
    # With more ranks than heads, neighbours hold copies, as in Megatron-Core and vLLM.
    assert cache_bytes(model, phase, tokens, tp, batch) == batch * held * elements * 2 / min(tp, HEADS[model])


def test_one_head_for_all_queries_is_cached_once() -> None:
    # MQA: 2 d elements a token and layer, whole on every rank. Made from the tiny model by leaving one head.
    graph = one_head(load("llama-3.1-8b", "decode"))
    family = Family(workload=Workload.DECODE)
    region = lower(graph, family).graph.region("block0")
    appends = [n for n in region.nodes if n.op == "kv_append"]
    assert [region.by_id[n.key].type.dims[1] for n in appends] == [1, 1]


def one_head(graph: Graph) -> Graph:
    """A Llama with one head of keys and values, read back from its text."""
    text = print_graph(graph).replace("[batch, 8, ", "[batch, 1, ").replace("[batch, 1, 8, 128]", "[batch, 1, 1, 128]")
    return parse_graph(text.replace("[batch, 1, 1024]", "[batch, 1, 128]").replace("[1024, 4096]", "[128, 4096]"))


def attention(region: Region) -> Node:
    return next(n for n in region.nodes if n.op == "attention")


def test_a_decode_step_reads_the_window_alone() -> None:
    graph = lowered("gpt-oss-120b", Workload.DECODE).graph
    kinds = {r.name: attention(r) for r in graph.regions if any(n.op == "attention" for n in r.nodes)}
    windowed, whole = sorted(kinds, key=lambda name: -getattr(kinds[name].attrs, "window", 0))

    def read(name: str, kv: float) -> float:
        at = {"mbs": 1.0, "kv": kv, "tp": 1.0}
        return float(work_of(graph.region(name), kinds[name]).read_bytes.evaluate(at))

    each = 2 * 8 * 64 * 2
    assert read(whole, 1000) - read(whole, 999) == each
    assert read(windowed, 100) - read(windowed, 99) == each
    assert read(windowed, 127) == read(windowed, 128) == read(windowed, 1e6)


def test_a_longer_context_costs_windowed_layers_nothing() -> None:
    done, system = lowered("gpt-oss-120b", Workload.DECODE), load_system("dgx-h200")

    def seconds(kv: int) -> float:
        plan = make_plan(num_gpus=2, tp=2, seq_len=1, kv_len=kv, micro_batch=8, family=Family(workload=Workload.DECODE))
        table = estimate(done.source, system, plan, lowered=done).table
        found = table.timing.sums(lambda e: (e.kind == "attention", getattr(e.attrs, "window", 0)))
        return float(found[True, 128][0])

    assert seconds(128) == seconds(32768)


def test_a_prompt_leaves_its_last_tokens_and_attends_to_all() -> None:
    graph = lowered("gpt-oss-120b", Workload.PREFILL).graph
    region = next(r for r in graph.regions if any(getattr(n.attrs, "window", 0) for n in r.nodes))
    q, k = (region.by_id[i].type.dims[2] for i in attention(region).inputs[:2])
    assert q == k == symbol("seq")
    held = {region.by_id[n.key].type.dims[2] for n in region.nodes if n.op == "kv_append"}
    assert held == {smaller(symbol("seq"), 128)}


@pytest.mark.parametrize("method", ["allgather", "ring", "ulysses"])
def test_context_parallel_ranks_hold_their_part_of_the_window(method: str) -> None:
    family = Family(workload=Workload.PREFILL, cp=method)
    plan = make_plan(num_gpus=4, cp=4, seq_len=8192, family=family)
    answer = estimate(load("gpt-oss-20b", "prefill"), load_system("dgx-h200"), plan)
    assert answer.memory_bytes["kv_cache"] == 12 * (8192 + 128) * 2 * 8 * 64 * 2 / 4


def test_models_without_windows_are_left_alone_and_graphs_print_and_parse() -> None:
    times = {t.name: t for t in lowered("llama-2-7b", Workload.DECODE).pass_times}
    assert times["window"].changed is False
    for phase in (Workload.PREFILL, Workload.DECODE):
        graph = lowered("gpt-oss-120b", phase).graph
        assert parse_graph(print_graph(graph)) == graph


def test_a_limited_length_is_a_symbol_like_any_other() -> None:
    length = as_expr(smaller(symbol("kv"), 127)) + 1
    assert length.symbols == {"kv"}
    assert list(np.asarray(length.evaluate({"kv": np.array([5.0, 127.0, 4000.0])}))) == [6.0, 128.0, 128.0]
    assert length.substitute({"kv": 40}) == 41
    assert length.substitute({"kv": 4000}) == 128
    assert length.substitute({"kv": symbol("seq") + 1}) == as_expr(smaller(symbol("seq"), 126)) + 2
