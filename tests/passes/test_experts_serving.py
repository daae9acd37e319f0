"""Experts of a serving step whose ranks all have the tokens: each runs its own experts' rows, and parts are summed.

A replica has T = mbs tokens in a decode step, of k = 8 experts each, of h = 7168 elements of two bytes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import estimate, lower
from slipstick.frontend import load
from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Graph, Node, Region, Role, Workload
from slipstick.ir.ops import OpClass, call_of, op_def, work_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.sizes.expr import Expr, as_expr, symbol, total
from slipstick.ir.sizes.rounding import ceil_div
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.text.printer import print_graph

MBS, TP, EP = symbol("mbs"), symbol("tp"), symbol("ep")
TOKENS = MBS * 7168 * 2  # bytes of the tokens of a replica
ROWS = as_expr(ceil_div(MBS * 8, TP))  # whole ones: 8 of each token, those of a rank of tp
SPLIT = Family(workload=Workload.DECODE)
OWN = Family(workload=Workload.DECODE, ep=True, etp=False)
GATHERED = Family(workload=Workload.DECODE, ep=True, exchange="allgather")
INSIDE = Family(workload=Workload.DECODE, etp_dp=True)
ALL = {"own": OWN, "gathered": GATHERED, "inside": INSIDE}


@pytest.fixture(scope="module")
def deepseek() -> Graph:
    return load("deepseek-v3", "decode")


def block(graph: Graph, family: Family) -> Region:
    return lower(graph, family).graph.region("block1")


def talk(region: Region) -> list[tuple[str, str, str]]:
    """Messages of a layer in order: kind, axes, bytes."""
    found = [(n, n.attrs) for n in region.nodes if isinstance(n.attrs, CollectiveAttrs)]
    return [(n.op, attrs.axis, str(message_bytes(call_of(region, n)))) for n, attrs in found]


def node(region: Region, op: str) -> Node:
    return next(n for n in region.nodes if n.op == op)


def weights_of_experts(region: Region) -> Expr:
    return total(v.type.numel for v in region.of_role(Role.PARAM) if ".experts." in v.name)


def test_tensor_parallel_ranks_run_their_own_experts_and_sum_as_ever(deepseek: Graph) -> None:
    # The sum over tp behind the experts is there with split ones too; no token moves but in it. With ep = tp there is
    # nobody else to send rows to: the exchange over the axis ep is one among one rank.
    region, split = block(deepseek, OWN), block(deepseek, SPLIT)
    sums = [t for t in talk(region) if t[1] == "tp"]
    assert sums == [t for t in talk(split) if t[1] == "tp"] == [("all_reduce", "tp", str(TOKENS))] * 2
    assert [t[:2] for t in talk(region) if t[1] != "tp"] == [("all_to_all", "ep")] * 2
    rows = region.by_id[node(region, "expert_bank").inputs[0]].type.dims
    assert rows == (ROWS, 7168)


def test_ranks_inside_data_parallelism_send_what_is_theirs(deepseek: Graph) -> None:
    # tp = 2, ep = 8 over dp = 4: of T k rows a rank sends the half whose experts lie on ranks of its place in tp.
    sent = [t for t in talk(block(deepseek, OWN)) if t[0] == "all_to_all"]
    assert sent == [("all_to_all", "ep", str(ROWS * 7168 * 2))] * 2


@pytest.mark.parametrize("name", ["gathered", "inside"])
def test_tokens_of_data_parallel_ranks_are_gathered_in_one_message_and_summed_into_shards(
    deepseek: Graph, name: str
) -> None:
    # Gathered are h elements of two bytes, k ids of eight bytes and k weights of four a token.
    region = block(deepseek, ALL[name])
    over_ep = [t for t in talk(region) if t[1] == "ep"]
    assert over_ep == [
        ("all_gather", "ep", str(MBS * EP * (7168 * 2 + 8 * (8 + 4)))),
        ("reduce_scatter", "ep", str(TOKENS * EP)),
    ]
    assert [t[0] for t in talk(region) if t[1] == "tp"] == ["all_reduce"] * 2


@pytest.mark.parametrize("family", ALL.values(), ids=list(ALL))
def test_each_rank_holds_its_part_of_the_experts(deepseek: Graph, family: Family) -> None:
    assert weights_of_experts(block(deepseek, family)) == as_expr(256 * 3 * 7168 * 2048) / TP / EP


@pytest.mark.parametrize("family", ALL.values(), ids=list(ALL))
@pytest.mark.parametrize("phase", [Workload.DECODE, Workload.PREFILL])
def test_all_ranks_together_run_every_row_once(family: Family, phase: Workload) -> None:
    graph = load("qwen3-30b-a3b", str(phase))
    at = {"tp": 2.0, "ep": 4.0, "dp": 1.0, "mbs": 2.0, "seq": 64.0, "kv": 9.0, "batch": 8.0}
    found = Counter[str]()
    for key, g in (("whole", graph), ("rank", lower(graph, replace(family, workload=phase)).graph)):
        for region in g.regions:
            for n in (n for n in region.nodes if op_def(n.op).kind is OpClass.EXPERTS):
                found[key] += round(float(work_of(region, n).tensor_flops.evaluate(at)) * g.counts[region.name])
    assert found["rank"] * 2 * 4 == found["whole"]


@pytest.mark.parametrize("family", ALL.values(), ids=list(ALL))
def test_graphs_print_and_parse_and_hold_loads(deepseek: Graph, family: Family) -> None:
    more = replace(family, capacity=True, imbalance=family.ep)
    graph = lower(deepseek, more).graph
    assert parse_graph(print_graph(graph)) == graph


def test_a_busier_rank_gets_more_of_its_own_rows(deepseek: Graph) -> None:
    region = block(deepseek, replace(OWN, imbalance=True))
    rows = region.by_id[node(region, "expert_bank").inputs[0]].type.dims[0]
    assert rows == ROWS * symbol("imb")


def test_an_inner_size_that_does_not_divide_is_refused(deepseek: Graph) -> None:
    # Experts are 2048 wide inside, which 3 ranks cannot share; 6 ranks are 2 of tp and 3 of dp.
    plan = make_plan(num_gpus=6, tp=2, etp=6, seq_len=1, kv_len=8, family=INSIDE)
    with pytest.raises(PlanError, match=r"etp=6 does not divide .*; legal etp: 1, 2, 4"):
        estimate(deepseek, load_system("dgx-h200"), plan)


def test_estimates_add_up_and_one_rank_is_a_no_op(deepseek: Graph) -> None:
    system = load_system("dgx-h200")
    plans = (
        make_plan(num_gpus=8, tp=8, ep=8, etp=1, seq_len=1, kv_len=999, micro_batch=8, family=OWN),
        make_plan(num_gpus=8, ep=8, seq_len=1, kv_len=999, micro_batch=8, family=GATHERED),
        make_plan(num_gpus=8, etp=8, seq_len=1, kv_len=999, micro_batch=8, family=INSIDE),
    )
    for plan in plans:
        answer = estimate(deepseek, system, plan)
        assert sum(answer.breakdown_s.values()) == pytest.approx(answer.metrics["step_time_s"])
        assert not any("pessimistic" in w for w in answer.warnings)
    alone = [
        make_plan(num_gpus=1, seq_len=1, kv_len=99, family=f) for f in (OWN, Family(workload=Workload.DECODE, ep=True))
    ]
    one, other = (estimate(deepseek, system, plan).metrics["step_time_s"] for plan in alone)
    assert one == pytest.approx(other)
