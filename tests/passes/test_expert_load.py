"""Full experts, busy ranks, narrow wires and few nodes: what each does to rows, FLOPs and bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.driver.estimate import estimate, lower
from slipstick.frontend import load
from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Graph, Phase, Region, Workload
from slipstick.ir.ops import call_of, work_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.plan import Family, Plan, PlanTable, make_plan
from slipstick.ir.sizes.expr import as_expr, symbol

MBS, SEQ, TP, CF, IMB = (symbol(s) for s in ("mbs", "seq", "tp", "cf", "imb"))
ROWS = MBS * SEQ * 2  # Mixtral: two experts a token
# Up (two side by side) and down of one row, split over tp: 2 x 4096 x (2 x 14336 + 14336) / tp FLOPs.
ROW_FLOPS = as_expr(2 * 4096 * 3 * 14336) / TP


@pytest.fixture(scope="module")
def mixtral() -> Graph:
    return load("mixtral-8x7b", "train")


def layer(graph: Graph, **options: object) -> Region:
    family = Family(**options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return lower(graph, family).graph.region("block0")


def exchanged(region: Region) -> list[tuple[str, object]]:
    """Phase and bytes of every all-to-all."""
    return [(str(n.phase), message_bytes(call_of(region, n))) for n in region.nodes if n.op == "all_to_all"]


def bank_flops(region: Region) -> tuple[object, object]:
    """FLOPs of the products of experts, forward and backward."""
    forward, backward = (
        work_of(region, next(n for n in region.nodes if n.op == op)).tensor_flops
        for op in ("expert_bank", "expert_bank_bwd")
    )
    return forward, backward


@pytest.mark.parametrize("ep", [False, True])
def test_capacity_scales_rows_flops_and_what_is_kept(mixtral: Graph, ep: bool) -> None:
    region = layer(mixtral, ep=ep, capacity=True)
    assert bank_flops(region) == (ROWS * CF * ROW_FLOPS, ROWS * CF * ROW_FLOPS * 2)
    bank = next(n for n in region.nodes if n.op == "expert_bank")
    assert [region.by_id[o].type.dims for o in bank.outputs] == [
        (ROWS * CF, 4096), (ROWS * CF, as_expr(28672) / TP), (ROWS * CF, as_expr(14336) / TP),
    ]  # fmt: skip
    size = ROWS * CF * 4096 * 2
    assert exchanged(region) == ([("forward", size)] * 2 + [("backward", size)] * 2 if ep else [])


def test_the_busiest_rank_computes_more_rows_and_its_exchanges_end_last(mixtral: Graph) -> None:
    region = layer(mixtral, ep=True, imbalance=True)
    assert bank_flops(region) == (ROWS * IMB * ROW_FLOPS, ROWS * IMB * ROW_FLOPS * 2)
    # To the experts it receives so much, back it sends so much; its own tokens are as many as everyone's.
    size = ROWS * IMB * 4096 * 2
    assert exchanged(region) == [("forward", size)] * 2 + [("backward", size)] * 2
    kept = [region.by_id[n.key].type.dims[0] for n in region.nodes if n.op in ("dispatch", "combine")]
    assert kept == [ROWS, MBS * SEQ]


def test_with_whole_experts_over_tp_the_imbalance_counts_once(mixtral: Graph) -> None:
    region = layer(mixtral, ep=True, sp=True, etp=False, imbalance=True)
    # Whole experts on 1 / tp of the rows are as much work as split ones on all rows.
    assert bank_flops(region)[0] == ROWS * IMB * ROW_FLOPS


def test_fp8_halves_what_goes_to_the_experts(mixtral: Graph) -> None:
    # 1 byte an element and 4 for each 128: 33/32 instead of 2 bytes. There are rows forward and gradients of results
    # backward; what comes back keeps bf16 (DeepSeek-V3, arXiv 2412.19437, section 3.3).
    narrow, wide = ROWS * 4096 * 33 / 32, ROWS * 4096 * 2
    assert exchanged(layer(mixtral, ep=True, dispatch_dtype="fp8")) == [
        ("forward", narrow), ("forward", wide), ("backward", narrow), ("backward", wide),
    ]  # fmt: skip


def test_an_exchange_says_what_crosses_nodes() -> None:
    # DeepSeek-V3 sends a token to 8 experts on at most 4 nodes.
    region = lower(load("deepseek-v3", "train"), Family(ep=True, routing_nodes=4)).graph.region("block1")
    found = [n.attrs.across for n in region.nodes if n.op == "all_to_all" and isinstance(n.attrs, CollectiveAttrs)]
    assert found == [0.5] * 4


def test_a_limit_above_the_experts_of_a_token_limits_nothing(mixtral: Graph) -> None:
    region = layer(mixtral, ep=True, routing_nodes=8)
    assert {n.attrs.across for n in region.nodes if isinstance(n.attrs, CollectiveAttrs)} == {1.0}


def test_attention_exchanges_are_left_alone() -> None:
    # Ulysses exchanges heads for sequence: no rows, no experts.
    options: Mapping[str, object] = {"ep": True, "cp": "ulysses", "dispatch_dtype": "fp8", "routing_nodes": 1}
    region = layer(load("mixtral-8x7b", "train"), **options)
    heads = [n.attrs for n in region.nodes if n.op == "all_to_all" and "attn" in n.scope]
    assert heads
    assert all(isinstance(a, CollectiveAttrs) and (a.wire, a.across) == ("", 1.0) for a in heads)


def test_the_backward_of_a_kept_capacity_is_recomputed_alike(mixtral: Graph) -> None:
    region = layer(mixtral, ep=True, capacity=True, imbalance=True, recompute="full")
    again = [work_of(region, n).tensor_flops for n in region.nodes if n.phase is Phase.RECOMPUTE]
    assert ROWS * CF * IMB * ROW_FLOPS in again


def plan(family: Family, **numbers: float) -> Plan:
    return make_plan(num_gpus=16, ep=8, seq_len=4096, family=family, **numbers)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_at_one_nothing_changes(mixtral: Graph) -> None:
    system = load_system("dgx-h100")
    plain = estimate(mixtral, system, plan(Family(ep=True)))
    one = estimate(
        mixtral, system,
        plan(Family(ep=True, capacity=True, imbalance=True), capacity_factor=1.0, expert_imbalance=1.0),
    )  # fmt: skip
    assert one.metrics == pytest.approx(plain.metrics, rel=1e-12)
    assert one.memory_bytes == pytest.approx(plain.memory_bytes, rel=1e-12)


def test_the_numbers_reach_the_answer(mixtral: Graph, roofline_only: Callable[[System], System]) -> None:
    system, family = roofline_only(load_system("dgx-h100")), Family(ep=True, capacity=True, imbalance=True)
    lowered = lower(mixtral, family)
    plans = [plan(family, capacity_factor=cf, expert_imbalance=imb) for cf, imb in ((1.0, 1.0), (1.5, 1.0), (1.0, 1.5))]
    base, full, busy = (estimate(mixtral, system, p, lowered=lowered) for p in plans)
    launches = 32 * 2 * system.stack.launch_s
    times = [a.breakdown_s["compute.experts"] - launches for a in (base, full, busy)]
    # Large products: time follows the rows.
    assert times == pytest.approx([times[0], times[0] * 1.5, times[0] * 1.5], rel=1e-6)
    assert full.breakdown_s["comm.ep"] == pytest.approx(busy.breakdown_s["comm.ep"])
    assert base.metrics["model_flops"] == full.metrics["model_flops"] == busy.metrics["model_flops"]
    assert base.memory_bytes["activations"] < busy.memory_bytes["activations"] < full.memory_bytes["activations"]


def test_hfu_counts_the_mean_rank_not_the_busiest(mixtral: Graph) -> None:
    family = Family(ep=True, imbalance=True, recompute="full")
    even, busy = (estimate(mixtral, load_system("dgx-h100"), plan(family, expert_imbalance=i)) for i in (1.0, 2.0))
    done = [a.metrics["hfu"] * a.metrics["step_time_s"] for a in (even, busy)]
    assert done[0] == pytest.approx(done[1])


def test_a_table_has_columns_for_the_numbers_of_its_family() -> None:
    family = Family(ep=True, sp=True, etp=False, capacity=True)
    plans = [
        make_plan(num_gpus=32, tp=4, ep=ep, seq_len=128, family=family, capacity_factor=cf)
        for ep, cf in ((4, 1.0), (8, 1.25), (32, 2.0))
    ]
    columns = PlanTable.of(plans).columns
    # Of ep the part inside dp = 8: 1, 2 and 8 ranks.
    assert {k: list(columns[k]) for k in ("tp", "ep", "dp", "cf")} == {
        "tp": [4, 4, 4], "ep": [1, 2, 8], "dp": [8, 4, 1], "cf": [1, 1.25, 2],
    }  # fmt: skip
    assert "imb" not in columns
    assert [dict(p.mesh)["ep"] for p in plans] == [1, 2, 8]
    assert all(c.dtype == np.float64 for c in columns.values())


@pytest.mark.parametrize(
    ("family", "said"),
    [
        (Family(etp=False, sp=True), "etp=1: gpt2 has no experts"),
        (Family(capacity=True), "capacity_factor: gpt2 has no experts"),
    ],
)
def test_a_model_without_experts_has_nothing_to_fill(family: Family, said: str) -> None:
    factor = 1.0 if family.capacity else None
    asked = make_plan(num_gpus=4, tp=2, seq_len=128, family=family, capacity_factor=factor)
    with pytest.raises(PlanError, match=said):
        estimate(load("gpt2"), load_system("dgx-h100"), asked)


def test_decode_deals_experts_out_too() -> None:
    graph = load("mixtral-8x7b", "decode")
    family = Family(workload=Workload.DECODE, ep=True, dispatch_dtype="fp8")
    region = lower(graph, family).graph.region("block0")
    assert exchanged(region) == [("forward", MBS * 2 * 4096 * 33 / 32), ("forward", MBS * 2 * 4096 * 2)]


def test_symbolic_banks_are_as_many_groups_as_a_rank_has_experts(mixtral: Graph) -> None:
    region = layer(mixtral, ep=True)
    for op, num in (("expert_bank", 2), ("expert_bank_bwd", 4)):
        gemms = work_of(region, next(n for n in region.nodes if n.op == op)).gemms
        assert [as_expr(g.groups) for g in gemms] == [as_expr(8) / symbol("ep")] * num
