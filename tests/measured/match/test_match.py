"""Kernels at their places in a step: of a real run on this CPU, and of traces whose every call is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from slipstick.ir.errors import NotUnderstoodError, ParseError, UsageError
from slipstick.ir.placement import TP
from slipstick.measured.match.match import How, Matched, match
from slipstick.measured.match.planned import (
    HeadSizes,
    MatrixProduct,
    PlannedNode,
    PlannedStage,
    PlannedStep,
    Sent,
    planned_of,
    planned_record,
)
from slipstick.measured.match.run import matched_run
from slipstick.measured.match.tables import tables_of
from slipstick.measured.traces.trace import read_trace
from tests.measured.conftest import Trained


@dataclass
class Written:
    """A GPU's trace: each call is an operator, its launch and its kernel, one behind the other."""

    events: list[dict[str, object]] = field(default_factory=list)
    at: float = 0.0

    def call(self, op: str, kernel: str, lasting: float, dims: object = None, stream: int = 7, **args: object) -> None:
        """Add a call."""
        number = len(self.events) + 1
        shapes = {} if dims is None else {"Input Dims": dims, "Input type": ["c10::BFloat16"]}
        self._event("cpu_op", op, self.at, 2, 1, **shapes)
        self._event("cuda_runtime", "cudaLaunchKernel", self.at + 1, 0.5, 1, correlation=number)
        self._event("kernel", kernel, self.at + 5, lasting, stream, correlation=number, stream=stream, **args)
        self.at += 5 + lasting

    def mark(self, category: str, name: str, start: float, lasting: float) -> None:
        """Add what runs nothing."""
        self._event(category, name, start, lasting, 1)

    def save(self, path: Path) -> Path:
        """Write the file."""
        path.write_text(json.dumps({"traceEvents": self.events}), encoding="utf-8")
        return path

    def _event(self, cat: str, name: str, start: float, lasting: float, tid: int, **args: object) -> None:
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": lasting, "args": args}
        )


def product(
    node: str, scope: str, m: int, n: int, k: int, time_us: float = 10.0, phase: str = "forward"
) -> PlannedNode:
    return PlannedNode(node, "matmul", "matmul", scope, phase, time_us * 1e-6, (MatrixProduct(1, m, n, k),))


def norm(node: str, time_us: float = 1.0) -> PlannedNode:
    return PlannedNode(node, "norm", "norm", "norm", "forward", time_us * 1e-6)


def step_of(*nodes: PlannedNode, layers: int = 2, micro_batches: int = 1) -> PlannedStep:
    """A step of one region that runs once a layer."""
    chunk = tuple(("block", layer) for layer in range(layers))
    return PlannedStep(nodes, (PlannedStage(0, (chunk,)),), 1, micro_batches)


# 64 tokens: the products of queries and of the output have one shape, that between them another.
NODES = (norm("block/%1"), product("block/%2", "q", 64, 32, 32), product("block/%3", "up", 64, 96, 32),
         product("block/%4", "o", 64, 32, 32))  # fmt: skip
SQUARE, UP = [[64, 32], [32, 32]], [[64, 32], [32, 96]]


def placed(matched: Matched) -> list[tuple[str, int, str]]:
    """Return of each call the node's name, the layer and by what it was matched."""
    where = matched.positions
    return [
        (where.planned.nodes[int(where.node[at])].node if at >= 0 else "", int(where.layer[at]) if at >= 0 else -1,
         How(int(how)).name)
        for at, how in zip(matched.at, matched.how, strict=True)
    ]  # fmt: skip


def test_products_of_one_shape_are_told_apart_by_their_order(tmp_path: Path) -> None:
    trace = Written()
    for _ in range(2):
        trace.call("aten::rsqrt", "norm_kernel", 3)
        trace.call("aten::mm", "gemm", 20, SQUARE)
        trace.call("aten::mm", "gemm", 30, UP)
        trace.call("aten::mm", "gemm", 40, SQUARE)
    found = match(read_trace(trace.save(tmp_path / "t.json")), step_of(*NODES))
    assert placed(found) == [
        ("", -1, "BETWEEN"), ("block/%2", 0, "SHAPE"), ("block/%3", 0, "SHAPE"), ("block/%4", 0, "SHAPE"),
        ("block/%4", 0, "BETWEEN"), ("block/%2", 1, "SHAPE"), ("block/%3", 1, "SHAPE"), ("block/%4", 1, "SHAPE"),
    ]  # fmt: skip
    tables = tables_of(found)
    assert (tables.product_share, tables.seen, found.steps, tables.notes) == (1.0, 1.0, 1, ())
    rows = {row.name: (row.predicted_s, row.measured_s, row.ratio) for row in tables.ops}
    assert rows["matmul o"] == pytest.approx((20e-6, 80e-6, 0.25))
    assert rows["matmul q"] == pytest.approx((20e-6, 40e-6, 0.5))
    # Nothing is lost: all kernels are in one row, and so are all nodes.
    assert sum(row.measured_s for row in tables.ops) == pytest.approx(186e-6)
    assert sum(row.predicted_s for row in tables.ops) == pytest.approx(62e-6)
    assert sum(row.measured_s for row in tables.layers) == pytest.approx(186e-6)
    # The op that explains most of the gap comes first.
    assert tables.ops[0].name == "matmul o"


def test_a_trace_that_begins_within_a_step_says_so(tmp_path: Path) -> None:
    trace = Written()
    # From the second product of the first of four layers to the second of the third.
    for dims in (UP, SQUARE, SQUARE, UP, SQUARE, SQUARE, UP):
        trace.call("aten::mm", "gemm", 10, dims)
    found = match(read_trace(trace.save(tmp_path / "t.json")), step_of(*NODES, layers=4))
    assert [(node, layer) for node, layer, _ in placed(found)] == [
        ("block/%3", 0), ("block/%4", 0), ("block/%2", 1), ("block/%3", 1), ("block/%4", 1), ("block/%2", 2),
        ("block/%3", 2),
    ]  # fmt: skip
    tables = tables_of(found)
    assert tables.seen == pytest.approx(7 / 12)
    assert "part of a step: 58%" in tables.notes[0]
    # What the trace does not hold is not predicted either.
    rows = {row.name: row.predicted_calls for row in tables.ops}
    assert (rows["matmul q"], rows["matmul up"], rows["matmul o"]) == (2, 3, 2)


def test_queries_keys_and_values_that_run_as_one_product_are_one_row(tmp_path: Path) -> None:
    nodes = (product("block/%2", "q", 64, 32, 32), product("block/%3", "k", 64, 16, 32),
             product("block/%4", "v", 64, 16, 32), product("block/%5", "o", 64, 32, 32))  # fmt: skip
    trace = Written()
    for _ in range(2):
        trace.call("aten::addmm", "gemm", 50, [[64], [64, 32], [32, 64]])
        trace.call("aten::mm", "gemm", 10, SQUARE)
    tables = tables_of(match(read_trace(trace.save(tmp_path / "t.json")), step_of(*nodes)))
    rows = {row.name: row for row in tables.ops}
    merged = rows["matmul q + matmul k + matmul v"]
    assert merged.nodes == ("block/%2", "block/%3", "block/%4")
    assert (merged.predicted_s, merged.measured_s) == pytest.approx((60e-6, 100e-6))
    assert "a stack that merges them" in tables.notes[0]
    assert tables.seen == pytest.approx(1.0)


def test_a_run_of_other_tokens_is_matched_by_its_weights_and_told(tmp_path: Path) -> None:
    trace = Written()
    for _ in range(2):
        for dims in ([[256, 32], [32, 32]], [[256, 32], [32, 96]], [[256, 32], [32, 32]]):
            trace.call("aten::mm", "gemm", 10, dims)
    found = match(read_trace(trace.save(tmp_path / "t.json")), step_of(*NODES))
    tables = tables_of(found)
    assert (found.tokens, tables.product_share) == (256, 1.0)
    assert "256 tokens in a pass, the prediction 64" in tables.notes[0]


def test_what_no_node_is_of_is_named_and_not_hidden(tmp_path: Path) -> None:
    trace = Written()
    for _ in range(2):
        for dims in (SQUARE, UP, SQUARE):
            trace.call("aten::mm", "gemm", 10, dims)
        trace.call("aten::mm", "gemm", 40, [[7, 5], [5, 3]])
    tables = tables_of(match(read_trace(trace.save(tmp_path / "t.json")), step_of(*NODES)))
    assert tables.product_share == pytest.approx(60 / 140)
    assert tables.untold == pytest.approx({"aten::mm c10::BFloat16 [[7, 5], [5, 3]]": 80e-6})


def test_without_shapes_products_are_matched_in_order_if_they_are_as_many(tmp_path: Path) -> None:
    trace = Written()
    for _ in range(6):
        trace.call("aten::mm", "gemm", 10)
    found = match(read_trace(trace.save(tmp_path / "t.json")), step_of(*NODES))
    assert {how for _, _, how in placed(found)} == {"CLASS"}
    assert tables_of(found).product_share == 1.0


def test_banks_of_experts_are_matched_in_order_and_caches_are_no_attention(tmp_path: Path) -> None:
    experts = PlannedNode("block/%2", "experts", "experts", "mlp", "forward", 1e-5, (MatrixProduct(1, 64, 32, 32),))
    attention = PlannedNode(
        "block/%1", "attention", "attention", "attn", "forward", 1e-5, (), HeadSizes(1, 4, 8, 8, 16)
    )
    trace = Written()
    for _ in range(2):
        trace.call("_C_cache_ops::reshape_and_cache_flash", "cache_kernel", 2, [[8, 4, 16], [8, 4, 16]])
        trace.call("vllm::unified_attention_with_output", "fmha", 10, [[8, 4, 16], [8, 2, 16]])
        trace.call("vllm::moe_forward", "bmm_swiglu", 20, [[8, 32], [8, 4]])
    found = match(read_trace(trace.save(tmp_path / "t.json")), step_of(attention, experts))
    assert placed(found)[1:4] == [("block/%1", 0, "SHAPE"), ("block/%2", 0, "CLASS"), ("block/%2", 0, "BETWEEN")]
    assert tables_of(found).seen == pytest.approx(1.0)


def test_unmarked_steps_are_counted_by_their_products_and_marked_ones_by_their_marks(tmp_path: Path) -> None:
    trace = Written()
    for k in range(3):
        start = trace.at
        for _ in range(2):
            for dims in (SQUARE, UP, SQUARE):
                trace.call("aten::mm", "gemm", 10, dims)
        trace.mark("other", "ProfilerStep#" * (k > 0) + str(k), start, trace.at - start - 1)
    planned, path = step_of(*NODES), trace.save(tmp_path / "t.json")
    # The first step has no mark.
    marked = match(read_trace(path), planned)
    assert (marked.steps, int(marked.counted.sum())) == (2, 12)
    assert match(read_trace(path), planned, num_steps=3).counted.all()
    trace.events = [e for e in trace.events if e["cat"] != "other"]
    unmarked = match(read_trace(trace.save(tmp_path / "u.json")), planned)
    assert unmarked.steps == 3
    assert {row.measured_calls for row in tables_of(unmarked).ops if row.measured_calls} == {2.0}


def test_phases_optimizers_and_micro_batches_keep_apart(tmp_path: Path) -> None:
    nodes = (product("block/%1", "q", 64, 32, 32), product("block/%2", "q", 64, 32, 32, phase="backward"),
             PlannedNode("block/%3", "optimizer_step", "optimizer", "", "optimizer", 5e-6))  # fmt: skip
    trace = Written()
    for _ in range(2):
        trace.call("aten::mm", "gemm", 10, SQUARE)
        start = trace.at
        trace.call("aten::mm", "gemm", 20, SQUARE)
        trace.mark("cpu_op", "autograd::engine::evaluate_function: MmBackward0", start - 0.5, 4)
    start = trace.at
    trace.call("aten::_foreach_add_", "multi_tensor_apply", 30)
    trace.mark("user_annotation", "Optimizer.step#AdamW.step", start - 0.5, 4)
    found = match(read_trace(trace.save(tmp_path / "t.json")), step_of(*nodes, layers=1, micro_batches=2))
    rows = {(row.name, row.part): (row.measured_s, row.predicted_s) for row in tables_of(found).ops}
    assert rows == {
        ("matmul q", "forward"): pytest.approx((20e-6, 20e-6)),
        ("matmul q, gradient of the input", "backward"): pytest.approx((40e-6, 20e-6)),
        ("optimizer", "optimizer"): pytest.approx((30e-6, 5e-6)),
    }


def test_attention_is_one_kernel_or_its_products(tmp_path: Path) -> None:
    attention = PlannedNode(
        "block/%2", "attention", "attention", "attn", "forward", 1e-5, (), HeadSizes(2, 4, 8, 8, 16)
    )
    one, two = Written(), Written()
    one.call("aten::_flash_attention_forward", "flash_fwd", 10, [[2, 8, 4, 16], [2, 8, 2, 16], [2, 8, 2, 16]])
    two.call("aten::bmm", "gemm", 6, [[8, 8, 16], [8, 16, 8]])
    two.call("aten::softmax", "softmax", 5)
    two.call("aten::bmm", "gemm", 7, [[8, 8, 8], [8, 8, 16]])
    planned = step_of(attention, layers=1)
    assert placed(match(read_trace(one.save(tmp_path / "a.json")), planned)) == [("block/%2", 0, "SHAPE")]
    rows = tables_of(match(read_trace(two.save(tmp_path / "b.json")), planned)).ops
    assert {row.how: row.measured_s for row in rows} == pytest.approx({"shape": 13e-6, "between": 5e-6})


def test_collectives_are_matched_by_kind_and_bytes(tmp_path: Path) -> None:
    sent = [PlannedNode(f"block/%{k}", "all_reduce", "communication", "", "forward", 1e-5, sent=Sent(TP.group, 4, size))
            for k, size in ((5, 200.0), (6, 800.0))]  # fmt: skip
    trace = Written()
    for count in (100, 400):
        about = {"Collective name": "allreduce", "Group size": 4, "In msg nelems": count, "Out msg nelems": count}
        trace.call("c10d::allreduce_", "ncclDevKernel_AllReduce", 20, None, 9, dtype="BFloat16", **about)
    run = matched_run([read_trace(trace.save(tmp_path / "t.json"))], step_of(*sent, layers=1))
    assert placed(run.matched) == [("block/%5", 0, "SHAPE"), ("block/%6", 0, "SHAPE")]
    small = min(run.collectives, key=lambda row: row.num_bytes)
    assert (small.kind, small.ranks, small.num_bytes) == ("all_reduce", 4, 200.0)
    assert (small.predicted_s, small.measured_s, small.exposed_s) == pytest.approx((10e-6, 20e-6, 20e-6))


def test_a_rank_that_comes_last_waits_for_nobody(tmp_path: Path) -> None:
    traces = []
    # Both leave the collective together: what one computes longer, the other waits.
    for name, computes, waits in (("a", 10, 30), ("b", 35, 5)):
        trace = Written()
        trace.call("aten::mm", "gemm", computes, SQUARE)
        trace.call("c10d::allreduce_", "ncclDevKernel_AllReduce", waits, None, 9)
        traces.append(read_trace(trace.save(tmp_path / f"{name}.json")))
    ranks = matched_run(traces, step_of(*NODES)).ranks
    assert [rank.waits_s for rank in ranks] == pytest.approx([25e-6, 0.0])
    assert [rank.compute_s for rank in ranks] == pytest.approx([10e-6, 35e-6])


def _forward_modules(path: Path) -> Iterator[tuple[float, float, str]]:
    for event in json.loads(path.read_text(encoding="utf-8"))["traceEvents"]:
        if str(event.get("name", "")).startswith("module "):
            yield event["ts"], event["ts"] + event["dur"], event["name"].removeprefix("module ")


@pytest.mark.slow
def test_a_llama_on_this_cpu_is_matched_module_by_module(trained: Trained) -> None:
    planned = planned_of(json.loads(trained.report.read_text(encoding="utf-8"))["nodes"], "report")
    found = match(read_trace(trained.trace), planned)
    tables = tables_of(found)
    assert found.steps == 4
    assert tables.product_share >= 0.95
    assert tables.seen == pytest.approx(1.0)
    # What the modules say of their own products: they mark them, the matching does not look.
    modules, checked = sorted(_forward_modules(trained.trace)), 0
    starts = np.array([start for start, _, _ in modules])
    ran = found.trace.ran
    for row in np.flatnonzero((found.how == How.SHAPE) & found.counted).tolist():
        kernel, position = int(found.calls.longest[row]), int(found.at[row])
        k = int(np.searchsorted(starts, ran.start_us[kernel])) - 1
        if k < 0 or modules[k][1] < ran.start_us[kernel]:
            continue
        node, layer = planned.nodes[int(found.positions.node[position])], int(found.positions.layer[position])
        assert node.scope.replace("*", str(layer)) == modules[k][2]
        checked += 1
    # Seven products in each of three layers, and one at the end, in four steps.
    assert checked == (7 * 3 + 1) * 4


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda tree: tree.pop("rows"), "rows"),
        (lambda tree: tree["rows"][0].update(time_s="fast"), "str for a number"),
        (lambda tree: tree["rows"][0].update(products=[1]), "int for a list"),
    ],
)
def test_nodes_that_cannot_be_read_are_refused(spoil: Callable[[dict[str, object]], object], said: str) -> None:
    planned = step_of(*NODES)
    tree = json.loads(json.dumps(planned_record(planned)))
    assert planned_of(tree, "p.json") == planned
    spoil(tree)
    with pytest.raises(ParseError, match=said):
        planned_of(tree, "p.json")


def test_steps_that_are_given_count_all_of_a_trace_and_are_no_more_than_its_kernels(tmp_path: Path) -> None:
    """A mark that nothing ran in, with two kernels outside of it."""
    trace = Written()
    trace.call("aten::mm", "gemm", 20, SQUARE)
    trace.call("aten::mm", "gemm", 30, UP)
    trace.mark("user_annotation", "ProfilerStep#1", 1e6, 50)
    read = read_trace(trace.save(tmp_path / "t.json"))
    rows = matched_run([read], step_of(*NODES), num_steps=2).ranks
    assert rows[0].compute_s == pytest.approx(25e-6)
    assert rows[0].step_s == pytest.approx((25 + 30) * 1e-6 / 2)  # launched 5 us before it begins
    with pytest.raises(NotUnderstoodError, match="nothing ran in the steps that it marks; give --steps N"):
        matched_run([read], step_of(*NODES))
    with pytest.raises(UsageError, match=r"--steps 3: .* holds 2 kernels .* give --steps of at most 2"):
        matched_run([read], step_of(*NODES), num_steps=3)
