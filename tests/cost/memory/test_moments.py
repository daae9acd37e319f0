"""What a device holds at its largest moment, and what software holds on top, against counts by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slipstick.cost.memory.liveness import live_bytes, runs_behind
from slipstick.cost.memory.peak import Holding
from slipstick.driver.estimate import lower
from slipstick.ir.graph import Graph, Region, Run, Workload
from slipstick.ir.plan import Family, Plan, PlanTable, make_plan
from slipstick.ir.sizes.points import Points
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.types import DType

Traced = Callable[[str], Graph]

# tiny-llama: hidden 64, 2 layers, keys and values 32, MLP 96, vocabulary 160.
LAYER_SHAPES = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64
PARAMETERS = 2 * 160 * 64 + 2 * (LAYER_SHAPES + 2 * 64) + 64


def held(graph: Graph, plan: Plan, holding: Holding = Holding()) -> dict[str, float]:  # noqa: B008
    lowered, plans = lower(graph, plan.family), PlanTable.of([plan])
    points = Points(plans)
    staging = lowered.stages.evaluate(plans, points)
    return {k: float(v[0]) for k, v in lowered.memory.evaluate(points, 0.0, plans, staging, holding).items()}


def plan(dp: int = 1, pp: int = 1, **policy: object) -> Plan:
    family = Family(pp=pp > 1, **policy)  # type: ignore[arg-type]
    return make_plan(num_gpus=dp * pp, pp=pp, seq_len=64, family=family, global_batch=4 * dp)


def test_what_is_kept_dies_behind_its_last_reader() -> None:
    region = parse_graph(TWO_WAYS).region("only")
    # Forward: 100, then 100 + 200 kept. Backward: 200 made while both are there; then %2 is gone and 300 are made.
    assert live_bytes(region) == [100, 300, 500, 100 + 200 + 300]


def test_a_gradient_that_comes_in_counts_until_it_is_read() -> None:
    graph = parse_graph(TWO_REGIONS)
    first = live_bytes(graph.region("first"), frozenset({"d"}))
    # 100 kept; in the backward phase the gradient of 100 that came in, and the one of 100 that is made of both.
    assert first == [100, 300]
    assert live_bytes(graph.region("first")) == [100, 200]


def test_regions_behind_have_let_go() -> None:
    graph = parse_graph(TWO_REGIONS)
    assert runs_behind(graph, "first") == {"second": 3}
    assert runs_behind(graph, "second") == {}


def test_parts_and_moment_add_up_to_at_least_what_is_kept(traced: Traced) -> None:
    for kernels in ("eager", "torch", "fused"):
        for pp in (1, 2):
            assert held(traced("tiny-llama.train"), plan(pp=pp, kernels=kernels))["temporary"] >= 0.0


def test_placeholders_are_one_a_shape_of_a_layer_and_the_head(traced: Traced) -> None:
    found = held(traced("tiny-llama.train"), plan(kernels="fused"))
    assert found["gradients"] == 4 * PARAMETERS + 2 * (LAYER_SHAPES + 160 * 64)


def test_placeholders_of_the_head_are_on_the_last_stage_only(traced: Traced) -> None:
    found = held(traced("tiny-llama.train"), plan(pp=2, kernels="fused"), Holding(last=True))
    last = LAYER_SHAPES + 2 * 64 + 64 + 160 * 64
    assert found["gradients"] == 4 * last + 2 * (LAYER_SHAPES + 160 * 64)


@pytest.mark.parametrize(("dp", "copies"), [(1, 0), (2, 1)])
def test_buckets_hold_gradients_a_second_time_where_there_are_replicas(traced: Traced, dp: int, copies: int) -> None:
    found = held(traced("tiny-llama.train"), plan(dp=dp), Holding(gradient_copy=True))
    assert found["gradients"] == (4 + 2 * copies) * PARAMETERS


def test_all_gradients_are_there_when_the_backward_phase_ends(traced: Traced) -> None:
    found = held(traced("tiny-llama.train"), plan(), Holding(gradient_copy=True))
    assert found["activations"] + found["temporary"] >= 2 * PARAMETERS


def test_what_tensors_do_not_fill_is_reserved(traced: Traced) -> None:
    whole, packed = (held(traced("tiny-llama.train"), plan(), Holding(packing=p)) for p in (1.0, 0.8))
    assert whole["reserved"] == 0.0
    assert sum(packed.values()) == pytest.approx(sum(whole.values()) / 0.8)


TWO_WAYS = """slipstick.graph 1
graph "two-ways" train bf16
schedule only
region only
  %0 = input "x" : bf16[50]
  %1 = cast(%0) : int8[100] saved
  %2 = cast(%1) : int8[200] saved
  %3 = cast(%2) : int8[200] backward
  %4 = concat(%3, %1) {dim=0} : int8[300] backward
  out "z" = %4
end
"""
TWO_REGIONS = """slipstick.graph 1
graph "two-regions" train bf16
schedule first | second x3
region first
  %0 = input "x" : bf16[50]
  %1 = port "d" : int8[100]
  %2 = cast(%0) : int8[100] saved
  %3 = elementwise(%1, %2) {fns=["mul"]} : int8[100] backward
  out "h" = %2
  out "result" = %3
end
region second
  %0 = port "h" : int8[100] saved
  %1 = cast(%0) : int8[100] backward
  out "d" = %1
end
"""


def test_regions_later_in_the_same_run_are_behind_too() -> None:
    regions = tuple(Region(name, (), ()) for name in "abcd")
    graph = Graph("g", Workload.TRAIN, DType.BF16, regions, (Run(("a", "b", "c"), 2), Run(("d",), 3)))
    # Behind the last run of one: of its own round what stands after it, once, then whole runs.
    assert runs_behind(graph, "a") == {"b": 1, "c": 1, "d": 3}
    assert runs_behind(graph, "c") == {"d": 3}
