"""The verifier of layouts: right graphs pass, and for each law a broken graph is refused with what it breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from slipstick.ir.errors import VerifyError
from slipstick.ir.graph import Graph, Node, Phase, Region, Value
from slipstick.ir.ops.collectives import CollectiveAttrs
from slipstick.ir.ops.tensors.pointwise import ElementwiseAttrs
from slipstick.ir.placement import DP, PARTIAL, REPLICATE, Placement, Shard
from slipstick.ir.sizes.expr import symbol
from slipstick.ir.types import DType
from slipstick.passes.layouts.check import verify_layouts
from slipstick.passes.manager import parse_pipeline

Find = Callable[[Region, Node], bool]


@pytest.fixture(scope="module")
def lowered(tiny_llama: Graph) -> Graph:
    return parse_pipeline('accumulate{dtype="fp32"},shard{sp=true, zero=1},bucket,optimizer').run(tiny_llama)[0]


def is_layer(scope: str, phase: Phase = Phase.FORWARD) -> Find:
    return lambda region, node: node.op == "matmul" and node.scope.endswith(scope) and node.phase is phase


def is_message(op: str, axis: str, phase: Phase) -> Find:
    return lambda region, node: (
        node.op == op and isinstance(node.attrs, CollectiveAttrs) and node.attrs.axis == axis and node.phase is phase
    )


def found(graph: Graph, find: Find, name: str = "block0") -> Node:
    region = graph.region(name)
    return next(n for n in region.nodes if find(region, n))


def with_value(graph: Graph, ident: int, change: Callable[[Value], Value]) -> Graph:
    region = graph.region("block0")
    values = tuple(change(v) if v.id == ident else v for v in region.values)
    regions = tuple(replace(r, values=values) if r is region else r for r in graph.regions)
    return graph.with_regions(regions)


def with_node(graph: Graph, old: Node, new: Node) -> Graph:
    region = graph.region("block0")
    nodes = tuple(new if n is old else n for n in region.nodes)
    return graph.with_regions(tuple(replace(r, nodes=nodes) if r is region else r for r in graph.regions))


def lying(axis: str, placement: Placement) -> Callable[[Value], Value]:
    return lambda v: replace(v, placements=tuple((a, placement if a == axis else p) for a, p in v.placements))


def refused(graph: Graph, *words: str) -> None:
    """The error names the graph, the pass, the node and each of these words."""
    with pytest.raises(VerifyError) as caught:
        verify_layouts(graph, "seeded")
    text = str(caught.value)
    assert "after pass 'seeded' breaks" in text
    assert all(word in text for word in words), text


def test_a_graph_of_ours_keeps_every_law(lowered: Graph) -> None:
    verify_layouts(lowered)


def test_a_graph_that_is_not_sharded_has_no_layouts(tiny_llama: Graph) -> None:
    verify_layouts(tiny_llama)


def test_what_was_verified_is_not_looked_at_again(lowered: Graph) -> None:
    broken = with_value(lowered, found(lowered, is_layer("down_proj")).inputs[0], lying("tp", Shard(2, packed=True)))
    verify_layouts(broken, verified=broken)
    with pytest.raises(VerifyError):
        verify_layouts(broken, verified=lowered)


def test_operands_of_a_product_are_packed_alike(lowered: Graph) -> None:
    down = found(lowered, is_layer("down_proj"))
    broken = with_value(lowered, down.inputs[0], lying("tp", Shard(2, packed=True)))
    refused(broken, "block0: matmul at model.layers.*.mlp.down_proj (forward): along tp: 'S(2p), S(1) -> P' is",
            "nearest is 'S(2), S(1) -> P': input 0 bf16[mbs, seq, 96/tp] S(2p) (wanted S(2))")  # fmt: skip


def test_operands_of_a_product_are_cut_along_one_letter(lowered: Graph) -> None:
    up = found(lowered, is_layer("up_proj"))
    refused(
        with_value(lowered, up.inputs[0], lying("tp", Shard(2))),
        "matmul at",
        "'S(2), S(0) -> S(2)' is no entry",
        "S(2) (wanted R)",
    )


def test_a_product_of_one_cut_operand_is_no_product(lowered: Graph) -> None:
    down = found(lowered, is_layer("down_proj"))
    refused(
        with_value(lowered, down.inputs[0], lying("tp", REPLICATE)), "'R, S(1) -> P' is no entry", "R (wanted S(2))"
    )


def test_a_sum_over_cut_entries_is_partial(lowered: Graph) -> None:
    down = found(lowered, is_layer("down_proj"))
    refused(
        with_value(lowered, down.key, lying("tp", REPLICATE)),
        "matmul at",
        "'S(2), S(1) -> R' is no entry",
        "R (wanted P)",
    )


def test_a_nonlinear_function_reads_no_partial_sum(lowered: Graph) -> None:
    silu = found(lowered, lambda _, n: n.attrs == ElementwiseAttrs(("silu",)))
    broken = with_value(lowered, silu.inputs[0], lying("tp", PARTIAL))
    refused(broken, "'P -> S(2)' is no entry of elementwise", "P (wanted S(2))")


def test_operands_of_a_pointwise_function_lie_alike(lowered: Graph) -> None:
    mul = found(lowered, lambda _, n: n.attrs == ElementwiseAttrs(("mul",)) and n.scope.endswith("mlp"))
    broken = with_value(lowered, mul.inputs[1], lying("tp", REPLICATE))
    refused(broken, "elementwise at model.layers.*.mlp", "'S(2), R -> S(2)' is no entry", "R (wanted S(2))")


def test_a_norm_runs_along_whole_rows(lowered: Graph) -> None:
    norm = found(lowered, lambda _, n: n.op == "norm")
    refused(with_value(lowered, norm.inputs[0], lying("tp", Shard(2))), "norm at", "'S(2), R -> ", "S(2) (wanted ")


def test_keys_are_cut_as_queries(lowered: Graph) -> None:
    attention = found(lowered, lambda _, n: n.op == "attention")
    broken = with_value(lowered, attention.inputs[1], lying("tp", Shard(2)))
    refused(broken, "'S(1), S(2), S(1) -> S(2), S(1)' is no entry of attention", "S(2) (wanted S(1))")


def test_a_view_needs_no_message(lowered: Graph) -> None:
    view = found(lowered, lambda _, n: n.op == "reshape" and n.scope.endswith("self_attn"))
    refused(
        with_value(lowered, view.key, lying("tp", REPLICATE)), "'S(2) -> R' is no entry of reshape", "S(2) (wanted R)"
    )


def test_a_message_converts_what_it_says(lowered: Graph) -> None:
    gather = found(lowered, is_message("all_gather", "tp", Phase.FORWARD))
    assert isinstance(gather.attrs, CollectiveAttrs)
    other = replace(gather, attrs=replace(gather.attrs, dim=2))
    refused(with_node(lowered, gather, other), "all_gather over tp (dim 2) turns S to R", "becomes R")
    refused(with_value(lowered, gather.key, lying("dp", REPLICATE)), "all_gather over tp changes dp", "S(0)")


def test_samples_stay_with_their_replica(lowered: Graph) -> None:
    gather = found(lowered, is_message("all_gather", "tp", Phase.FORWARD))
    assert isinstance(gather.attrs, CollectiveAttrs)
    add = found(lowered, lambda _, n: n.attrs == ElementwiseAttrs(("add",)))
    sent = Node("all_gather", add.inputs[:1], add.outputs, CollectiveAttrs(DP.group, 0), add.scope, add.phase)
    refused(with_node(lowered, add, sent), "sends samples over dp", "<dp=S(0), tp=S(1)>")

    def of_all_replicas(v: Value) -> Value:
        return replace(v, type=v.type.with_dims((symbol("dp") * 2, *v.type.dims[1:])))

    grown = with_value(lowered, add.key, of_all_replicas)
    refused(grown, "makes bf16[2*dp, seq/tp, 64]: each replica has samples of its own")


def test_a_sum_is_completed_while_it_is_narrow(lowered: Graph) -> None:
    """A product in bf16 is cast to fp32 while it is a partial sum: four bytes an element are sent where two do."""
    scatter = found(lowered, is_message("reduce_scatter", "tp", Phase.FORWARD))
    region = lowered.region("block0")
    narrow = region.by_id[scatter.inputs[0]]
    ident = max(v.id for v in region.values) + 1
    wide = replace(narrow, id=ident, storage=ident, type=replace(narrow.type, dtype=DType.FP32), saved=False)
    cast = Node("cast", (narrow.id,), (ident,), scope=scatter.scope)
    nodes = [m for n in region.nodes for m in ((cast, replace(n, inputs=(ident,))) if n is scatter else (n,))]
    made = replace(region, values=(*region.values, wide), nodes=tuple(nodes))
    broken = lowered.with_regions(tuple(made if r is region else r for r in lowered.regions))
    refused(broken, "reduce_scatter at model.layers.*", "sends fp32[mbs, seq, 64] over tp, a partial sum that was bf16")


def test_a_gradient_lies_as_its_parameter(lowered: Graph) -> None:
    region = lowered.region("block0")
    param, grad = next((p, g) for p, g in region.grads if region.by_id[p].name.endswith("up_proj.weight"))
    broken = with_value(lowered, grad, lying("tp", Shard(1)))
    refused(broken, "the gradient of 'model.layers.*.mlp.up_proj.weight' lies S(1) along tp and the parameter S(0)")
    refused(with_value(lowered, grad, lying("dp", PARTIAL)), "is partial along dp when the step ends")
    assert region.by_id[param].placement(DP) == REPLICATE  # ZeRO keeps the gradient in shards of that


def test_the_optimizer_reads_whole_sums(lowered: Graph) -> None:
    step = found(lowered, lambda _, n: n.op == "optimizer_step")
    broken = with_value(lowered, step.inputs[len(step.inputs) // 2], lying("tp", PARTIAL))
    refused(broken, "optimizer_step reads", "a partial sum along tp")


def test_a_pass_that_breaks_a_layout_is_named(tiny_llama: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manager verifies after each pass: here `fuse` forgets that the sum of a row-parallel layer is partial."""
    from slipstick.passes.base import PassResult
    from slipstick.passes.fusion.fuse import Fuse

    def forgets(self: Fuse, graph: Graph) -> PassResult:
        return PassResult(with_value(graph, found(graph, is_layer("down_proj")).key, lying("tp", REPLICATE)), True)

    monkeypatch.setattr(Fuse, "apply", forgets)
    with pytest.raises(VerifyError, match=r"after pass 'fuse' breaks \d+ law\(s\) of layouts:\n.*down_proj"):
        parse_pipeline("shard,fuse").run(tiny_llama)
