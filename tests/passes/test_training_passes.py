"""What a training step has besides the model: summed gradients, messages of many of them, one update a weight."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from slipstick.frontend import load
from slipstick.ir.graph import Graph, Node, Phase, Region, Role, Workload
from slipstick.ir.ops import call_of, op_def, work_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.sizes.expr import Expr, symbol, total
from slipstick.ir.types import DType
from slipstick.passes.manager import parse_pipeline

OPTIONS = ["", "sp=true", 'tp_plan="dtensor-naive"']


def run(graph: Graph, pipeline: str) -> Graph:
    return parse_pipeline(pipeline).run(graph)[0]


def of_op(region: Region, op: str) -> list[Node]:
    return [n for n in region.nodes if n.op == op]


def reductions(region: Region) -> list[tuple[Node, CollectiveAttrs]]:
    return [(n, n.attrs) for n in region.nodes if isinstance(n.attrs, CollectiveAttrs) and n.phase is Phase.REDUCE]


def reduced_bytes(region: Region) -> dict[tuple[str, str], Expr]:
    """Bytes of weight gradients by kind of collective and axis."""
    found: dict[tuple[str, str], list[Expr]] = {}
    for node, attrs in reductions(region):
        found.setdefault((node.op, attrs.axis), []).append(message_bytes(call_of(region, node)))
    return {key: total(sizes) for key, sizes in found.items()}


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_every_gradient_is_added_to_a_sum_of_the_type_asked_for(tiny: Graph, dtype: str) -> None:
    after = run(tiny, f'accumulate{{dtype="{dtype}"}}')
    for region, source in zip(after.regions, tiny.regions, strict=True):
        sums = of_op(region, "accumulate")
        sum_of = {n.inputs[0]: n.outputs[0] for n in sums}
        assert [(p, sum_of[g]) for p, g in source.grads] == list(region.grads)
        # A gradient is added at once, so that it need not wait in memory.
        follows = dict(pairwise(region.nodes))
        assert all(follows[region.producer[n.inputs[0]]] in sums for n in sums)
        assert {region.by_id[n.outputs[0]].type.dtype for n in sums} <= {DType(dtype)}
        # Read gradient and sum, write the sum: 2 + 4 + 4 bytes an element in fp32.
        width = 4 if dtype == "fp32" else 2
        moved = total(work_of(region, n).num_bytes for n in sums)
        assert moved == total(region.by_id[p].type.numel * (2 + 2 * width) for p, _ in region.grads)


def test_sums_are_reduced_once_a_step_in_their_own_type(tiny_llama: Graph) -> None:
    graph = run(tiny_llama, 'accumulate{dtype="fp32"},shard')
    for region in graph.regions:
        assert {n.phase for n in of_op(region, "accumulate")} <= {Phase.BACKWARD}
        sums = {o for n in of_op(region, "accumulate") for o in n.outputs}
        over_replicas = [n for n, attrs in reductions(region) if attrs.axis == "dp"]
        assert {i for n in over_replicas for i in n.inputs} == sums
        assert reduced_bytes(region)["all_reduce", "dp"] == total(region.by_id[i].type.numel * 4 for i in sums)


@pytest.mark.parametrize("options", OPTIONS)
def test_a_bucket_is_one_message_a_region_and_axis_with_all_the_bytes(tiny: Graph, options: str) -> None:
    single = run(tiny, f"accumulate,shard{{{options}}}")
    joined = run(single, "bucket")
    for before, after in zip(single.regions, joined.regions, strict=True):
        assert reduced_bytes(before) == reduced_bytes(after)
        messages = Counter((n.op, attrs.axis) for n, attrs in reductions(after))
        assert set(messages.values()) <= {1}
        assert after.grads == before.grads
        rest = [n for n in before.nodes if n.phase is not Phase.REDUCE]
        assert [n for n in after.nodes if n.phase is not Phase.REDUCE] == rest


def test_only_what_runs_once_a_step_is_joined(tiny_llama: Graph) -> None:
    # Activations are reduced where they are needed, one by one.
    joined = run(tiny_llama, "shard{sp=true},bucket")
    for region in joined.regions:
        early = [n for n in region.nodes if isinstance(n.attrs, CollectiveAttrs) and n.phase is not Phase.REDUCE]
        assert all(len(n.inputs) == 1 for n in early)


def test_gradients_of_norms_are_summed_over_the_group_only_under_sequence_parallelism(tiny_llama: Graph) -> None:
    # Each rank then saw its own part of the sequence. Two norms of 64 in a layer, in bf16.
    plain, sequence = (run(tiny_llama, f"shard{{{o}}},bucket").region("block0") for o in ("", "sp=true"))
    assert ("all_reduce", "tp") not in reduced_bytes(plain)
    assert reduced_bytes(sequence)["all_reduce", "tp"] == 2 * 64 * 2


@pytest.mark.parametrize("options", OPTIONS)
def test_every_parameter_with_a_gradient_is_updated_once(tiny: Graph, options: str) -> None:
    graph = run(tiny, f"accumulate,shard{{{options}}},bucket,optimizer")
    for region in graph.regions:
        steps = of_op(region, "optimizer_step")
        assert len(steps) == (1 if region.grads else 0)
        for step in steps:
            half = len(step.inputs) // 2
            assert list(zip(step.inputs[:half], step.inputs[half:], strict=True)) == list(region.grads)
            assert step.phase is Phase.OPTIMIZER
            # An update is in place: it makes no new memory.
            owners = [region.by_id[region.by_id[o].storage] for o in step.outputs]
            assert [v.role for v in owners] == [Role.PARAM] * half


def test_every_parameter_has_one_gradient(tiny: Graph) -> None:
    # A tied table is a parameter of two regions and has its gradient where it looks up.
    named = Counter(r.by_id[p].name for r in tiny.regions for p, _ in r.grads)
    assert named == Counter({v.name for r in tiny.regions for v in r.of_role(Role.PARAM)})


def test_the_gradient_of_a_tied_table_is_reduced_once(tiny_gpt2: Graph) -> None:
    # Both parts are summed before, each over its own part of the batch. Vocabulary times hidden, in fp32.
    graph = run(tiny_gpt2, "accumulate,shard")
    table = next(v for v in tiny_gpt2.region("prologue").values if v.name == "transformer.wte.weight")
    whole = [
        message_bytes(call_of(r, n))
        for r in graph.regions
        for n, _ in reductions(r)
        if "wte" in n.scope or "lm_head" in n.scope
    ]
    assert whole == [table.type.numel * 4 / symbol("tp")]


def test_adam_moves_its_states_twice(tiny_llama: Graph) -> None:
    # Read gradient, master weight and two moments in fp32; write master weight, two moments and the bf16 weight.
    region = run(tiny_llama, "accumulate,shard,optimizer").region("block0")
    step = of_op(region, "optimizer_step")[0]
    numel = total(region.by_id[p].type.numel for p, _ in region.grads)
    assert work_of(region, step).read_bytes == numel * (4 + 3 * 4)
    assert work_of(region, step).write_bytes == numel * (3 * 4 + 2)


@pytest.mark.parametrize("name", ["accumulate", "optimizer", "bucket"])
def test_inference_stays_as_it_is(name: str) -> None:
    graph = load("gpt2", Workload.PREFILL)
    after, (time,) = parse_pipeline(name).run(graph)
    assert after is graph
    assert not time.changed


def test_the_phases_of_a_step_stand_in_order(tiny_llama: Graph) -> None:
    order = [Phase.FORWARD, Phase.BACKWARD, Phase.REDUCE, Phase.OPTIMIZER]
    for region in run(tiny_llama, "accumulate,shard{sp=true},bucket,optimizer,fuse").regions:
        ranks = [order.index(n.phase) for n in region.nodes]
        assert ranks == sorted(ranks)


def test_what_is_summed_has_no_replica_in_its_size(tiny_llama: Graph) -> None:
    for region in run(tiny_llama, "accumulate,shard,bucket").regions:
        for size in reduced_bytes(region).values():
            assert not {str(symbol("dp")), "mbs", "seq"} & set(size.symbols)
            assert all(op_def(n.op).name == n.op for n, _ in reductions(region))
