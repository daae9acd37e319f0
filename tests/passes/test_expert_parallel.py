"""Expert parallelism: rows travel to their experts and back; experts and their gradients do not."""

from __future__ import annotations

import pytest

from slipstick.driver.estimate import lower
from slipstick.frontend import load
from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Graph, Region, Role, Workload
from slipstick.ir.ops import call_of, work_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.sizes.expr import as_expr, symbol
from slipstick.passes.manager import parse_pipeline

MBS, SEQ = symbol("mbs"), symbol("seq")
MODELS = {"mixtral-8x7b": (2, 4096, 8), "qwen3-30b-a3b": (8, 2048, 128), "gpt-oss-20b": (4, 2880, 32)}


def moe_region(
    name: str, options: str, before: str = "route,accumulate,", after: str = ",bucket"
) -> tuple[Graph, Region]:
    graph = load(name, "train")
    return graph, parse_pipeline(f"{before}shard{{{options}}}{after}").run(graph)[0].region("block0")


@pytest.mark.parametrize("name", MODELS)
def test_dispatch_and_combine_are_four_exchanges_of_all_routed_rows(name: str) -> None:
    top_k, hidden, _ = MODELS[name]
    _, region = moe_region(name, "ep=true")
    found = [(str(n.phase), message_bytes(call_of(region, n))) for n in region.nodes if n.op == "all_to_all"]
    rows = MBS * SEQ * top_k * hidden * 2
    assert sorted(found, key=str) == [("backward", rows)] * 2 + [("forward", rows)] * 2


@pytest.mark.parametrize("name", MODELS)
def test_experts_are_dealt_out_and_everything_else_is_whole(name: str) -> None:
    num_experts = MODELS[name][2]
    _, region = moe_region(name, "ep=true")
    for v in region.of_role(Role.PARAM):
        assert (".experts." in v.name) == ("ep" in v.type.numel.symbols)
        if ".experts." in v.name:
            assert v.type.dims[0] == as_expr(num_experts) / symbol("ep")


def test_expert_gradients_are_summed_over_fewer_ranks() -> None:
    _, region = moe_region("mixtral-8x7b", "ep=true")
    found = {
        n.attrs.axis: len(n.inputs)
        for n in region.nodes
        if isinstance(n.attrs, CollectiveAttrs) and n.phase == "reduce"
    }
    # Up and down of the experts; four projections, two norms, the router; keys and values of heads held twice.
    assert found == {"ep+dp": 7, "dp": 2, "tp/8": 2}


@pytest.mark.parametrize("name", MODELS)
def test_routing_keeps_the_work(name: str) -> None:
    graph = load(name, "train")
    routed = parse_pipeline("route").run(graph)[0]
    ones = {"batch": 2.0, "seq": 4096.0}
    for before, after in zip(graph.regions, routed.regions, strict=True):
        flops = [sum(float(work_of(r, n).tensor_flops.evaluate(ones)) for n in r.nodes) for r in (before, after)]
        assert flops[0] == flops[1]


def test_ranks_share_the_products() -> None:
    graph = load("mixtral-8x7b", "train")
    sharded = parse_pipeline("route,shard{ep=true}").run(graph)[0]
    env = {"tp": 1.0, "dp": 2.0, "ep": 4.0, "mbs": 1.0, "seq": 4096.0, "batch": 8.0}
    for region in sharded.regions:
        whole = sum(
            float(work_of(graph.region(region.name), n).tensor_flops.evaluate(env))
            for n in graph.region(region.name).nodes
        )
        part = sum(float(work_of(region, n).tensor_flops.evaluate(env)) for n in region.nodes)
        assert part * 8 == pytest.approx(whole, rel=1e-12)


def test_a_dense_model_has_nothing_to_exchange() -> None:
    graph = load("gpt2", "train")
    sharded = lower(graph, Family(ep=True)).graph
    assert not [n for r in sharded.regions for n in r.nodes if n.op == "all_to_all"]


def test_degrees_that_do_not_divide() -> None:
    with pytest.raises(
        PlanError, match="ep=3 lies inside data parallelism and does not divide dp=8; legal ep: 1, 2, 4"
    ):
        make_plan(num_gpus=8, ep=3, seq_len=128, family=Family(ep=True))
    assert make_plan(num_gpus=8, ep=4, seq_len=128, family=Family(ep=True)).mesh["dp"] == 2


def test_inference_routes_too() -> None:
    graph = load("mixtral-8x7b", "decode")
    region = lower(graph, Family(workload=Workload.DECODE, ep=True)).graph.region("block0")
    assert sum(n.op == "all_to_all" for n in region.nodes) == 2
