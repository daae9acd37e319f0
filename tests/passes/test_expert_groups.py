"""Experts over tp and ep: what is exchanged, gathered, computed and reduced when they are split inside or whole.

Per micro-batch and layer a replica has T = mbs x seq tokens and T k rows of h elements of two bytes. Under sequence
parallelism a tp rank holds T / tp of the tokens. Message sizes are those of `message_bytes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.system import System
from slipstick.cost.constraints import ConstraintProgram
from slipstick.driver.estimate import estimate, lower, pipeline_for
from slipstick.frontend import load
from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Graph, Phase, Region, Role
from slipstick.ir.ops import OpClass, call_of, op_def, work_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.plan import Family, PlanTable, make_plan
from slipstick.ir.plan.divisibility import check_divisibility
from slipstick.ir.sizes.expr import Expr, as_expr, symbol
from slipstick.ir.sizes.points import Points
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.text.printer import print_graph

MBS, SEQ, TP, EP = (symbol(s) for s in ("mbs", "seq", "tp", "ep"))
MIXTRAL_ROWS = MBS * SEQ * 2 * 4096 * 2  # bytes of all rows of a replica: k = 2, h = 4096, bf16
SPLIT, WHOLE = Family(ep=True, sp=True), Family(ep=True, sp=True, etp=False)
REPLICATED = Family(sp=True, etp=False)


@pytest.fixture(scope="module")
def mixtral() -> Graph:
    return load("mixtral-8x7b", "train")


def layer(graph: Graph, family: Family, name: str = "block0") -> Region:
    return lower(graph, family).graph.region(name)


def rows_moved(region: Region) -> Counter[tuple[str, str, str, str]]:
    """Messages of the expert banks: phase, kind, axes, bytes."""
    return Counter(
        (str(n.phase), n.op, n.attrs.axis, str(message_bytes(call_of(region, n))))
        for n in region.nodes
        if isinstance(n.attrs, CollectiveAttrs) and n.scope.endswith("mlp.experts") and n.phase is not Phase.REDUCE
    )


def each_way(*messages: tuple[str, str, Expr]) -> Counter[tuple[str, str, str, str]]:
    phases = ("forward", "backward")
    return Counter((phase, kind, axes, str(size)) for phase in phases for kind, axes, size in messages)


def test_split_experts_exchange_the_rows_of_a_rank_and_gather_them_over_tp(mixtral: Graph) -> None:
    # There: all-to-all of T k / tp rows, then a gather to T k; back: reduce-scatter of T k, then all-to-all. Backward
    # is the same again: the gradient of the results goes there, that of the rows comes back.
    exchange = ("all_to_all", "ep", MIXTRAL_ROWS / TP)
    expected = each_way(exchange, exchange, ("all_gather", "tp", MIXTRAL_ROWS), ("reduce_scatter", "tp", MIXTRAL_ROWS))
    assert rows_moved(layer(mixtral, SPLIT)) == expected


def test_whole_experts_exchange_the_rows_of_a_rank_in_one_group(mixtral: Graph) -> None:
    exchange = ("all_to_all", "tp+ep", MIXTRAL_ROWS / TP)
    assert rows_moved(layer(mixtral, WHOLE)) == each_way(exchange, exchange)


def test_whole_experts_on_every_rank_move_no_rows(mixtral: Graph) -> None:
    assert not rows_moved(layer(mixtral, REPLICATED))


def test_without_sequence_parallelism_every_tp_rank_exchanges_all_rows(mixtral: Graph) -> None:
    exchange = ("all_to_all", "ep", MIXTRAL_ROWS)
    assert rows_moved(layer(mixtral, Family(ep=True))) == each_way(exchange, exchange)


@pytest.mark.parametrize("ep", [2, 4, 8])
def test_bytes_of_an_exchange_in_numbers(mixtral: Graph, ep: int) -> None:
    # One sequence of 4096 tokens: 2 x 4096 x 4096 x 2 = 67,108,864 bytes a replica, half of it a rank of tp = 2.
    # models of the field send (ep - 1)/ep of a message off the rank; the message itself does not depend on ep.
    for family, tp, size in ((Family(ep=True), 1, 67_108_864), (SPLIT, 2, 33_554_432), (WHOLE, 2, 33_554_432)):
        plan = make_plan(num_gpus=8 * tp, tp=tp, ep=ep, seq_len=4096, family=family)
        table = {name: float(column[0]) for name, column in PlanTable.of([plan]).columns.items()}
        region = layer(mixtral, family)
        exchanges = [n for n in region.nodes if n.op == "all_to_all"]
        assert [float(message_bytes(call_of(region, n)).evaluate(table)) for n in exchanges] == [size] * 4
        axes = exchanges[0].attrs
        assert isinstance(axes, CollectiveAttrs)
        ranks = 1.0
        for axis in axes.axes:
            ranks *= table[axis]
        assert ranks == ep


@pytest.mark.parametrize("family", [SPLIT, WHOLE, REPLICATED], ids=["split", "whole", "replicated"])
def test_each_rank_holds_its_part_of_the_experts(mixtral: Graph, family: Family) -> None:
    # 8 experts of 3 x 4096 x 14336 weights.
    weights = as_expr(8 * 3 * 4096 * 14336)
    held = {SPLIT: weights / EP / TP, WHOLE: weights / EP / TP, REPLICATED: weights}[family]
    region = layer(mixtral, family)
    assert sum((v.type.numel for v in region.of_role(Role.PARAM) if ".experts." in v.name), as_expr(0)) == held


def expert_sums(region: Region) -> Counter[tuple[str, str]]:
    """What reduces gradients of experts, by kind and axes."""
    experts = {
        i for n in region.nodes if n.op == "accumulate" and n.scope.endswith("mlp.experts") for i in (*n.inputs, n.key)
    }
    found = (
        n for n in region.nodes if isinstance(n.attrs, CollectiveAttrs) and experts.intersection(n.inputs + n.outputs)
    )
    return Counter((n.op, n.attrs.axis) for n in found if isinstance(n.attrs, CollectiveAttrs))


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("ep", "etp", "axes"),
    [(True, True, "dp"), (True, False, "dp"), (False, False, "tp+dp"), (False, True, "dp")],
    ids=["split", "whole", "replicated", "none"],
)
def test_gradients_of_experts_are_summed_over_the_ranks_that_have_the_same(
    mixtral: Graph, zero: int, ep: bool, etp: bool, axes: str
) -> None:
    # Expert data parallelism: tp x dp / (etp x ep) ranks, with ep here the whole of it.
    found = expert_sums(layer(mixtral, Family(sp=True, zero=zero, ep=ep, etp=etp)))
    assert found == {("all_reduce" if zero == 0 else "reduce_scatter", axes): 1}


def test_context_parallel_ranks_have_the_same_experts_too(mixtral: Graph) -> None:
    family = Family(sp=True, etp=False, cp="allgather")
    assert expert_sums(layer(mixtral, family)) == {("all_reduce", "tp+cp+dp"): 1}


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_states_of_experts_are_sharded_over_the_same_ranks(mixtral: Graph, zero: int) -> None:
    numel = as_expr(8 * 3 * 4096 * 14336)
    for family, ranks in ((WHOLE, EP * TP), (REPLICATED, TP)):
        kept = Family(sp=True, etp=False, ep=family.ep, zero=zero)
        region = layer(mixtral, kept)
        grads = [g for p, g in region.grads if ".experts." in region.by_id[p].name]
        held = sum((region.by_id[g].type.numel for g in grads), as_expr(0))
        assert held == numel / ranks / symbol("dp")
        gathers = [n for n in region.nodes if n.op == "all_gather" and "dp" in str(getattr(n.attrs, "axis", ""))]
        wanted = "dp" if family.ep else "tp+dp"
        assert wanted in {n.attrs.axis for n in gathers if isinstance(n.attrs, CollectiveAttrs)}


DEGREES = st.sampled_from([1, 2, 4])


def product_flops(graph: Graph, at: Mapping[str, float]) -> Counter[str]:
    """FLOPs of products of a rank; no router is excused, for every rank routes its own tokens."""
    found: Counter[str] = Counter()
    for region in graph.regions:
        for node in region.nodes:
            kind = op_def(node.op).kind
            if kind in (OpClass.MATMUL, OpClass.ATTENTION, OpClass.EXPERTS):
                flops = float(work_of(region, node).tensor_flops.evaluate(at)) * graph.counts[region.name]
                found[kind] += round(flops)
    return found


@pytest.fixture(scope="module", params=[SPLIT, WHOLE, REPLICATED], ids=["split", "whole", "replicated"])
def lowered(request: pytest.FixtureRequest, tiny_mixtral: Graph) -> Graph:
    return lower(tiny_mixtral, request.param).graph


# Beyond two tensor-parallel ranks keys and values are computed more than once: there are two heads of them.
@given(tp=st.sampled_from([1, 2]), ep=DEGREES, dp=DEGREES, seq=st.sampled_from([64, 512]))
def test_all_ranks_together_do_the_work_of_the_model_once(
    tiny_mixtral: Graph, lowered: Graph, tp: int, ep: int, dp: int, seq: int
) -> None:
    inner = ep if "ep" in lowered.axes else 1
    at = {"tp": tp, "ep": inner, "dp": dp, "mbs": 2.0, "seq": seq, "batch": 2.0 * dp * inner}
    whole = product_flops(tiny_mixtral, at)
    ranks = tp * inner * dp
    assert {k: n * ranks for k, n in product_flops(lowered, at).items()} == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("name", ["deepseek-v3", "qwen3-30b-a3b", "gpt-oss-20b"])
@pytest.mark.parametrize("family", [SPLIT, WHOLE], ids=["split", "whole"])
def test_other_routers_keep_their_tokens_too(name: str, family: Family) -> None:
    graph = load(name, "train")
    region = next(r for r in lower(graph, family).graph.regions if any(n.op == "dispatch" for n in r.nodes))
    dispatch = next(n for n in region.nodes if n.op == "dispatch")
    x, ids = (region.by_id[i].type for i in dispatch.inputs)
    assert x.dims[0] == ids.dims[0] == MBS * SEQ / TP
    exchanged = [n for n in region.nodes if n.op == "all_to_all"]
    assert len(exchanged) == 4


def test_shared_experts_are_an_ordinary_layer_beside_the_routed_ones() -> None:
    # DeepSeek-V3: one shared expert of inner size 2048, split over tp; its tokens are gathered and its sum scattered
    # over tp as for any other layer, and never cross to another expert-parallel rank.
    region = layer(load("deepseek-v3", "train"), SPLIT, "block1")
    shared = [n for n in region.nodes if "shared_experts" in n.scope and n.phase is Phase.FORWARD]
    up = next(n for n in shared if n.op == "matmul" and n.scope.endswith("up_proj"))
    assert region.by_id[up.key].type.dims == (MBS, SEQ, as_expr(2048) / TP)
    talk = [n for n in region.nodes if n.phase is Phase.FORWARD and "mlp" in n.scope and n.op != "all_to_all"]
    axes = {(n.op, n.attrs.axis) for n in talk if isinstance(n.attrs, CollectiveAttrs)}
    assert axes == {("all_gather", "tp"), ("reduce_scatter", "tp")}


def test_attention_in_data_parallel_ranks_with_experts_over_all_of_them() -> None:
    # DeepSeek-V3 with tp = 1 and ep = dp = 64, one sequence of 4096: T k h e = 4096 x 8 x 7168 x 2 bytes a rank and
    # layer to the experts, as much back, and both again in the backward phase. Of 256 experts a rank holds four.
    graph = load("deepseek-v3", "train")
    family = Family(ep=True)
    plan = make_plan(num_gpus=64, ep=64, seq_len=4096, family=family)
    lowered = lower(graph, family)
    check_divisibility(lowered.graph, plan)
    assert (plan.mesh["ep"], plan.mesh["dp"]) == (64, 1)
    region = lowered.graph.region("block1")
    table = {name: float(column[0]) for name, column in PlanTable.of([plan]).columns.items()}
    found = [(str(n.phase), float(message_bytes(call_of(region, n)).evaluate(table)))
             for n in region.nodes if n.op == "all_to_all"]  # fmt: skip
    size = 4096 * 8 * 7168 * 2
    assert found == [("forward", size)] * 2 + [("backward", size)] * 2
    banks = [v for v in region.of_role(Role.PARAM) if ".experts." in v.name]
    assert all(float(as_expr(v.type.dims[0]).evaluate(table)) == 4 for v in banks)


def test_degrees_that_whole_experts_allow(mixtral: Graph) -> None:
    graph = lower(mixtral, WHOLE).graph
    check_divisibility(graph, make_plan(num_gpus=16, tp=4, ep=8, seq_len=128, family=WHOLE))
    with pytest.raises(PlanError, match=r"ep=16 is more than the 8 experts of .*; legal ep: 1, 4, 8"):
        check_divisibility(graph, make_plan(num_gpus=16, tp=4, ep=16, seq_len=128, family=WHOLE))


def test_split_experts_name_their_degrees(mixtral: Graph) -> None:
    plan = make_plan(num_gpus=32, tp=2, ep=16, seq_len=128, family=SPLIT)
    with pytest.raises(PlanError, match=r"ep=16 is more than the 8 experts of .*; legal ep: 1, 2, 4, 8"):
        check_divisibility(lower(mixtral, SPLIT).graph, plan)


def test_a_table_of_plans_is_checked_alike(mixtral: Graph) -> None:
    graph = lower(mixtral, WHOLE).graph
    plans = PlanTable.of(
        [make_plan(num_gpus=16, tp=4, ep=ep, seq_len=128, family=WHOLE) for ep in (4, 8, 16)]
    )  # 8 experts
    assert list(ConstraintProgram.of(graph, graph).hold(plans, Points(plans))) == [True, True, False]


def test_a_group_of_two_axes_is_answered(mixtral: Graph, made_up: System) -> None:
    # Eight experts over tp x ep = 2 x 2 ranks: two each, and no note of shares that differ.
    plan = make_plan(num_gpus=8, tp=2, ep=4, seq_len=128, family=WHOLE)
    answer = estimate(mixtral, made_up, plan)
    assert answer.warnings == ()
    assert sum(answer.breakdown_s.values()) == pytest.approx(answer.metrics["step_time_s"])


@pytest.mark.parametrize("family", [WHOLE, Family(ep=True, sp=True, dispatch_dtype="fp8", routing_nodes=1)])
def test_graphs_print_and_parse(tiny_mixtral: Graph, family: Family) -> None:
    graph = lower(tiny_mixtral, family).graph
    assert parse_graph(print_graph(graph)) == graph


def test_an_ordinary_family_has_an_ordinary_pipeline(tiny_mixtral: Graph) -> None:
    assert str(pipeline_for(Family())) == "accumulate,shard,bucket,optimizer,fuse"
    one, more = lower(tiny_mixtral, Family()), lower(tiny_mixtral, Family(dispatch_dtype="same", routing_nodes=0))
    assert print_graph(one.graph) == print_graph(more.graph)
