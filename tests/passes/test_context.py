"""Context parallelism: what crosses the ranks for attention, and that nothing else does."""

from __future__ import annotations

from collections import Counter

import pytest

from slipstick.frontend import load
from slipstick.ir.expr import Expr, share, symbol
from slipstick.ir.graph import Graph, Region
from slipstick.ir.ops import call_of, work_of
from slipstick.ir.ops.attention import AttentionAttrs
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.placement import Shard
from slipstick.passes.manager import parse_pipeline

MBS, SEQ, TP, CP = (symbol(s) for s in ("mbs", "seq", "tp", "cp"))
KV = MBS * SEQ * share(8, "tp") * 128 * 2  # one of keys and values of Llama 3.1 8B: 8 heads of 128, bf16


@pytest.fixture(scope="module")
def llama() -> Graph:
    return load("llama-3.1-8b", "train")


def block(graph: Graph, options: str) -> Region:
    return parse_pipeline(f"shard{{{options}}}").run(graph)[0].region("block0")


def crossing(region: Region, phase: str) -> Counter[tuple[str, Expr]]:
    found: Counter[tuple[str, Expr]] = Counter()
    for node in region.nodes:
        if isinstance(node.attrs, CollectiveAttrs) and node.attrs.axis == "cp" and node.phase == phase:
            found[node.op, message_bytes(call_of(region, node))] += 1
    return found


@pytest.mark.parametrize("method", ["allgather", "ring"])
def test_keys_and_values_are_gathered_and_their_gradients_scattered(llama: Graph, method: str) -> None:
    region = block(llama, f'cp="{method}"')
    assert crossing(region, "forward") == {("all_gather", KV): 2}
    assert crossing(region, "backward") == {("all_gather", KV): 2, ("reduce_scatter", KV): 2}


def test_ulysses_exchanges_sequence_for_heads_and_back(llama: Graph) -> None:
    queries = MBS * SEQ * 32 * 128 * 2 / TP / CP
    exchanges = {("all_to_all", queries): 2, ("all_to_all", KV / CP): 2}
    region = block(llama, 'cp="ulysses"')
    assert crossing(region, "forward") == exchanges  # q, k, v in, the result out
    # The gradient of the result in, those of q, k and v out; q, k, v, the result and its statistics were kept.
    assert crossing(region, "backward")["all_to_all", queries] == 2
    assert crossing(region, "backward")["all_to_all", KV / CP] == 2


@pytest.mark.parametrize("method", ["allgather", "ulysses"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b", "gpt2", "deepseek-v3"])
def test_every_rank_does_its_part_of_the_products(model: str, method: str) -> None:
    graph = load(model, "train")
    sharded = parse_pipeline(f'shard{{cp="{method}"}}').run(graph)[0]
    ones = {"tp": 1.0, "dp": 1.0, "mbs": 1.0, "batch": 1.0, "seq": 4096.0}
    for region in sharded.regions:
        whole = sum(
            float(work_of(r, n).tensor_flops.evaluate(ones)) for r in [graph.region(region.name)] for n in r.nodes
        )
        part = sum(float(work_of(region, n).tensor_flops.evaluate({**ones, "cp": 4.0})) for n in region.nodes)
        assert part * 4 == pytest.approx(whole, rel=1e-12)


def test_weights_are_the_same_on_all_ranks_and_their_gradients_summed_once_a_step(llama: Graph) -> None:
    region = parse_pipeline('accumulate,shard{cp="allgather"},bucket').run(llama)[0].region("block0")
    reduced = [n.attrs.axis for n in region.nodes if isinstance(n.attrs, CollectiveAttrs) and n.phase == "reduce"]
    assert reduced == ["cp+dp", "tp/8"]


def test_causal_work_is_dealt_out_evenly(llama: Graph) -> None:
    gathered, heads = block(llama, 'cp="allgather"'), block(llama, 'cp="ulysses"')
    flags = [[n.attrs.balanced for n in r.nodes if isinstance(n.attrs, AttentionAttrs)] for r in (gathered, heads)]
    assert flags == [[True, True], [False, False]]


def test_activations_lie_over_the_sequence(llama: Graph) -> None:
    region = block(llama, 'cp="allgather", sp=true')
    port = next(v for v in region.values if v.name == "x0")
    assert dict(port.placements)["cp"] == Shard(1)
    assert port.type.dims[1] == SEQ / CP / TP
