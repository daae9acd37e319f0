"""Context parallelism: what crosses the ranks for attention, and that nothing else does."""

from __future__ import annotations

from collections import Counter

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.cost.memory.liveness import live_bytes
from slipstick.driver.estimate import estimate, lower
from slipstick.frontend import load
from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Graph, Region
from slipstick.ir.ops import call_of, work_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.ops.fused.attention import AttentionAttrs
from slipstick.ir.placement import MeshAxis, Shard
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.plan.divisibility import check_divisibility
from slipstick.ir.sizes.expr import Expr, symbol
from slipstick.ir.sizes.rounding import share
from slipstick.passes.manager import parse_pipeline

MBS, SEQ, TP, CP, UP = (symbol(s) for s in ("mbs", "seq", "tp", "cp", "up"))
KV = MBS * SEQ * share(8, "tp") * 128 * 2  # one of keys and values of Llama 3.1 8B: 8 heads of 128, bf16


@pytest.fixture(scope="module")
def llama() -> Graph:
    return load("llama-3.1-8b", "train")


def block(graph: Graph, options: str) -> Region:
    return parse_pipeline(f"shard{{{options}}}").run(graph)[0].region("block0")


def crossing(region: Region, phase: str, axis: str = "cp") -> Counter[tuple[str, Expr]]:
    found: Counter[tuple[str, Expr]] = Counter()
    for node in region.nodes:
        if isinstance(node.attrs, CollectiveAttrs) and node.attrs.axis == axis and node.phase == phase:
            found[node.op, message_bytes(call_of(region, node))] += 1
    return found


def test_keys_and_values_are_gathered_and_their_gradients_scattered(llama: Graph) -> None:
    region = block(llama, 'cp="allgather"')
    assert crossing(region, "forward") == {("all_gather", KV): 2}
    assert crossing(region, "backward") == {("all_gather", KV): 2, ("reduce_scatter", KV): 2}


def test_a_ring_passes_keys_and_values_on_together(llama: Graph) -> None:
    """One exchange of k and v, again in the backward phase, and one of their gradients: cp - 1 steps of 2 KV / cp."""
    region = block(llama, 'cp="ring"')
    assert crossing(region, "forward") == {("ring_gather", 2 * KV): 1}
    assert crossing(region, "backward") == {("ring_gather", 2 * KV): 1, ("ring_scatter", 2 * KV): 1}


def test_a_ring_holds_two_blocks(llama: Graph) -> None:
    """Gathered keys and values live whole beside the attention; of a ring, the block in use and the next one."""
    regions = {m: block(llama, f'cp="{m}"') for m in ("allgather", "ring")}
    live = {m: live_bytes(r)[next(i for i, n in enumerate(r.nodes) if n.op == "attention")] for m, r in regions.items()}
    at = {"mbs": 1.0, "seq": 8192.0, "tp": 1.0, "cp": 8.0}
    difference = float((live["allgather"] - live["ring"]).evaluate(at))
    assert difference == float((2 * KV - 2 * KV / CP * 2).evaluate(at))


def test_ulysses_deals_out_whole_heads(llama: Graph) -> None:
    """Llama 3.1 8B has 8 heads of keys: cp x tp divides 8."""
    lowered = lower(llama, Family(cp="ulysses"))
    with pytest.raises(PlanError, match=r"cp=16 is more than the 8 key-value heads .* legal cp: 1, 2, 4, 8"):
        check_divisibility(lowered.graph, make_plan(num_gpus=16, cp=16, seq_len=8192, family=Family(cp="ulysses")))
    with pytest.raises(PlanError, match=r"tp=4 is more than the 2 key-value heads .* that cp=4 leaves; legal tp: 1, 2"):
        check_divisibility(lowered.graph, make_plan(num_gpus=16, tp=4, cp=4, seq_len=8192, family=Family(cp="ulysses")))
    check_divisibility(lowered.graph, make_plan(num_gpus=8, tp=2, cp=4, seq_len=8192, family=Family(cp="ulysses")))


def test_heads_are_exchanged_inside_a_ring(llama: Graph) -> None:
    """Of cp x up ranks, groups of up trade sequence for heads, and each then passes on the keys of its heads only."""
    region = block(llama, 'cp="ring", usp=true')
    queries = MBS * SEQ * 32 * 128 * 2 / TP / CP / UP
    assert crossing(region, "forward") == {("ring_gather", 2 * KV / UP): 1}
    assert crossing(region, "backward") == {("ring_gather", 2 * KV / UP): 1, ("ring_scatter", 2 * KV / UP): 1}
    exchanges = {("all_to_all", queries): 2, ("all_to_all", KV / CP / UP): 2}
    assert crossing(region, "forward", "up") == crossing(region, "backward", "up") == exchanges


def test_weights_are_summed_over_both_parts_of_the_sequence(llama: Graph) -> None:
    region = parse_pipeline('accumulate,shard{cp="ring", usp=true},bucket').run(llama)[0].region("block0")
    reduced = [n.attrs.axis for n in region.nodes if isinstance(n.attrs, CollectiveAttrs) and n.phase == "reduce"]
    # Besides, ranks that hold copies of the same heads add those up.
    assert reduced == ["up+cp+dp", "tp/8"]


def test_an_inner_degree_of_one_takes_no_time(llama: Graph) -> None:
    """Memory is another matter: what an exchange makes counts as a copy, even among one rank."""
    system = load_system("dgx-h100")
    plain, inner = (
        estimate(llama, system, make_plan(num_gpus=8, tp=2, cp=4, seq_len=8192, family=Family(cp="ring", usp=usp)))
        for usp in (False, True)
    )
    assert inner.breakdown_s == pytest.approx(plain.breakdown_s, rel=1e-12)
    assert inner.metrics["step_time_s"] == pytest.approx(plain.metrics["step_time_s"], rel=1e-12)


def test_the_inner_degree_divides_heads_and_ranks(llama: Graph) -> None:
    family = Family(cp="ring", usp=True)
    graph = lower(llama, family).graph
    with pytest.raises(
        PlanError, match=r"cp_ulysses=16 is more than the 8 key-value heads .* legal cp_ulysses: 1, 2, 4, 8"
    ):
        check_divisibility(graph, make_plan(num_gpus=32, cp=32, cp_ulysses=16, seq_len=8192, family=family))
    with pytest.raises(PlanError, match="cp_ulysses=3 does not divide cp=8; legal cp_ulysses: 1, 2, 4, 8"):
        make_plan(num_gpus=8, cp=8, cp_ulysses=3, seq_len=8192, family=family)
    with pytest.raises(PlanError, match="cp_ulysses=2 lies inside --cp-method ring or allgather, not ulysses"):
        make_plan(num_gpus=8, cp=8, cp_ulysses=2, seq_len=8192, family=Family(cp="ulysses", usp=True))
    plan = make_plan(num_gpus=8, cp=8, cp_ulysses=2, seq_len=8192, family=family)
    assert (plan.mesh["cp"], plan.mesh["up"]) == (4, 2)


def test_a_ring_of_one_takes_no_time(llama: Graph) -> None:
    system = load_system("dgx-h100")
    alone, ring = (
        estimate(llama, system, make_plan(num_gpus=1, seq_len=8192, family=Family(cp=m))) for m in ("none", "ring")
    )
    assert ring.breakdown_s["comm.cp"] == 0
    assert ring.metrics["step_time_s"] == pytest.approx(alone.metrics["step_time_s"], rel=1e-12)


def test_the_time_of_a_ring(llama: Graph) -> None:
    """cp - 1 steps, each of one block of keys and values over one link, and one launch."""
    system, cp = load_system("dgx-h100"), 4
    plan = make_plan(num_gpus=cp, cp=cp, seq_len=8192, family=Family(cp="ring"))
    answer = estimate(llama, system, plan)
    found = next(s for e, s in answer.table.timing.rows() if e.op == "ring_gather" and e.phase == "forward")
    block_bytes = 2 * 8192 / cp * 8 * 128 * 2
    link, nccl = system.levels[0], system.kernels.collective["nccl"]
    step = link.latency_s + nccl.step_s + block_bytes / (link.bytes_per_s * nccl.send) + nccl.overhead_s
    assert found == pytest.approx((cp - 1) * step, rel=1e-9)


def test_ulysses_exchanges_sequence_for_heads_and_back(llama: Graph) -> None:
    queries = MBS * SEQ * 32 * 128 * 2 / TP / CP
    exchanges = {("all_to_all", queries): 2, ("all_to_all", KV / CP): 2}
    region = block(llama, 'cp="ulysses"')
    assert crossing(region, "forward") == exchanges  # q, k, v in, the result out
    # The gradient of the result in, those of q, k and v out; q, k, v, the result and its statistics were kept.
    assert crossing(region, "backward")["all_to_all", queries] == 2
    assert crossing(region, "backward")["all_to_all", KV / CP] == 2


@pytest.mark.parametrize("method", ["allgather", "ring", "ulysses"])
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
    assert port.placement(MeshAxis.CP) == Shard(1)
    assert port.type.dims[1] == SEQ / CP / TP
