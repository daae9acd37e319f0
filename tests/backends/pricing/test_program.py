"""A lowered graph compiled for pricing: nothing lost, grouped by symbols, amounts as the work rules say."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from slipstick.backends.pricing.program import CompiledProgram, compile_graph, group_factors, group_of
from slipstick.driver.estimate import lower
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.ops import OpClass, op_def, work_of
from slipstick.ir.placement import AxisGroup
from slipstick.ir.plan import Family
from slipstick.ir.sizes.expr import total

ENV = {"mbs": 2.0, "seq": 32.0, "kv": 0.0, "tp": 2.0, "dp": 2.0}


@pytest.fixture(scope="module", params=["tiny-llama.train", "tiny-mixtral.train", "tiny-gpt2.train"])
def sharded(request: pytest.FixtureRequest, traced: Callable[[str], Graph]) -> Graph:
    return lower(traced(str(request.param)), Family(sp=True)).graph


@pytest.fixture(scope="module")
def program(sharded: Graph) -> CompiledProgram:
    return compile_graph(sharded)


def test_every_node_that_is_not_free_is_an_entry_once(sharded: Graph, program: CompiledProgram) -> None:
    nodes = [f"{r.name}/%{n.key}" for r in sharded.regions for n in r.nodes if op_def(n.op).kind is not OpClass.FREE]
    assert Counter(e.name for e in program.entries) == Counter(nodes)
    assert max(Counter(nodes).values()) == 1


def test_entries_know_how_often_they_run(sharded: Graph, program: CompiledProgram) -> None:
    assert {e.region: e.count for e in program.entries} == dict(sharded.counts)


def test_communication_and_computation_are_apart(program: CompiledProgram) -> None:
    assert all(e.message is None for g in program.compute for e in g.entries)
    assert all(e.message is not None for g in program.communication for e in g.entries)
    assert {(g.axis, g.collective) for g in program.communication} == {
        (e.axis, e.op) for g in program.communication for e in g.entries
    }


def test_a_group_depends_on_its_symbols_and_no_others(program: CompiledProgram) -> None:
    for group in (*program.compute, *program.communication):
        assert group.table.symbols <= set(group.symbols)
    # What a GPU computes does not depend on how many replicas there are; that is what makes tables fast.
    assert all("dp" not in g.symbols for g in program.compute)


def test_a_collective_depends_on_its_own_degree_and_those_inside(program: CompiledProgram) -> None:
    for group in program.communication:
        wanted = {"tp": {"tp"}, "tp/2": {"tp"}, "dp": {"tp", "dp"}}[group.axis]
        assert wanted <= set(group.symbols)


def test_amounts_are_those_of_the_work_rules(sharded: Graph, program: CompiledProgram) -> None:
    for group in program.compute:
        found = group.amounts(ENV, 1)
        for row, entry in enumerate(group.entries):
            region = sharded.region(entry.region)
            work = work_of(region, region.producer[entry.key])
            for amount, expr in (
                (found.tensor_flops, work.tensor_flops), (found.vector_flops, work.vector_flops),
                (found.num_bytes, work.num_bytes),
            ):  # fmt: skip
                assert amount[row, 0] == pytest.approx(float(np.asarray(expr.evaluate(ENV))), rel=1e-12)


def test_a_kernel_of_several_nodes_does_the_arithmetic_of_all(traced: Callable[[str], Graph]) -> None:
    graph = lower(traced("tiny-llama.decode"), Family(workload=Workload.DECODE, kernels="fused")).graph
    several = [e for e in compile_graph(graph).entries if e.inside and e.message is None]
    assert several
    for entry in several:
        region = graph.region(entry.region)
        nodes = [n for n in region.nodes if entry.key in (n.key, n.kernel)]
        assert tuple(n.op for n in nodes) == entry.inside
        works = [work_of(region, n) for n in nodes]
        assert entry.work.vector_flops == total(w.vector_flops for w in works)
        assert entry.work.tensor_flops == total(w.tensor_flops for w in works)


def test_products_say_whose_they_are_and_make_up_the_flops(program: CompiledProgram) -> None:
    for group in program.compute:
        found = group.amounts(ENV, 1)
        p = found.products
        flops = np.zeros_like(found.tensor_flops)
        np.add.at(flops, p.owner, 2 * p.batch * p.m * p.n * p.k)
        products = [i for i, e in enumerate(group.entries) if e.work.gemms]
        assert flops[products] == pytest.approx(found.tensor_flops[products], rel=1e-12)


def test_lengths_of_attention_are_told(program: CompiledProgram) -> None:
    found = [group.amounts(ENV, 1).lengths for group in program.compute]
    assert sum(len(f.owner) for f in found) == sum(e.op.startswith("attention") for e in program.entries) > 0
    for f in found:
        assert (f.q_len == 32).all()
        assert (f.kv_len == 32).all()


def test_a_group_of_some_entries_keeps_their_amounts(program: CompiledProgram) -> None:
    group = max(program.compute, key=lambda g: len(g.entries))
    part = group_of(group.symbols, group.entries[1:3])
    whole, some, n = group.table.evaluate(ENV, 1), part.table.evaluate(ENV, 1), len(group.entries)
    wanted = [whole[block * n + row, 0] for block in range(3) for row in (1, 2)]
    assert list(some[:6, 0]) == wanted


@pytest.mark.parametrize(
    ("axis", "factors"),
    [("tp", [(8, 1)]), ("dp", [(2, 64)]), ("ep+dp", [(8, 16)]), ("cp+ep+dp", [(16, 8)]), ("cp+dp", [(2, 8), (2, 64)])],
)
def test_groups_are_stretches_of_neighbouring_axes(axis: str, factors: list[tuple[int, int]]) -> None:
    assert group_factors(AxisGroup(axis), {"tp": 8, "cp": 2, "ep": 4, "dp": 2}) == factors
