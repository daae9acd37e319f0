"""Chains of pointwise ops as one kernel: the same work and the same results, less memory traffic."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.ir.graph import NO_ATTRS, Graph, Node, Phase, Port, Region, Role, Run, Value, Workload
from slipstick.ir.ops import work_of
from slipstick.ir.ops.tensors.normalize import DimAttrs
from slipstick.ir.ops.tensors.pointwise import FLOPS_PER_ELEMENT, ElementwiseAttrs
from slipstick.ir.saved import mark_saved
from slipstick.ir.types import DType, TensorType
from slipstick.passes.manager import parse_pipeline

X, ROW = (4, 8), (8,)
SIZES = {"mbs": 2.0, "seq": 16.0, "tp": 2.0, "dp": 2.0}
FORWARD, BACKWARD = Phase.FORWARD, Phase.BACKWARD


def fuse(graph: Graph) -> Graph:
    return parse_pipeline("fuse").run(graph)[0]


def value(ident: int, dims: tuple[int, ...] = X, role: Role = Role.RESULT, name: str = "") -> Value:
    return Value(ident, TensorType(dims, DType.BF16), ident, role, name)


def graph_of(values: list[Value], nodes: list[Node], outputs: list[int]) -> Graph:
    region = Region("block", tuple(values), tuple(nodes), tuple(Port(f"y{k}", i) for k, i in enumerate(outputs)))
    graph = Graph("chain", Workload.TRAIN, DType.BF16, (region,), (Run(("block",)),))
    return mark_saved(graph)


def pointwise(fn: str, inputs: tuple[int, ...], output: int, phase: Phase = FORWARD) -> Node:
    return Node("elementwise", inputs, (output,), ElementwiseAttrs((fn,)), phase=phase)


def kernels(graph: Graph) -> list[tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...]]]:
    """Functions, inputs and outputs of every pointwise kernel."""
    nodes = graph.regions[0].nodes
    return [(n.attrs.fns, n.inputs, n.outputs) for n in nodes if isinstance(n.attrs, ElementwiseAttrs)]


def num_bytes(region: Region) -> float:
    return sum(float(work_of(region, n).num_bytes.evaluate(SIZES)) for n in region.nodes)


def test_a_chain_becomes_one_kernel() -> None:
    values = [value(0, role=Role.INPUT, name="x"), *(value(i) for i in (1, 2, 3))]
    nodes = [pointwise("mul", (0, 0), 1), Node("cast", (1,), (2,)), pointwise("silu", (2,), 3)]
    assert kernels(fuse(graph_of(values, nodes, [3]))) == [(("mul", "cast", "silu"), (0,), (3,))]


def test_a_backward_node_belongs_to_the_kernel_that_swallowed_the_kernel_of_its_forward_node() -> None:
    values = [value(0, role=Role.INPUT, name="x"), *(value(i) for i in (1, 2, 3, 4))]
    chain = [pointwise("mul", (0, 0), 1), pointwise("silu", (1,), 2), pointwise("neg", (2,), 3)]
    backward = replace(pointwise("mul", (0, 0), 4, BACKWARD), forward=1)
    nodes = fuse(graph_of(values, [*chain, backward], [3, 4])).regions[0].nodes
    assert [(n.key, n.forward) for n in nodes] == [(3, None), (4, 3)]


def test_a_diamond_becomes_one_kernel() -> None:
    values = [value(0, role=Role.INPUT, name="x"), *(value(i) for i in (1, 2, 3, 4))]
    nodes = [
        pointwise("exp", (0,), 1),
        pointwise("neg", (1,), 2),
        pointwise("sin", (1,), 3),
        pointwise("add", (2, 3), 4),
    ]
    ((fns, inputs, outputs),) = kernels(fuse(graph_of(values, nodes, [4])))
    assert (sorted(fns), inputs, outputs) == (["add", "exp", "neg", "sin"], (0,), (4,))


def test_what_is_needed_elsewhere_is_still_written_and_no_longer_read() -> None:
    values = [value(0, role=Role.INPUT, name="x"), *(value(i) for i in (1, 2, 3))]
    nodes = [pointwise("exp", (0,), 1), pointwise("neg", (1,), 2), pointwise("mul", (1,), 3, BACKWARD)]
    fused = fuse(graph_of(values, nodes, [2]))
    assert kernels(fused) == [(("exp", "neg"), (0,), (2, 1)), (("mul",), (1,), (3,))]
    assert fused.regions[0].by_id[1].saved


def test_what_leaves_the_region_is_still_written() -> None:
    values = [value(0, role=Role.INPUT, name="x"), *(value(i) for i in (1, 2, 3))]
    nodes = [pointwise("exp", (0,), 1), pointwise("neg", (1,), 2), pointwise("silu", (2,), 3)]
    assert kernels(fuse(graph_of(values, nodes, [1, 3]))) == [(("exp", "neg", "silu"), (0,), (3, 1))]


def test_a_kernel_does_not_run_before_its_inputs_exist() -> None:
    # 1 is needed by the softmax that makes 2, so that it cannot wait for the sum.
    values = [value(0, role=Role.INPUT, name="x"), *(value(i) for i in (1, 2, 3))]
    nodes = [pointwise("exp", (0,), 1), Node("softmax", (1,), (2,), DimAttrs(1)), pointwise("add", (1, 2), 3)]
    assert kernels(fuse(graph_of(values, nodes, [3]))) == [(("exp",), (0,), (1,)), (("add",), (1, 2), (3,))]


def test_another_shape_is_another_kernel() -> None:
    values = [value(0, ROW, Role.INPUT, "x"), value(1, X, Role.INPUT, "y"), value(2, ROW), value(3)]
    nodes = [pointwise("exp", (0,), 2), pointwise("add", (1, 2), 3)]
    assert len(kernels(fuse(graph_of(values, nodes, [3])))) == 2


def test_phases_do_not_mix() -> None:
    values = [value(0, role=Role.INPUT, name="x"), value(1), value(2)]
    nodes = [pointwise("exp", (0,), 1), pointwise("neg", (1,), 2, BACKWARD)]
    assert len(kernels(fuse(graph_of(values, nodes, [2])))) == 2


def test_backward_nodes_belong_to_the_kernel_that_swallowed_their_forward_node() -> None:
    values = [value(0, role=Role.INPUT, name="x"), *(value(i) for i in (1, 2, 3))]
    backward = Node("elementwise", (0,), (3,), ElementwiseAttrs(("mul",)), phase=BACKWARD, forward=1)
    fused = fuse(graph_of(values, [pointwise("exp", (0,), 1), pointwise("neg", (1,), 2), backward], [2, 3]))
    assert [n.forward for n in fused.regions[0].nodes] == [None, 2]


UNARY, BINARY = ("exp", "neg", "silu"), ("add", "mul", "div")


@st.composite
def dags(draw: st.DrawFn) -> Graph:
    """Pointwise nodes over two inputs and a row, with softmaxes between and readers in the backward phase."""
    values = [value(0, role=Role.INPUT, name="x"), value(1, role=Role.INPUT, name="y")]
    values.append(value(2, ROW, Role.INPUT, "row"))
    nodes: list[Node] = []
    readable = [0, 1, 2]
    for ident in range(3, 3 + draw(st.integers(1, 10))):
        nodes.append(_draw_node(draw, ident, readable, FORWARD))
        values.append(value(ident))
        readable.append(ident)
    for ident in range(len(values), len(values) + draw(st.integers(0, 4))):
        nodes.append(_draw_node(draw, ident, readable, BACKWARD))
        values.append(value(ident))
        readable.append(ident)
    made = [n.key for n in nodes]
    outputs = draw(st.lists(st.sampled_from(made), unique=True))
    # What nobody reads leaves the region: a dead value is the recorder's business.
    read = {i for n in nodes for i in n.inputs}
    return graph_of(values, nodes, sorted({*outputs, *(i for i in made if i not in read)}))


def _draw_node(draw: st.DrawFn, ident: int, readable: list[int], phase: Phase) -> Node:
    large = st.sampled_from([i for i in readable if i != 2])
    kind = draw(st.sampled_from(["unary", "binary", "binary", "cast", "softmax"]))
    if kind == "binary":
        return pointwise(draw(st.sampled_from(BINARY)), (draw(large), draw(st.sampled_from(readable))), ident, phase)
    if kind == "unary":
        return pointwise(draw(st.sampled_from(UNARY)), (draw(large),), ident, phase)
    attrs = DimAttrs(1) if kind == "softmax" else NO_ATTRS
    return Node(kind, (draw(large),), (ident,), attrs, phase=phase)


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
