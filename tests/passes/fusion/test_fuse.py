"""Chains of pointwise ops as one kernel: the same work and the same results, less memory traffic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick import GraphBuilder
from slipstick.ir.graph import Graph, Phase, Region, Role
from slipstick.ir.ops import work_of
from slipstick.ir.ops.tensors.pointwise import FLOPS_PER_ELEMENT, ElementwiseAttrs
from slipstick.passes.manager import parse_pipeline

X, ROW = (4, 8), (8,)
SIZES = {"mbs": 2.0, "seq": 16.0, "tp": 2.0, "dp": 2.0}
FORWARD, BACKWARD = Phase.FORWARD, Phase.BACKWARD


def fuse(graph: Graph) -> Graph:
    return parse_pipeline("fuse").run(graph)[0]


# A function of a pointwise node, or an op; what it reads; its phase; the forward node it belongs to.
Step = tuple[str, tuple[int, ...], Phase, int | None]


def step(fn: str, *inputs: int, phase: Phase = FORWARD, forward: int | None = None) -> Step:
    return fn, inputs, phase, forward


def graph_of(steps: Iterable[Step], outputs: Iterable[int], *sources: tuple[int, ...]) -> Graph:
    """Sources, one of X unless told, then results of the steps: ids count from 0 in this order."""
    build = GraphBuilder()
    for k, dims in enumerate(sources or (X,)):
        build.source(f"x{k}", dims)
    for fn, inputs, phase, forward in steps:
        is_op = fn in ("cast", "softmax")
        attrs = f'fns=["{fn}"]' if not is_op else "dim=1" if fn == "softmax" else ""
        build.at(phase=phase)
        build.node(fn if is_op else "elementwise", *inputs, attrs=attrs, forward=forward)
    for k, i in enumerate(outputs):
        build.output(f"y{k}", i)
    return build.graph("chain")


def kernels(graph: Graph) -> list[tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...]]]:
    """Functions, inputs and outputs of every pointwise kernel."""
    nodes = graph.regions[0].nodes
    return [(n.attrs.fns, n.inputs, n.outputs) for n in nodes if isinstance(n.attrs, ElementwiseAttrs)]


def num_bytes(region: Region) -> float:
    return sum(float(work_of(region, n).num_bytes.evaluate(SIZES)) for n in region.nodes)


def test_a_chain_becomes_one_kernel() -> None:
    steps = [step("mul", 0, 0), step("cast", 1), step("silu", 2)]
    assert kernels(fuse(graph_of(steps, [3]))) == [(("mul", "cast", "silu"), (0,), (3,))]


def test_a_backward_node_belongs_to_the_kernel_that_swallowed_the_kernel_of_its_forward_node() -> None:
    chain = [step("mul", 0, 0), step("silu", 1), step("neg", 2)]
    backward = step("mul", 0, 0, phase=BACKWARD, forward=1)
    nodes = fuse(graph_of([*chain, backward], [3, 4])).regions[0].nodes
    assert [(n.key, n.forward) for n in nodes] == [(3, None), (4, 3)]


def test_a_diamond_becomes_one_kernel() -> None:
    steps = [
        step("exp", 0),
        step("neg", 1),
        step("sin", 1),
        step("add", 2, 3),
    ]
    ((fns, inputs, outputs),) = kernels(fuse(graph_of(steps, [4])))
    assert (sorted(fns), inputs, outputs) == (["add", "exp", "neg", "sin"], (0,), (4,))


def test_what_is_needed_elsewhere_is_still_written_and_no_longer_read() -> None:
    steps = [step("exp", 0), step("neg", 1), step("mul", 1, phase=BACKWARD)]
    fused = fuse(graph_of(steps, [2]))
    assert kernels(fused) == [(("exp", "neg"), (0,), (2, 1)), (("mul",), (1,), (3,))]
    assert fused.regions[0].by_id[1].saved


def test_what_leaves_the_region_is_still_written() -> None:
    steps = [step("exp", 0), step("neg", 1), step("silu", 2)]
    assert kernels(fuse(graph_of(steps, [1, 3]))) == [(("exp", "neg", "silu"), (0,), (3, 1))]


def test_a_kernel_does_not_run_before_its_inputs_exist() -> None:
    # 1 is needed by the softmax that makes 2, so that it cannot wait for the sum.
    steps = [step("exp", 0), step("softmax", 1), step("add", 1, 2)]
    assert kernels(fuse(graph_of(steps, [3]))) == [(("exp",), (0,), (1,)), (("add",), (1, 2), (3,))]


def test_another_shape_is_another_kernel() -> None:
    steps = [step("exp", 0), step("add", 1, 2)]
    assert len(kernels(fuse(graph_of(steps, [3], ROW, X)))) == 2


def test_phases_do_not_mix() -> None:
    steps = [step("exp", 0), step("neg", 1, phase=BACKWARD)]
    assert len(kernels(fuse(graph_of(steps, [2])))) == 2


def test_backward_nodes_belong_to_the_kernel_that_swallowed_their_forward_node() -> None:
    backward = step("mul", 0, phase=BACKWARD, forward=1)
    fused = fuse(graph_of([step("exp", 0), step("neg", 1), backward], [2, 3]))
    assert [n.forward for n in fused.regions[0].nodes] == [None, 2]


UNARY, BINARY = ("exp", "neg", "silu"), ("add", "mul", "div")


@st.composite
def dags(draw: st.DrawFn) -> Graph:
    """Pointwise nodes over two inputs and a row, with softmaxes between and readers in the backward phase."""
    steps: list[Step] = []
    for phase, least, most in ((FORWARD, 1, 10), (BACKWARD, 0, 4)):
        steps += [_draw_step(draw, 3 + len(steps) + k, phase) for k in range(draw(st.integers(least, most)))]
    made = range(3, 3 + len(steps))
    outputs = draw(st.lists(st.sampled_from(made), unique=True))
    # What nobody reads leaves the region: a dead value is the recorder's business.
    read = {i for _, inputs, _, _ in steps for i in inputs}
    return graph_of(steps, sorted({*outputs, *(i for i in made if i not in read)}), X, X, ROW)


def _draw_step(draw: st.DrawFn, ident: int, phase: Phase) -> Step:
    large = draw(st.sampled_from([i for i in range(ident) if i != 2]))
    kind = draw(st.sampled_from(["unary", "binary", "binary", "cast", "softmax"]))
    if kind == "binary":
        return step(draw(st.sampled_from(BINARY)), large, draw(st.integers(0, ident - 1)), phase=phase)
    return step(draw(st.sampled_from(UNARY)) if kind == "unary" else kind, large, phase=phase)


def functions(region: Region) -> Counter[tuple[Phase, str]]:
    found: Counter[tuple[Phase, str]] = Counter()
    for n in region.nodes:
        fns = n.attrs.fns if isinstance(n.attrs, ElementwiseAttrs) else (n.op,)
        found.update((n.phase, fn) for fn in fns)
    return found


def arithmetic(region: Region) -> float:
    """FLOPs of pointwise functions; casts and copies do none."""
    flops = 0.0
    for n in region.nodes:
        if isinstance(n.attrs, ElementwiseAttrs):
            numel = float(region.by_id[n.outputs[0]].type.numel.evaluate(SIZES))
            flops += numel * sum(FLOPS_PER_ELEMENT.get(fn, 1) for fn in n.attrs.fns if fn not in ("cast", "copy"))
    return flops


def sources(region: Region) -> dict[int, frozenset[int]]:
    """What from outside of the region each value is made of."""
    found = {v.id: frozenset({v.id}) for v in region.values if v.role is not Role.RESULT}
    for n in region.nodes:
        reads = frozenset().union(*(found[i] for i in n.inputs))
        found.update(dict.fromkeys(n.outputs, reads))
    return found


def assert_conserved(before: Region, after: Region) -> None:
    assert functions(after) == functions(before)
    assert arithmetic(after) == arithmetic(before)
    assert num_bytes(after) <= num_bytes(before)
    assert (after.outputs, after.grads) == (before.outputs, before.grads)
    kept = {v.id for v in after.values}
    assert kept >= {v.id for v in before.values if v.saved or v.role is not Role.RESULT}
    assert {v for v in after.values if v.saved} == {v for v in before.values if v.saved}
    assert after.saved_bytes == before.saved_bytes


@given(dags())
def test_work_is_conserved(graph: Graph) -> None:
    before, after = graph.regions[0], fuse(graph).regions[0]
    assert_conserved(before, after)
    was, now = sources(before), sources(after)
    # A kernel with several results may make each of more than it needs, never of less.
    assert all(now[p.value] >= was[p.value] for p in before.outputs)
    assert set().union(*now.values()) == set().union(*was.values())


@given(dags())
def test_a_second_time_changes_nothing(graph: Graph) -> None:
    once = fuse(graph)
    assert fuse(once) is once


@pytest.mark.parametrize("pipeline", ["shard", "shard{sp=true}", "accumulate,shard{sp=true},bucket,optimizer"])
def test_work_of_models_is_conserved(tiny: Graph, pipeline: str) -> None:
    before = parse_pipeline(pipeline).run(tiny)[0]
    after = fuse(before)
    for a, b in zip(before.regions, after.regions, strict=True):
        assert_conserved(a, b)
    assert sum(map(num_bytes, after.regions)) < sum(map(num_bytes, before.regions))
    assert fuse(after) is after


def test_gate_and_activation_of_an_mlp_are_one_kernel(tiny_llama: Graph) -> None:
    layer = fuse(tiny_llama).region("block0")
    forward = [n.attrs.fns for n in layer.nodes if isinstance(n.attrs, ElementwiseAttrs) and n.phase is FORWARD]
    assert ("silu", "mul") in forward
