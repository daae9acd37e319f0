"""ZeRO: what each stage shards over the replicas, what it sends for that and when, and that nothing else changes.

Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (2020): stage 1 shards
optimizer states, stage 2 gradients too, stage 3 parameters too; stages 1 and 2 send as much as an all-reduce, stage 3
half as much again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache, partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.cost.memory.peak import MemoryProgram
from slipstick.cost.step.stages import StageProgram
from slipstick.frontend import load
from slipstick.ir.graph import Graph, Node, Phase, Region, Role
from slipstick.ir.ops import call_of, work_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.placement import DP, REPLICATE, Partial, Shard
from slipstick.ir.plan import Family, PlanTable, make_plan
from slipstick.ir.sizes.expr import Expr
from slipstick.ir.sizes.points import Points
from slipstick.ir.types import DType
from slipstick.passes.manager import parse_pipeline

STAGES = [0, 1, 2, 3]
DEGREES = st.sampled_from([1, 2, 4, 8])
FORWARD, BACKWARD, REDUCE, OPTIMIZER = Phase.FORWARD, Phase.BACKWARD, Phase.REDUCE, Phase.OPTIMIZER

Lowering = Callable[..., Graph]


@pytest.fixture(scope="module", params=["tiny_llama", "tiny_gpt2", "tiny_mixtral"])
def model(request: pytest.FixtureRequest) -> Graph:
    """Untied and gated; tied, with biases; with experts."""
    graph = request.getfixturevalue(request.param)
    assert isinstance(graph, Graph)
    return graph


@pytest.fixture(scope="module")
def staged(model: Graph) -> Lowering:
    """The lowered graph of a stage, made once a test module and model."""

    @cache
    def make(zero: int, options: str = "", grads: str = "bf16", recompute: str = "none", keep: bool = False) -> Graph:
        text = (
            f'accumulate{{dtype="{grads}"}},shard{{{options + ", " if options else ""}zero={zero}}},'
            f'recompute{{policy="{recompute}"}},bucket{{keep_last={str(keep).lower()}}},optimizer'
        )
        return parse_pipeline(text).run(model)[0]

    return make


def over_replicas(region: Region) -> Iterator[tuple[Node, int]]:
    """Collectives over `dp`, each with the bytes of a message at tp = 2, dp = 8."""
    for node in region.nodes:
        if isinstance(node.attrs, CollectiveAttrs) and node.attrs.axis == "dp":
            yield node, number(message_bytes(call_of(region, node)), tp=2, dp=8)


def number(e: Expr, **sizes: float) -> int:
    found = float(e.evaluate({"mbs": 2.0, "seq": 64.0, **sizes}))
    assert found == int(found)
    return int(found)


def messages(graph: Graph, name: str) -> list[tuple[Phase, str]]:
    return [(n.phase, n.op) for n, _ in over_replicas(graph.region(name))]


def ring_bytes(graph: Graph, which: Callable[[Node], bool] = lambda _: True) -> Fraction:
    """What a rank of dp = 8 sends in a step of one micro-batch: an all-reduce is a reduce-scatter and an all-gather."""
    sizes = (
        size * (2 if node.op == "all_reduce" else 1) * graph.counts[region.name]
        for region in graph.regions
        for node, size in over_replicas(region)
        if which(node)
    )
    return Fraction(7, 8) * sum(sizes)


def is_kind(kind: tuple[str, Phase], node: Node) -> bool:
    return (node.op, node.phase) == kind


def tied(graph: Graph) -> set[str]:
    """Parameters of several regions."""
    named = Counter(v.name for r in graph.regions for v in r.of_role(Role.PARAM))
    return {name for name, times in named.items() if times > 1}


def test_stage_0_reduces_each_region_once_a_step(staged: Lowering) -> None:
    for region in staged(0).regions:
        assert messages(staged(0), region.name) == [(REDUCE, "all_reduce")]


def test_stage_1_scatters_gradients_once_a_step_and_gathers_what_was_updated(staged: Lowering) -> None:
    for region in staged(1).regions:
        assert messages(staged(1), region.name) == [(REDUCE, "reduce_scatter"), (OPTIMIZER, "all_gather")]


def test_stage_2_scatters_gradients_every_micro_batch(staged: Lowering) -> None:
    for region in staged(2).regions:
        assert messages(staged(2), region.name) == [(BACKWARD, "reduce_scatter"), (OPTIMIZER, "all_gather")]
        # Summed are the shards: reduced first, then added.
        scattered = {o for n, _ in over_replicas(region) if n.op == "reduce_scatter" for o in n.outputs}
        assert {n.inputs[0] for n in region.nodes if n.op == "accumulate"} == scattered


def test_stage_3_gathers_in_each_phase_that_reads_parameters(staged: Lowering) -> None:
    graph = staged(3)
    both = [(FORWARD, "all_gather"), (BACKWARD, "all_gather"), (BACKWARD, "reduce_scatter")]
    assert messages(graph, "block0") == both
    assert messages(graph, "epilogue") == both
    # The gradient of a table is made of ids: the table itself is not read again.
    assert messages(graph, "prologue") == [(FORWARD, "all_gather"), (BACKWARD, "reduce_scatter")]


@pytest.mark.parametrize("zero", STAGES)
def test_where_parameters_and_gradients_lie(staged: Lowering, zero: int) -> None:
    for region in staged(zero).regions:
        grads = {g for _, g in region.grads}
        sums = {o for n in region.nodes if n.op == "accumulate" for o in n.outputs}
        for v in region.of_role(Role.PARAM):
            assert v.placement(DP) == (Shard(0) if zero == 3 else REPLICATE)
        for g in grads:
            assert region.by_id[g].placement(DP) == (Shard(0) if zero else REPLICATE)
        for s in sums:
            # A running sum over micro-batches is of whole gradients until they are scattered every micro-batch.
            assert region.by_id[s].placement(DP) == (Shard(0) if zero >= 2 else Partial())


@pytest.mark.parametrize("zero", [1, 2])
def test_each_rank_updates_the_rows_whose_gradient_it_has(staged: Lowering, zero: int) -> None:
    for region in staged(zero).regions:
        step = next(n for n in region.nodes if n.op == "optimizer_step")
        half = len(step.inputs) // 2
        for p, g in zip(step.inputs[:half], step.inputs[half:], strict=True):
            assert region.by_id[p].type.dims == region.by_id[g].type.dims
            assert region.by_id[p].placements == region.by_id[g].placements
        gather = next(n for n in region.nodes if n.op == "all_gather" and n.phase is OPTIMIZER)
        assert gather.inputs == step.outputs
        # In place: what is gathered is the parameter itself.
        assert [region.by_id[o].storage for o in gather.outputs] == [p for p, _ in region.grads]


def test_stages_1_and_2_send_as_much_as_an_all_reduce(staged: Lowering) -> None:
    # Parameters and gradients in one type, so that a reduce-scatter and an all-gather are the halves of an all-reduce.
    assert ring_bytes(staged(1)) == ring_bytes(staged(2)) == ring_bytes(staged(0))


def test_stage_3_sends_half_as_much_again(staged: Lowering) -> None:
    half = ring_bytes(staged(0)) / 2
    unread = Fraction(7, 8) * sum(local_bytes(staged(0), name) for name in gathered_only_forward(staged(3)))
    # A tied matrix has one gradient and is gathered by both of the regions that read it.
    twice = Fraction(7, 8) * sum(local_bytes(staged(0), name) for name in tied(staged(3)))
    early, late, scattered = (
        ring_bytes(staged(3), partial(is_kind, kind))
        for kind in (("all_gather", FORWARD), ("all_gather", BACKWARD), ("reduce_scatter", BACKWARD))
    )
    assert early == half + twice
    assert late == half + twice - unread
    assert scattered == half
    assert ring_bytes(staged(3)) == early + late + scattered


def test_what_the_backward_phase_does_not_read_is_not_gathered_again(staged: Lowering) -> None:
    tails = (".bias", "embed_tokens.weight", "wte.weight", "wpe.weight")
    assert all(name.endswith(tails) for name in gathered_only_forward(staged(3)))


def gathered_only_forward(graph: Graph) -> list[str]:
    """Names of parameters that a region gathers forward and not again."""
    found: list[str] = []
    for region in graph.regions:
        gathers = [n for n, _ in over_replicas(region) if n.op == "all_gather"]
        early = {i for n in gathers if n.phase is FORWARD for i in n.inputs}
        late = {i for n in gathers if n.phase is not FORWARD for i in n.inputs}
        found += [region.by_id[i].name for i in sorted(early - late)]
    return found


def local_bytes(graph: Graph, name: str) -> int:
    """Bytes of a parameter on a rank of tp = 2, dp = 8, over all layers."""
    region, v = next((r, v) for r in graph.regions for v in r.of_role(Role.PARAM) if v.name == name)
    return number(v.type.num_bytes, tp=2, dp=8) * graph.counts[region.name]


def test_wider_sums_cost_only_where_sums_are_reduced(staged: Lowering) -> None:
    # Stages 2 and 3 reduce what a micro-batch made, in the model's type, and add to the wider sum afterwards.
    assert ring_bytes(staged(0, grads="fp32")) == 2 * ring_bytes(staged(0))
    assert ring_bytes(staged(1, grads="fp32")) == Fraction(3, 2) * ring_bytes(staged(1))
    assert [ring_bytes(staged(z, grads="fp32")) for z in (2, 3)] == [ring_bytes(staged(z)) for z in (2, 3)]


def memory(graph: Graph, family: Family, tp: int, dp: int) -> Mapping[str, float]:
    plan = make_plan(num_gpus=tp * dp, tp=tp, seq_len=64, family=family, micro_batch=2)
    table = PlanTable.of([plan])
    points = Points(table)
    parts = MemoryProgram.of(graph).evaluate(points, 0.0, table, StageProgram.of(graph).evaluate(table, points))
    return {name: float(np.asarray(row)[0]) for name, row in parts.items()}


# Bytes a parameter of mixed-precision Adam with gradients summed in fp32: weight, sum, fp32 master and two moments.
WEIGHT, GRADIENT, STATES = 2, 4, 12


@pytest.mark.parametrize(
    ("zero", "divided"),
    [(0, (1, 1, 1)), (1, (1, 1, 8)), (2, (1, 8, 8)), (3, (8, 8, 8))],
)
def test_what_a_stage_divides_by_the_replicas(staged: Lowering, zero: int, divided: tuple[int, int, int]) -> None:
    graph = staged(zero, grads="fp32")
    names = {v.name for r in graph.regions for v in r.of_role(Role.PARAM)}
    weights = sum(local_bytes(staged(0), name) for name in names)
    found = memory(graph, Family(zero=zero), tp=2, dp=8)
    parts = (found["weights"], found["gradients"], found["optimizer"])
    per_parameter = (WEIGHT, GRADIENT, STATES)
    assert parts == tuple(weights / WEIGHT * b / d for b, d in zip(per_parameter, divided, strict=True))


def test_states_of_a_whole_model() -> None:
    graph = load("qwen3-30b-a3b")
    num_parameters = float(graph.num_parameters.evaluate({}))
    for zero in STAGES:
        sharded = parse_pipeline(f"accumulate,shard{{zero={zero}}},bucket,optimizer").run(graph)[0]
        found = memory(sharded, Family(zero=zero), tp=1, dp=64)
        want = {
            "weights": 2 * num_parameters / (64 if zero == 3 else 1),
            "gradients": 4 * num_parameters / (64 if zero >= 2 else 1),
            "optimizer": 12 * num_parameters / (64 if zero >= 1 else 1),
        }
        assert {part: found[part] for part in want} == pytest.approx(want, rel=1e-12)


def rank_bytes(graph: Graph, **sizes: float) -> dict[str, int]:
    """Bytes of a rank by account."""
    return {
        "parameters": sum(number(v.type.num_bytes, **sizes) for r in graph.regions for v in r.of_role(Role.PARAM)),
        "gradients": sum(number(r.by_id[g].type.num_bytes, **sizes) for r in graph.regions for _, g in r.grads),
        "saved": number(graph.saved_bytes, **sizes),
    }


@given(tp=st.sampled_from([1, 2]), zero=st.sampled_from(STAGES))
def test_one_replica_holds_what_it_holds_without_zero(staged: Lowering, tp: int, zero: int) -> None:
    assert rank_bytes(staged(zero), tp=tp, dp=1) == rank_bytes(staged(0), tp=tp, dp=1)
    family = Family(zero=zero, grad_dtype=DType.BF16)
    parts, plain = (memory(staged(z), family, tp, 1) for z in (zero, 0))
    held = ("weights", "gradients", "optimizer", "activations")
    assert {p: parts[p] for p in held} == {p: plain[p] for p in held}


def flops(graph: Graph, **sizes: float) -> Counter[Phase]:
    found: Counter[Phase] = Counter()
    for region in graph.regions:
        for node in region.nodes:
            found[node.phase] += number(work_of(region, node).tensor_flops, **sizes) * graph.counts[region.name]
    return +found


@given(tp=st.sampled_from([1, 2]), dp=DEGREES, zero=st.sampled_from(STAGES), sp=st.booleans())
def test_a_stage_changes_neither_work_nor_activations(staged: Lowering, tp: int, dp: int, zero: int, sp: bool) -> None:
    options = "sp=true" if sp else ""
    graph, plain = staged(zero, options), staged(0, options)
    assert flops(graph, tp=tp, dp=dp) == flops(plain, tp=tp, dp=dp)
    assert graph.saved_bytes == plain.saved_bytes
    assert graph.constraints == plain.constraints


@given(tp=st.sampled_from([1, 2]), dp=DEGREES, zero=st.sampled_from(STAGES), sp=st.booleans())
def test_all_ranks_together_hold_every_state_as_often_as_the_stage_says(
    staged: Lowering, tp: int, dp: int, zero: int, sp: bool
) -> None:
    graph, plain = (staged(z, "sp=true" if sp else "") for z in (zero, 0))
    for region, whole in zip(graph.regions, plain.regions, strict=True):
        for here, there in zip(region.grads, whole.grads, strict=True):
            # Parameters are sharded from stage 3 on, reduced gradients from stage 1 on.
            for k, stage in enumerate((3, 1)):
                held, full = region.by_id[here[k]].type.numel, whole.by_id[there[k]].type.numel
                parts = dp if zero >= stage else 1
                assert number(held * 64, tp=tp, dp=dp) * parts == number(full * 64, tp=tp, dp=dp)


@pytest.mark.parametrize("policy", ["full", "selective"])
def test_with_recomputation_parameters_are_gathered_once_for_the_backward_phase(staged: Lowering, policy: str) -> None:
    kept, again = staged(3), staged(3, recompute=policy)
    for before, after in zip(kept.regions, again.regions, strict=True):
        late = [n for n, _ in over_replicas(after) if n.op == "all_gather" and n.phase is not FORWARD]
        needed = {i for n, _ in over_replicas(before) if n.op == "all_gather" and n.phase is BACKWARD for i in n.inputs}
        assert len(late) == (1 if needed else 0)
        # Biases are read by what runs again, not by gradients.
        extra = {after.by_id[i].name for n in late for i in n.inputs if i not in needed}
        assert needed <= {i for n in late for i in n.inputs}
        assert all(name.endswith(".bias") for name in extra)
        assert policy == "full" or not extra


def test_recomputation_gathers_before_it_reads(staged: Lowering) -> None:
    layer = staged(3, recompute="full").region("block0")
    assert messages(staged(3, recompute="full"), "block0") == [
        (FORWARD, "all_gather"), (Phase.RECOMPUTE, "all_gather"), (BACKWARD, "reduce_scatter")
    ]  # fmt: skip
    (again,) = (n for n, _ in over_replicas(layer) if n.phase is Phase.RECOMPUTE)
    order = [n.key for n in layer.nodes]
    readers = [n for n in layer.nodes if n.phase is not FORWARD and set(again.outputs).intersection(n.inputs)]
    assert min(order.index(n.key) for n in readers) > order.index(again.key)


@pytest.mark.parametrize("policy", ["none", "full", "selective"])
def test_no_parameter_stays_gathered_between_the_phases(staged: Lowering, policy: str) -> None:
    for region in staged(3, recompute=policy).regions:
        gathered = {o for n, _ in over_replicas(region) if n.op == "all_gather" for o in n.outputs}
        assert not [v for v in region.values if v.id in gathered and v.saved]


def test_the_last_region_may_keep_its_parameters(staged: Lowering) -> None:
    freed, kept = staged(3), staged(3, keep=True)
    for region in freed.regions[:-1]:
        assert kept.region(region.name) == region
    last = kept.region(freed.sequence_once()[-1])
    assert messages(kept, last.name) == [(FORWARD, "all_gather"), (BACKWARD, "reduce_scatter")]
    # Spared is one gather, and what it would have made is alive in between.
    again = [size for n, size in over_replicas(freed.region(last.name)) if n.op == "all_gather"][1]
    assert ring_bytes(freed) - ring_bytes(kept) == Fraction(7, 8) * again
    assert number(kept.saved_bytes, tp=2, dp=8) - number(freed.saved_bytes, tp=2, dp=8) == again


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_there_is_nothing_to_keep_below_stage_3(staged: Lowering, zero: int) -> None:
    assert staged(zero, keep=True) == staged(zero)


def test_a_tied_table_is_scattered_once(tiny_gpt2: Graph) -> None:
    # 160 x 64 in bf16 over tp = 2: both of its gradients are summed, still partial, and sent with the prologue's.
    for zero in (1, 2, 3):
        graph = parse_pipeline(f'accumulate{{dtype="bf16"}},shard{{zero={zero}}},optimizer').run(tiny_gpt2)[0]
        sizes = [
            size
            for region in graph.regions
            for n, size in over_replicas(region)
            if n.op == "reduce_scatter" and ("wte" in n.scope or "lm_head" in n.scope)
        ]
        table = next(v for v in tiny_gpt2.region("prologue").values if v.name == "transformer.wte.weight")
        assert sizes == [number(table.type.num_bytes) // 2]


def test_experts_and_router_are_sharded_like_the_rest(tiny_mixtral: Graph) -> None:
    graph = parse_pipeline("accumulate,shard{zero=3},bucket,optimizer").run(tiny_mixtral)[0]
    layer, whole = graph.region("block0"), tiny_mixtral.region("block0")
    gather = next(n for n, _ in over_replicas(layer) if n.op == "all_gather")
    assert len(gather.inputs) == len(layer.of_role(Role.PARAM)) == len(whole.of_role(Role.PARAM))
    assert any("experts" in layer.by_id[i].name for i in gather.inputs)
    assert any(layer.by_id[i].name.endswith("mlp.gate.weight") for i in gather.inputs)


def test_gradients_of_norms_under_sequence_parallelism_are_summed_over_the_group_in_shards(
    tiny_llama: Graph,
) -> None:
    # Two norms of 64 a layer: scattered over the replicas first, then summed over tp in fp32, an eighth each.
    for zero in (1, 2, 3):
        text = f"accumulate,shard{{sp=true, zero={zero}}},bucket"
        layer = parse_pipeline(text).run(tiny_llama)[0].region("block0")
        over_tp = [n for n in layer.nodes if isinstance(n.attrs, CollectiveAttrs) and n.attrs.axis == "tp"]
        (late,) = (n for n in over_tp if n.phase is REDUCE)
        assert number(message_bytes(call_of(layer, late)), tp=2, dp=8) == 2 * 64 * 4 // 8
