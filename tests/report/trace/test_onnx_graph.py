"""A compiled graph as ONNX: the checker takes it, every node once with its costs, edges and sizes of the plan."""

from pathlib import Path

import onnx
import pytest

from slipstick import Family, GraphCache, load, load_system, make_plan
from slipstick.driver.estimate import Estimate, estimate
from slipstick.ir.types import DType
from slipstick.report.trace.costed import costed_rows
from slipstick.report.trace.onnx_graph import ELEMENTS, onnx_graph, write_onnx


@pytest.fixture(scope="module")
def answer() -> Estimate:
    plan = make_plan(num_gpus=4, tp=2, seq_len=512, global_batch=4, family=Family(sp=True))
    return estimate(load("gpt2", cache=GraphCache.default()), load_system("dgx-h100"), plan)


def test_every_node_is_there_once_with_what_it_costs(answer: Estimate) -> None:
    graph = onnx_graph(answer).graph
    regions = answer.table.lowered.graph.regions
    assert [node.name for node in graph.node] == [f"{r.name}/%{n.key}" for r in regions for n in r.nodes]
    said = {node.name: {entry.key: entry.value for entry in node.metadata_props} for node in graph.node}
    rows = list(costed_rows(answer))
    whole = sum(float(said[row.node]["time_us"]) * row.count for row in rows)
    assert whole == pytest.approx(sum(row.time_s * row.count for row in rows) * 1e6, rel=1e-4)
    assert {said[row.node]["runs"] for row in rows} == {str(row.count) for row in rows}
    assert said[next(row.node for row in rows if row.op == "matmul")].keys() >= {"namespace", "bound", "flops", "bytes"}


def test_values_have_the_sizes_of_the_plan_and_every_input_is_made_or_given(answer: Estimate) -> None:
    graph = onnx_graph(answer).graph
    given = {info.name for info in graph.input}
    made = {name for node in graph.node for name in node.output}
    assert not given & made
    assert {name for node in graph.node for name in node.input} <= given | made
    tokens = next(info for info in graph.input if info.doc_string == "tokens" or info.type.tensor_type.elem_type == 7)
    assert [dim.dim_value for dim in tokens.type.tensor_type.shape.dim] == [1, 512]


def test_the_checker_of_onnx_takes_the_file(answer: Estimate, tmp_path: Path) -> None:
    write_onnx(answer, tmp_path / "costed.onnx")
    model = onnx.load(tmp_path / "costed.onnx")
    onnx.checker.check_model(model)
    (step,) = model.metadata_props
    assert float(step.value) == pytest.approx(answer.metrics["step_time_s"] * 1e6)


def test_every_element_type_has_one_of_onnx() -> None:
    assert set(ELEMENTS) == set(DType)
