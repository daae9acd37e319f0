"""What is in a graph, summed by hand, and who prices each of its ops."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from slipstick import GraphBuilder
from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.types import DType
from slipstick.report.catalogue.contents import GraphContents, contents_of, sizes_of
from slipstick.report.catalogue.contents_text import contents_json, contents_text, coverage_text
from slipstick.report.explain.pricing import BYTES_ALONE, NO_KERNEL, PricedOp, priced_ops

# tests/data/configs/tiny-llama.json
V, H, F, L, HEADS, KV_HEADS, D = 160, 64, 96, 2, 4, 2, 16
B, S = 3, 32
MATRICES = H * D * (2 * HEADS + 2 * KV_HEADS) + 3 * H * F


@pytest.fixture
def train(traced: Callable[[str], Graph]) -> GraphContents:
    graph = traced("tiny-llama.train")
    return contents_of(graph, sizes_of(graph, B, S))


@pytest.fixture
def unpriced() -> Graph:
    """Ten rows of eight through one operator without a rule."""
    build = GraphBuilder("prologue")
    rows = build.source("x", ("batch", "seq", 8))
    build.node("unpriced", rows, attrs='name="acme.twist"', dims=("batch", "seq", 8))
    return build.graph("twisted", Workload.PREFILL)


def test_parameters_and_regions_are_those_of_the_config(train: GraphContents) -> None:
    per_layer = MATRICES + 2 * H
    assert train.num_parameters == 2 * V * H + L * per_layer + H
    assert train.parameter_bytes == 2 * train.num_parameters
    by_name = {row.name: row for row in train.regions}
    assert by_name["block0"].count == L
    assert by_name["block0"].num_parameters == L * per_layer


def test_flops_are_those_of_the_matrices_and_of_all_pairs(train: GraphContents) -> None:
    products = 2 * B * S * (L * MATRICES + H * V)
    pairs = 4 * B * HEADS * S * S * D * L
    assert train.by_phase["forward"].matrix_flops == products + pairs
    # the gradient of the embedding is no product; attention computes its scores again
    assert train.by_phase["backward"].matrix_flops == 2 * products + 2.5 * pairs


def test_everything_adds_up(train: GraphContents) -> None:
    whole = train.whole
    for parts in ([r.amount for r in train.regions], list(train.by_phase.values())):
        assert sum(a.matrix_flops for a in parts) == whole.matrix_flops
        assert sum(a.num_bytes for a in parts) == pytest.approx(whole.num_bytes)
        assert sum(a.vector_flops for a in parts) == pytest.approx(whole.vector_flops)
    assert whole.calls == sum(row.amount.calls for row in train.ops)
    # what a layer saves, and what the ends do
    assert sum(r.saved_bytes for r in train.regions) == train.saved_bytes


def test_a_decode_step_reads_its_caches(traced: Callable[[str], Graph]) -> None:
    graph = traced("tiny-llama.decode")
    sizes = sizes_of(graph, B, S)
    assert sizes == {"batch": B, "seq": 1, "kv": S}
    assert contents_of(graph, sizes).cache_bytes == 2 * B * KV_HEADS * S * D * 2 * L


def test_every_op_is_priced_by_the_model_of_its_class(train: GraphContents) -> None:
    ops = {row.op: row for row in priced_ops(train.graph, load_system("dgx-h100"), train.sizes)}
    models = {op: ops[op].model for op in ("matmul", "attention", "attention_bwd", "norm", "elementwise", "reshape")}
    assert models == {
        "matmul": "gemm", "attention": "attention", "attention_bwd": "attention", "norm": "rowwise",
        "elementwise": "rowwise", "reshape": NO_KERNEL,
    }  # fmt: skip
    assert ops["matmul"].constants == ("bf16",)
    assert ops["norm"].constants == ("rmsnorm",)
    assert all((row.time_s > 0) == (row.model != NO_KERNEL) for row in ops.values())
    assert sum(row.amount.num_bytes for row in ops.values()) == pytest.approx(train.whole.num_bytes)


def test_without_kernel_models_the_roofline_prices_all(
    train: GraphContents, roofline_only: Callable[[System], System]
) -> None:
    plain = roofline_only(load_system("dgx-h100"))
    models = {row.model for row in priced_ops(train.graph, plain, train.sizes)}
    assert models == {"roofline", NO_KERNEL}


def test_an_operator_without_a_rule_stands_under_its_own_name(unpriced: Graph) -> None:
    found = contents_of(unpriced, sizes_of(unpriced, 2, 5))
    (row,) = priced_ops(unpriced, load_system("dgx-h100"), found.sizes)
    assert (row.op, row.model, row.accuracy) == ("acme.twist", BYTES_ALONE, None)
    assert row.amount.num_bytes == 2 * (2 * 5 * 8 * 2)
    text = coverage_text(found, [row], "dgx-h100")
    assert "bytes alone: no rule, FLOPs unknown" in text
    assert "100.0% unpriced: acme.twist" in text


def test_a_length_of_its_own_counts_as_long_as_the_others() -> None:
    build = GraphBuilder("prologue")
    build.source("frames", ("batch", "src"), dtype=DType.INT64)
    assert sizes_of(build.graph("encoder"), 2, 7) == {"batch": 2, "seq": 7, "src": 7}


def test_text_and_json_say_the_same(train: GraphContents) -> None:
    text, record = contents_text(train), json.loads(contents_json(train))
    assert record["schema"] == "slipstick/trace/1"
    assert record["num_parameters"] == train.num_parameters
    assert f"{record['num_parameters']:,}" in text
    assert "pricing" not in record
    assert {r["op"] for r in record["ops"]} == {row.op for row in train.ops}
    assert sum(r["runs"] * r["nodes"] for r in record["regions"]) == train.whole.calls


def test_pricing_is_in_the_json_where_it_was_asked_for(train: GraphContents) -> None:
    ops: tuple[PricedOp, ...] = priced_ops(train.graph, load_system("dgx-h100"), train.sizes)
    record = json.loads(contents_json(train, ops, "dgx-h100"))
    assert record["machine"] == "dgx-h100"
    (matmul,) = (r for r in record["pricing"] if r["op"] == "matmul")
    assert matmul["model"] == "gemm"
    assert matmul["measured_on_chip"] is True


def test_lines_fold_to_the_screen(train: GraphContents) -> None:
    ops = priced_ops(train.graph, load_system("dgx-h100"), train.sizes)
    narrow = coverage_text(train, ops, "dgx-h100", 80)
    assert max(len(line) for line in narrow.splitlines()[2:-2]) <= 80
