"""Adding an op touches one file: its rule, layout law, proof and numeric check follow from what is said there."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from slipstick.ir import ops
from slipstick.ir.errors import UsageError, VerifyError
from slipstick.ir.graph import Graph, Node, Region, Workload
from slipstick.ir.meaning import In, Meaning, OperatorCall, Out
from slipstick.ir.ops.collectives import CollectiveAttrs
from slipstick.ir.placement import PARTIAL, REPLICATE, Placement, Shard
from slipstick.ir.plan import Family
from slipstick.ir.sizes.expr import symbol
from slipstick.ir.text.parse import parse_graph
from slipstick.passes.families import pipeline_for
from slipstick.passes.layouts.check import verify_layouts
from slipstick.verify.numeric.call import LayoutMismatchError, Mesh
from slipstick.verify.numeric.compare import in_double
from slipstick.verify.numeric.layout import LocalSizes
from slipstick.verify.numeric.run import Runner
from slipstick.verify.proof.certificate import SHARD, Certificate, certify

# y[b, t, n] is the sum of x[b, t - j, k] w[k, n] over k and over j < 3, the window of a position.
OP = """
from slipstick.ir.ops.base import GemmShape, OpCall, OpClass, OpDef, Work, no_check
from slipstick.ir.ops.index_map import IndexMap, spec
from slipstick.ir.sizes.expr import as_expr


def _work(call: OpCall) -> Work:
    (b, t, k), n = call.inputs[0].dims, call.inputs[1].dims[1]
    m = as_expr(b) * t
    gemm = GemmShape(as_expr(1), m, as_expr(n), as_expr(k))
    return Work(tensor_flops=m * k * n * 2, vector_flops=m * k * 3, gemms=(gemm,))


def _index_map(call: OpCall, axis: str) -> IndexMap:
    inputs, outputs = spec("b t! k, k n -> b t! n")
    return IndexMap(inputs, outputs, sums=(("k", 0),), linear=((0,), (1,)))


OPS = (
    OpDef("mix", OpClass.MATMUL, _work, "sums of neighbours, times a matrix; inputs: x, weight", no_check,
          min_inputs=2, max_inputs=2, index_map=_index_map),
)
"""
TEXT = """slipstick.graph 1
graph "Mixing" prefill bf16
schedule prologue | epilogue
region prologue
  %0 = input "input_ids" : int64[batch, seq]
  %1 = param "embed_tokens.weight" : bf16[64, 16]
  %2 = param "up.weight" : bf16[32, 16]
  %3 = param "mix.weight" : bf16[32, 8]
  %4 = embedding(%0, %1) : bf16[batch, seq, 16] @embed_tokens
  %5 = matmul(%4, %2) {spec="abc,dc->abd"} : bf16[batch, seq, 32] @up
  %6 = mix(%5, %3) : bf16[batch, seq, 8] @mix
  out "result0" = %6
end
region epilogue
end
"""
# What the recorder would write down of the operators that the op stands for.
RECORDED = Meaning(
    (
        OperatorCall("aten.constant_pad_nd", (("self", In(0)), ("pad", (0, 0, 2, 0)))),
        OperatorCall("aten.unfold", (("self", Out(0)), ("dimension", 1), ("size", 3), ("step", 1))),
        OperatorCall("aten.sum.dim_IntList", (("self", Out(1)), ("dim", (3,)))),
        OperatorCall("aten.matmul", (("self", Out(2)), ("other", In(1)))),
    ),
    (Out(3),),
)
FAMILY = Family(workload=Workload.PREFILL, fused=False, cp="ulysses")
PLAN = "up.weight: colwise\n"
DEGREES = {"tp": 2, "cp": 2}


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Graph]:
    """A graph with the new op, which is there for one test."""
    file = tmp_path / "mix.py"
    file.write_text(OP, encoding="utf-8")
    (op,) = runpy.run_path(str(file))["OPS"]
    ops.register_op(op)
    yield changed(parse_graph(TEXT), lambda _, node: replace(node, meaning=RECORDED))
    del ops.OPS[op.name], ops._ANSWERS[op.name]


def changed(graph: Graph, edit: Callable[[Region, Node], Node]) -> Graph:
    """The graph with another node in place of the new op's."""
    regions = [replace(r, nodes=tuple(edit(r, n) if n.op == "mix" else n for n in r.nodes)) for r in graph.regions]
    return replace(graph, regions=tuple(regions))


def laid(graph: Graph, axis: str, placement: Placement) -> Graph:
    """The graph whose new op makes something that lies otherwise along an axis."""
    region = graph.region("prologue")
    made = next(n for n in region.nodes if n.op == "mix").key
    values = tuple(
        replace(v, placements=tuple((a, placement if a == axis else p) for a, p in v.placements)) if v.id == made else v
        for v in region.values
    )
    return replace(graph, regions=tuple(replace(r, values=values) if r is region else r for r in graph.regions))


@pytest.fixture
def sharded(traced: Graph, tmp_path: Path) -> Graph:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN, encoding="utf-8")
    return pipeline_for(replace(FAMILY, tp_plan=str(plan))).run(traced, SHARD)[0]


def proof(before: Graph, after: Graph) -> Certificate:
    return certify(before, after, after, (SHARD,))


def results(graph: Graph) -> Mapping[str, Tensor]:
    """What simulated ranks make of seeded weights and tokens."""
    gen = torch.Generator().manual_seed(3)
    shapes = {"embed_tokens.weight": (64, 16), "up.weight": (32, 16), "mix.weight": (32, 8)}
    state = {name: torch.randn(shape, generator=gen, dtype=torch.float64) for name, shape in shapes.items()}
    ids = torch.randint(64, (2, 8), generator=gen)
    mesh = Mesh({axis: DEGREES.get(axis, 1) for axis in graph.axes})
    with in_double():
        sizes = {**mesh.degrees, "mbs": 2, "seq": 8}
        made = Runner(LocalSizes(graph, mesh, sizes), state, {"input_ids": ids}).run().results
    x = state["embed_tokens.weight"][ids] @ state["up.weight"].T
    shifted = [torch.nn.functional.pad(x, (0, 0, j, 0))[:, :8] for j in range(3)]
    return {"made": made["result0"], "wanted": torch.stack(shifted).sum(0) @ state["mix.weight"]}


def test_its_rule_keeps_the_summed_dim_cut_and_makes_the_window_whole(sharded: Graph) -> None:
    region = sharded.region("prologue")
    node = next(n for n in region.nodes if n.op == "mix")
    x, weight = (region.by_id[i] for i in node.inputs)
    y = region.by_id[node.key]
    assert [v.placement("tp") for v in (x, weight, y)] == [Shard(2), Shard(0), PARTIAL]
    assert [v.placement("cp") for v in (x, weight, y)] == [REPLICATE] * 3
    sent = [(n.op, n.attrs.axis) for n in region.nodes if isinstance(n.attrs, CollectiveAttrs)]
    assert sorted(sent) == [("all_gather", "cp"), ("all_reduce", "tp")]


def test_its_law_refuses_a_sum_that_is_said_to_be_whole(sharded: Graph) -> None:
    verify_layouts(sharded)
    with pytest.raises(VerifyError, match=r"'S\(2\), S\(0\) -> R' is no entry of mix; nearest is .* \(wanted P\)"):
        verify_layouts(laid(sharded, "tp", REPLICATE))
    with pytest.raises(VerifyError, match="is no entry of mix"):
        verify_layouts(laid(sharded, "cp", Shard(1)))


def test_its_proof_holds_and_fails_where_a_placement_is_another(traced: Graph, sharded: Graph) -> None:
    assert proof(traced, sharded).holds
    faults = proof(traced, laid(sharded, "tp", REPLICATE)).faults
    assert any("no entry of 'mix' is S(2), S(0) -> R" in str(fault) for fault in faults)


def test_its_numbers_are_compared_and_a_wrong_share_is_found(sharded: Graph) -> None:
    made = results(sharded)
    assert torch.allclose(made["made"], made["wanted"], rtol=1e-12, atol=1e-12)
    with pytest.raises(LayoutMismatchError, match="differs between ranks that should hold the same"):
        results(laid(sharded, "tp", REPLICATE))


def test_it_is_priced(sharded: Graph) -> None:
    region = sharded.region("prologue")
    node = next(n for n in region.nodes if n.op == "mix")
    share = region.by_id[node.inputs[1]].type.dims[0]  # of the 32 inner entries that a rank has
    mbs, seq = symbol("mbs"), symbol("seq")
    assert ops.work_of(region, node).tensor_flops == mbs * seq * 2 * share * 8


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(UsageError, match="op 'matmul' is there already"):
        ops.register_op(ops.op_def("matmul"))
