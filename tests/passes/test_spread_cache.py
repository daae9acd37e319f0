"""Context parallelism of decode: tokens of a cache over ranks, parts of attention added up, layers split over all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import Estimate, Lowered, estimate, lower
from slipstick.frontend import load
from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Graph, Role
from slipstick.ir.ops import Trait, call_of, has, work_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.plan import PlanWords, plan_of
from slipstick.ir.sizes.expr import symbol

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
NUM_EXPERTS = json.loads((CONFIGS / "tiny-mixtral.json").read_text())["num_local_experts"]
SYSTEM = load_system("gb200-nvl72")
MBS, KV, TP, CP = (symbol(s) for s in ("mbs", "kv", "tp", "cp"))


@pytest.fixture(scope="module")
def llama() -> Graph:
    return load("llama-3.1-70b", "decode")


KNOWN: dict[tuple[str, bool, bool], Lowered] = {}


def answer(graph: Graph, tp: int, cp: int, kv: int = 65536, mbs: int = 4) -> Estimate:
    """Estimate a step; plans of one family are lowered once."""
    words = PlanWords(phase="decode", num_gpus=tp * cp, tp=tp, cp=cp, seq_len=kv, micro_batch=mbs, kernels="fused")
    plan, key = plan_of(words), (graph.name, tp > 1, cp > 1)
    if key not in KNOWN:
        KNOWN[key] = lower(graph, plan.family)
    return estimate(graph, SYSTEM, plan, lowered=KNOWN[key])


def test_a_rank_attends_over_its_tokens_and_sends_its_part(llama: Graph) -> None:
    words = PlanWords(phase="decode", num_gpus=16, tp=8, cp=2, seq_len=65536, kernels="eager")
    region = lower(llama, plan_of(words).family).graph.region("block0")
    attention = next(n for n in region.nodes if has(n, Trait.ATTENDS))
    # 64 heads over tp, of 128; two products of 2 FLOPs a weight, over the kv / cp tokens of the rank and the new one.
    assert work_of(region, attention).tensor_flops == MBS * 64 / TP * 128 * 4 * (KV / CP + 1)
    sent = [
        (n.op, n.attrs.axis, message_bytes(call_of(region, n)))
        for n in region.nodes
        if isinstance(n.attrs, CollectiveAttrs)
    ]
    whole = ("all_reduce", "tp+cp", MBS * 8192 * 2)
    assert sent == [("reduce_scatter", "cp", MBS * 64 / TP * 128 * 2), whole, whole]


def test_caches_are_shared_out_and_layers_behind_are_those_of_all_ranks(llama: Graph) -> None:
    one, spread, all_heads = answer(llama, 8, 1), answer(llama, 8, 4), answer(llama, 32, 1)
    assert spread.memory_bytes["kv_cache"] == pytest.approx(one.memory_bytes["kv_cache"] / 4, rel=1e-4)
    # Of 80 layers: each rank has its share of 64 + 2 x 8 heads' rows over tp alone, all else over 32 ranks.
    own = 80 * 2 * 8192 * 128 * ((64 + 2 * 8) / 8)
    among_all = 80 * 2 * 8192 * 128 * (64 / 32 + 2 * 1)
    more = spread.memory_bytes["weights"] - all_heads.memory_bytes["weights"]
    assert more == pytest.approx(own - among_all)


@given(st.sampled_from([1, 2, 4, 8]), st.integers(0, 3), st.integers(1024, 130_000), st.integers(1, 64))
@settings(max_examples=12, deadline=None)
def test_more_ranks_never_hold_more_of_a_cache_each(llama: Graph, tp: int, power: int, kv: int, mbs: int) -> None:
    held = [answer(llama, tp, 2**k, kv, mbs).memory_bytes["kv_cache"] for k in range(power + 1)]
    assert held == sorted(held, reverse=True)
    assert held[-1] * 2**power >= held[0] * (1 - 1e-9)


def test_latents_are_shared_out_too() -> None:
    graph = load("deepseek-v3", "decode")
    alone, spread = answer(graph, 16, 1, 32768), answer(graph, 2, 8, 32768)
    assert spread.memory_bytes["kv_cache"] == pytest.approx(alone.memory_bytes["kv_cache"] / 8, rel=1e-3)
    times = [one.breakdown_s["compute.attention"] for one in (spread, alone)]
    assert times == sorted(times)


def test_experts_lie_whole_over_all_ranks_with_one_rank_of_tp_too() -> None:
    graph = load(str(CONFIGS / "tiny-mixtral.json"), "decode")
    words = PlanWords(phase="decode", num_gpus=2, tp=1, cp=2, etp=1, seq_len=64, kernels="fused")
    split, whole = plan_of(replace(words, etp=None)), plan_of(words)
    assert plan_of(whole.words) == whole
    assert (split.family.etp, whole.family.etp, whole.family.ep) == (True, False, True)
    shapes = [
        {
            v.type.substitute({"tp": 1, "cp": 2, "ep": 1}).dims
            for v in region.of_role(Role.PARAM)
            if len(v.type.dims) == 3
        }
        for region in (lower(graph, plan.family).graph.region("block0") for plan in (split, whole))
    ]
    assert all(len(dims) == 3 for found in shapes for dims in found)
    assert {dims[0] for dims in shapes[0]} == {NUM_EXPERTS}
    assert {dims[0] for dims in shapes[1]} == {NUM_EXPERTS // 2}


def test_one_rank_is_the_plan_without(llama: Graph) -> None:
    words = PlanWords(phase="decode", num_gpus=8, tp=8, seq_len=4096, kernels="fused")
    assert answer(llama, 8, 1, 4096, 1).metrics == estimate(llama, SYSTEM, plan_of(words)).metrics


def test_ranks_that_do_not_divide_heads_are_refused(llama: Graph) -> None:
    with pytest.raises(PlanError, match="tp x cp=24 does not divide the 64 query heads"):
        answer(llama, 8, 3)
    with pytest.raises(PlanError, match="one token"):
        plan_of(PlanWords(phase="decode", num_gpus=16, tp=8, cp=2, seq_len=4096, cp_method="ring"))
