"""LSTM, GRU and RNN: shapes of all results, FLOPs of the products, and sequences along their own dim."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import onnx
import pytest

from slipstick import Family, load_system, make_plan
from slipstick.driver.estimate import estimate
from slipstick.frontend.onnx import load_onnx
from slipstick.frontend.onnx.loading import value_types
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.ops import OpCall, op_def
from slipstick.ir.sizes.expr import total

from .conftest import Writer

Save = Callable[[onnx.ModelProto], Path]
WIDTH, HIDDEN = 24, 16
GATES: Mapping[str, int] = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(w: Writer, op: str, directions: int, layout: int = 0) -> onnx.ModelProto:
    """One layer over [seq, batch, width], or with another layout [batch, seq, width]."""
    wide = GATES[op] * HIDDEN
    weights = [w.weight("w", (directions, wide, WIDTH)), w.weight("r", (directions, wide, HIDDEN))]
    bias = w.weight("b", (directions, 2 * wide))
    x = w.input("x", ("batch", "seq", WIDTH) if layout else ("seq", "batch", WIDTH))
    word = "bidirectional" if directions == 2 else "forward"
    results = ["y", "h", "c"] if op == "LSTM" else ["y", "h"]
    w.node(op, [x, *weights, bias], results, hidden_size=HIDDEN, direction=word, layout=layout)
    return w.model(*results)


def product_flops(graph: Graph, sizes: Mapping[str, float]) -> float:
    """FLOPs of all products of matrices."""
    work = []
    for region in graph.regions:
        for n in region.nodes:
            given, made = (tuple(region.types(ids)) for ids in (n.inputs, n.outputs))
            work.append(op_def(n.op).work(OpCall(n.op, n.attrs, given, made)).tensor_flops)
    return float(total(work).evaluate(dict(sizes)))


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("op", list(GATES))
def test_products_are_those_of_all_steps(op: str, directions: int, writer: Writer, saved: Save) -> None:
    graph = load_onnx(saved(recurrent(writer, op, directions)))
    batch, steps = 3, 10
    # A step multiplies what comes in and the state before with all gates.
    wanted = 2 * batch * steps * GATES[op] * HIDDEN * (WIDTH + HIDDEN) * directions
    assert product_flops(graph, {"batch": batch, "seq": steps}) == wanted
    assert graph.num_parameters == directions * GATES[op] * HIDDEN * (WIDTH + HIDDEN + 2)


@pytest.mark.parametrize("op", list(GATES))
def test_results_have_the_dims_of_the_standard(op: str, writer: Writer) -> None:
    types = value_types(recurrent(writer, op, 2), Workload.PREFILL, {})
    assert str(types["y"]) == f"fp32[seq, 2, batch, {HIDDEN}]"
    assert {str(types[name]) for name in ("h", "c") if name in types} == {f"fp32[2, batch, {HIDDEN}]"}


def test_samples_may_come_first(writer: Writer) -> None:
    types = value_types(recurrent(writer, "LSTM", 1, layout=1), Workload.PREFILL, {})
    assert str(types["y"]) == f"fp32[batch, seq, 1, {HIDDEN}]"
    assert str(types["h"]) == str(types["c"]) == f"fp32[batch, 1, {HIDDEN}]"


def test_a_replica_has_its_samples_wherever_their_dim_is(writer: Writer, saved: Save) -> None:
    """[seq, batch, ..] and a state [1, batch, ..]: with as many more samples as replicas, a replica works the same."""
    graph = load_onnx(saved(recurrent(writer, "LSTM", 1)))
    system = load_system("dgx-h100")
    found = [
        estimate(graph, system, make_plan(num_gpus=n, seq_len=64, global_batch=4 * n, micro_batch=4, family=Family()))
        for n in (1, 8)
    ]
    assert found[1].metrics["step_time_s"] == pytest.approx(found[0].metrics["step_time_s"], rel=1e-9)
