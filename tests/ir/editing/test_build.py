"""Graphs built node by node: dims of results follow from type rules, and what a rule refuses is refused at once."""

from collections.abc import Callable

import pytest

from slipstick import Graph, GraphBuilder, Workload
from slipstick.ir.errors import UnknownNameError, UsageError, VerifyError
from slipstick.ir.graph import Phase, Region
from slipstick.ir.ops import op_def
from slipstick.ir.ops.base import ResultRule
from slipstick.ir.types import TensorType
from slipstick.ir.verify import verify

GOLDEN = ["bamba.decode", "gpt2.train", "llama.decode", "llama.train", "mamba2.train", "mixtral.train"]


def rebuilt(region: Region) -> tuple[Region, int]:
    """The region built again, dims given only where they do not follow; and of how many nodes they do."""
    build, names, inferred = GraphBuilder(region.name), dict[int, int](), 0
    for v in region.values:
        if v.id not in region.producer:
            names[v.id] = build.source(v.name, v.type.dims, v.role, v.type.dtype)
    for node in region.nodes:
        kind, *rest = region.types(node.outputs)
        others = [(t.dims, t.dtype) for t in rest]
        follows = isinstance(op_def(node.op).check, ResultRule)
        inputs, dims = [names[i] for i in node.inputs], None if follows else kind.dims
        made = build.node(node.op, *inputs, attrs=node.attrs, dims=dims, dtype=kind.dtype, others=others)
        names |= dict(zip(node.outputs, made.outputs, strict=True))
        inferred += follows
    return build.finish(), inferred


@pytest.mark.parametrize("name", GOLDEN)
def test_a_recorded_graph_is_built_again_from_its_sources(name: str, traced: Callable[[str], Graph]) -> None:
    for region in traced(f"tiny-{name}").regions:
        again, inferred = rebuilt(region)
        assert kinds(again) == kinds(region)
        assert inferred >= 0.4 * len(region.nodes)  # most products, pointwise ops and norms


def kinds(region: Region) -> list[tuple[str, tuple[TensorType, ...]]]:
    return [(n.op, region.types(n.outputs)) for n in region.nodes]


def test_views_share_storage_and_gradients_belong_to_parameters() -> None:
    build = GraphBuilder()
    weight = build.source("w", [4, 6], "param")
    view = build.node("permute", weight, attrs="dims=[1,0]")
    build.output("result0", build.node("copy", view))
    build.at("out", Phase.BACKWARD)
    build.gradient(weight, build.node("copy", build.node("permute", view, attrs="dims=[1,0]")))
    graph = build.graph()
    verify(graph)
    region = graph.region("block")
    assert {v.storage for v in region.values if v.type.dims == (6, 4)} == {weight, region.nodes[1].key}
    assert graph.workload is Workload.TRAIN
    assert region.grads == ((weight, region.nodes[-1].key),)
    assert [(n.scope, n.phase) for n in region.nodes] == [("", Phase.FORWARD)] * 2 + [("out", Phase.BACKWARD)] * 2


@pytest.mark.parametrize(
    ("op", "attrs", "error", "words"),
    [
        ("reshape", "", UsageError, "'reshape' makes do not follow from its inputs; give dims="),
        ("matmul", 'spec="ab,cb->ac"', VerifyError, "'matmul' at the top: takes 2 to 6 inputs, has 1"),
        ("permute", "dims=[0,7]", VerifyError, r"permute \(0, 7\) does not name each dim of bf16\[3, 4\] once"),
        ("softmaxx", "", UnknownNameError, "unknown op 'softmaxx'; did you mean 'softmax'"),
    ],
)
def test_what_a_rule_refuses(op: str, attrs: str, error: type[Exception], words: str) -> None:
    build = GraphBuilder()
    with pytest.raises(error, match=words):
        build.node(op, build.source("x", [3, 4]), attrs=attrs)


def test_a_source_has_a_role() -> None:
    with pytest.raises(UnknownNameError, match="unknown role of a source 'parm'; did you mean 'param'"):
        GraphBuilder().source("x", [3], "parm")
