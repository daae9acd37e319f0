"""Hybrid data parallelism, reshard policies, the type of reductions: what is sent, what is held, and two known ends.

Volumes of Rajbhandari et al. (2020) hold inside a group of shards, those of an all-reduce between the groups: with N
shards and R groups, ZeRO 3 sends 3 (N-1)/N P over `fsdp` and 2 (R-1)/R P/N over `dp`, for P bytes of parameters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import Estimates, Lowered, evaluate, lower, pipeline_for
from slipstick.ir.graph import ONCE_A_STEP, Graph, Node, Phase, Region, Role
from slipstick.ir.ops import call_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.placement import DP, FSDP, REPLICATE, Partial, Shard
from slipstick.ir.plan import RESHARD, Family, PlanTable, make_plan
from slipstick.ir.sizes.expr import Expr
from slipstick.ir.text.printer import print_graph
from slipstick.ir.types import DType

DEGREES = st.sampled_from([1, 2, 4, 8])
STAGES = st.sampled_from([1, 2, 3])
DATA = ("cp", "ep", "fsdp", "dp")

Lowering = Callable[[Family], Lowered]


@pytest.fixture(scope="module", params=["tiny_llama", "tiny_gpt2", "tiny_mixtral"])
def model(request: pytest.FixtureRequest) -> Graph:
    """Untied and gated; tied, with biases; with experts."""
    graph = request.getfixturevalue(request.param)
    assert isinstance(graph, Graph)
    return graph


@pytest.fixture(scope="module")
def lowered(model: Graph) -> Lowering:
    """A family's graph, made once a test module and model."""
    return cache(lambda family: lower(model, family))


@pytest.fixture(scope="module")
def llama(tiny_llama: Graph) -> Lowering:
    return cache(lambda family: lower(tiny_llama, family))


def number(e: Expr, sizes: Mapping[str, int]) -> int:
    found = float(e.evaluate({"mbs": 1.0, "seq": 64.0, **{k: float(v) for k, v in sizes.items()}}))
    assert found == int(found)
    return int(found)


def talking(graph: Graph, sizes: Mapping[str, int]) -> Iterator[tuple[Region, Node, int, int]]:
    """Collectives over data axes between at least two ranks, with group and bytes of a message."""
    for region in graph.regions:
        for node in region.nodes:
            if not isinstance(node.attrs, CollectiveAttrs) or not set(node.attrs.axes) <= set(DATA):
                continue
            group = 1
            for axis in node.attrs.axes:
                group *= sizes[axis]
            if group > 1:
                yield region, node, group, number(message_bytes(call_of(region, node)), sizes)


def messages(graph: Graph, sizes: Mapping[str, int]) -> Counter[tuple[str, str, int, int]]:
    """Kind, phase, group and bytes of everything that is sent in a step of one micro-batch."""
    found: Counter[tuple[str, str, int, int]] = Counter()
    for region, node, group, size in talking(graph, sizes):
        found[node.op, node.phase, group, size] += graph.counts[region.name]
    return found


def sent(graph: Graph, sizes: Mapping[str, int], axis: str, micro_batches: int = 1) -> Fraction:
    """Bytes that a rank sends over an axis in a step: an all-reduce is a reduce-scatter and an all-gather."""
    total = Fraction(0)
    for region, node, group, size in talking(graph, sizes):
        if isinstance(node.attrs, CollectiveAttrs) and node.attrs.axes[-1] == axis:
            times = graph.counts[region.name] * (1 if node.phase in ONCE_A_STEP else micro_batches)
            total += Fraction(group - 1, group) * size * times * (2 if node.op == "all_reduce" else 1)
    return total


def priced(lowered: Lowering, family: Family, shard: int, dp: int, tp: int) -> Estimates:
    """Two micro-batches on a real machine."""
    plan = make_plan(num_gpus=tp * dp, tp=tp, seq_len=64, family=family, global_batch=2 * dp, dp_shard=shard)
    return evaluate(lowered(family), load_system("dgx-h100"), PlanTable.of([plan]))


def numbers(found: Estimates, but: str = "") -> dict[str, float]:
    held = {name: float(part[0]) for name, part in found.memory_bytes.items() if name != but}
    return {**held, "step": float(found.step.time_s[0])}


@given(zero=STAGES, reshard=st.sampled_from(RESHARD), dp=DEGREES, tp=st.sampled_from([1, 2]))
def test_one_group_of_shards_is_zero(lowered: Lowering, zero: int, reshard: str, dp: int, tp: int) -> None:
    family = Family(zero=zero, reshard=reshard if zero == 3 else "layer")
    hybrid = replace(family, hsdp=True)
    ours, theirs = (lowered(f).graph for f in (hybrid, family))
    assert messages(ours, {"fsdp": dp, "dp": 1, "tp": tp}) == messages(theirs, {"dp": dp, "tp": tp})
    want = numbers(priced(lowered, family, 1, dp, tp))
    assert numbers(priced(lowered, hybrid, dp, dp, tp)) == pytest.approx(want, rel=1e-12)


@given(zero=STAGES, dp=DEGREES, tp=st.sampled_from([1, 2]))
def test_groups_of_one_are_replicas(lowered: Lowering, zero: int, dp: int, tp: int) -> None:
    # Only copies that gathers make of what is whole already are more.
    plain, hybrid = Family(), Family(zero=zero, hsdp=True)
    ours, theirs = (lowered(f).graph for f in (hybrid, plain))
    assert messages(ours, {"fsdp": 1, "dp": dp, "tp": tp}) == messages(theirs, {"dp": dp, "tp": tp})
    want = numbers(priced(lowered, plain, 1, dp, tp), but="temporary")
    assert numbers(priced(lowered, hybrid, 1, dp, tp), but="temporary") == pytest.approx(want, rel=1e-12)


BYTES = Family(grad_dtype=DType.BF16)


@given(shards=DEGREES, groups=DEGREES, micro_batches=st.sampled_from([1, 3]))
def test_a_step_sends_what_the_equations_say(llama: Lowering, shards: int, groups: int, micro_batches: int) -> None:
    sizes = {"fsdp": shards, "dp": groups, "tp": 1}
    graph = llama(replace(BYTES, zero=3, hsdp=True)).graph
    params = 2 * number(llama(BYTES).source.num_parameters, {})
    unread = 2 * 160 * 64  # the table is not read by its own gradient
    inside = Fraction(shards - 1, shards) * (3 * params - unread) * micro_batches
    assert sent(graph, sizes, "fsdp", micro_batches) == inside
    assert sent(graph, sizes, "dp", micro_batches) == 2 * Fraction(groups - 1, groups) * Fraction(params, shards)


@given(dp=DEGREES, micro_batches=st.sampled_from([1, 2, 5]))
def test_how_long_parameters_are_kept_decides_how_often_they_are_gathered(
    llama: Lowering, dp: int, micro_batches: int
) -> None:
    # Times the parameters: forward, backward, gradients, and of all that only the last is about every micro-batch.
    sizes = {"dp": dp, "tp": 1}
    params = 2 * number(llama(BYTES).source.num_parameters, {})
    unread = 2 * 160 * 64
    share = Fraction(dp - 1, dp)
    want = {
        "layer": (3 * params - unread) * micro_batches,
        "microbatch": 2 * params * micro_batches,
        "step": 2 * params,
    }
    for reshard, volume in want.items():
        graph = llama(replace(BYTES, zero=3, reshard=reshard)).graph
        assert sent(graph, sizes, "dp", micro_batches) == share * volume
    # An all-reduce is a reduce-scatter and an all-gather.
    assert sent(llama(BYTES).graph, sizes, "dp", micro_batches) == share * 2 * params


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("reshard", ["microbatch", "step"])
def test_what_is_kept_is_not_gathered_again(lowered: Lowering, recompute: str, reshard: str) -> None:
    graph = lowered(Family(zero=3, reshard=reshard, recompute=recompute)).graph
    first = Phase.PREPARE if reshard == "step" else Phase.FORWARD
    gathers = [n for _, n, _, _ in talking(graph, {"dp": 2, "tp": 1}) if n.op == "all_gather"]
    assert {n.phase for n in gathers} == {first}
    for region in graph.regions:
        gathered = {i for n in gathers for i in n.inputs if n in region.nodes}
        assert gathered == {v.id for v in region.of_role(Role.PARAM)}


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_kept_parameters_are_weights_beside_the_shards(lowered: Lowering, recompute: str) -> None:
    family = Family(zero=3, recompute=recompute)
    parts = {r: numbers(priced(lowered, replace(family, reshard=r), 1, 4, 1)) for r in RESHARD}
    layer, microbatch, step = (parts[r] for r in RESHARD)
    graph = lowered(family).graph
    # Every region keeps its own copy of a tied table.
    whole = sum(
        number(v.type.num_bytes, {"dp": 1, "tp": 1}) * graph.counts[r.name]
        for r in graph.regions
        for v in r.of_role(Role.PARAM)
    )
    assert microbatch["weights"] == step["weights"] == layer["weights"] + whole
    assert layer["activations"] == microbatch["activations"] == step["activations"]
    assert microbatch["gradients"] == layer["gradients"]
    assert step["gradients"] == 4 * layer["gradients"]  # whole until the step ends
    assert layer["optimizer"] == microbatch["optimizer"] == step["optimizer"]
    assert microbatch["temporary"] < layer["temporary"]


def test_shards_lie_inside_a_group_and_are_the_same_in_each(lowered: Lowering) -> None:
    for zero in (1, 2, 3):
        for region in lowered(Family(zero=zero, hsdp=True)).graph.regions:
            sums = {o for n in region.nodes if n.op == "accumulate" for o in n.outputs}
            for param, grad in region.grads:
                held = (region.by_id[i].placement(FSDP) for i in (param, grad))
                assert tuple(held) == (Shard(0) if zero == 3 else REPLICATE, Shard(0))
                assert {region.by_id[i].placement(DP) for i in (param, grad)} == {REPLICATE}
            for s in sums:
                assert region.by_id[s].placement(DP) == Partial()
                assert region.by_id[s].placement(FSDP) == (Shard(0) if zero >= 2 else Partial())


@given(fsdp=DEGREES, dp=DEGREES, cp=DEGREES, zero=STAGES)
def test_every_group_holds_each_state_once(lowered: Lowering, fsdp: int, dp: int, cp: int, zero: int) -> None:
    # The shard group is cp x fsdp; dp repeats it.
    plain = lowered(Family(cp="allgather")).graph
    graph = lowered(Family(cp="allgather", zero=zero, hsdp=True)).graph
    sizes = {"tp": 1, "cp": cp, "fsdp": fsdp, "dp": dp}
    for region, whole in zip(graph.regions, plain.regions, strict=True):
        for here, there in zip(region.grads, whole.grads, strict=True):
            # Parameters are sharded from stage 3 on, reduced gradients, of which there are states, from stage 1 on.
            for k, stage in enumerate((3, 1)):
                held, full = region.by_id[here[k]].type.numel * 4096, whole.by_id[there[k]].type.numel * 4096
                assert number(held, sizes) * (fsdp * cp if zero >= stage else 1) == number(full, sizes)


def test_experts_are_sharded_over_the_group_and_the_rest_over_their_ranks_too(tiny_mixtral: Graph) -> None:
    graph = lower(tiny_mixtral, Family(zero=3, hsdp=True, ep=True)).graph
    layer = graph.region("block0")
    gathers = [n for n in layer.nodes if n.op == "all_gather" and n.phase is Phase.FORWARD]
    by_axis = {str(n.attrs.axis): n for n in gathers if isinstance(n.attrs, CollectiveAttrs)}
    assert set(by_axis) == {"fsdp", "ep+fsdp"}
    assert all("experts" in layer.by_id[i].name for i in by_axis["fsdp"].inputs)
    assert not any("experts" in layer.by_id[i].name for i in by_axis["ep+fsdp"].inputs)
    late = {n.attrs.axis for n in layer.nodes if isinstance(n.attrs, CollectiveAttrs) and n.phase is Phase.REDUCE}
    # Besides, ranks that hold copies of the same two heads add those up.
    assert late == {"dp", "tp/2"}


def reductions(graph: Graph) -> Counter[tuple[str, DType]]:
    """Elements of gradients sent over data axes, by type, at two ranks an axis and one tensor-parallel rank."""
    found: Counter[tuple[str, DType]] = Counter()
    for region, node, _, _ in talking(graph, {"fsdp": 2, "dp": 2, "tp": 1}):
        if node.op in ("reduce_scatter", "all_reduce"):
            for i in node.inputs:
                found[node.op, region.by_id[i].type.dtype] += graph.counts[region.name]
    return found


@pytest.mark.parametrize("hsdp", [False, True])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("reduced", [DType.BF16, DType.FP32])
def test_gradients_are_reduced_in_the_type_asked_for(lowered: Lowering, zero: int, reduced: DType, hsdp: bool) -> None:
    if hsdp and not zero:
        return
    for kept in (DType.BF16, DType.FP32):
        family = Family(zero=zero, hsdp=hsdp, grad_dtype=kept)
        own, asked = lowered(family).graph, lowered(replace(family, reduce_dtype=reduced)).graph
        assert {dtype for _, dtype in reductions(asked)} == {reduced}
        assert _totals(reductions(asked)) == _totals(reductions(own))
        # Sums, and with them what is updated, stay as they are.
        for region, before in zip(asked.regions, own.regions, strict=True):
            types = [[r.by_id[g].type for _, g in r.grads] for r in (region, before)]
            assert types[0] == types[1]


def _totals(found: Counter[tuple[str, DType]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for (op, _), times in found.items():
        total[op] += times
    return total


def test_the_type_that_gradients_have_changes_nothing(model: Graph) -> None:
    for zero in (0, 1, 2, 3):
        family = Family(zero=zero, grad_dtype=DType.BF16)
        texts = [print_graph(pipeline_for(f).run(model)[0]) for f in (family, replace(family, reduce_dtype=DType.BF16))]
        assert texts[0] == texts[1]


def test_what_is_not_asked_for_is_not_in_the_pipeline() -> None:
    text = str(pipeline_for(Family(zero=3)))
    assert not [word for word in ("hsdp", "once", "reduced", "reshard") if word in text]
    wanted = Family(zero=3, hsdp=True, reshard="step", reduce_dtype=DType.FP32)
    text = str(pipeline_for(wanted))
    assert 'hsdp=true, once=true, reduced="fp32"' in text
    assert 'bucket{reshard="step"}' in text
