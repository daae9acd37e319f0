"""An estimate as a screen, as JSON, as rows and as explanations."""

import csv
import io
import json
import re
from collections.abc import Callable

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import Estimate, estimate
from slipstick.driver.metrics import METRICS
from slipstick.ir.errors import UnknownNameError
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family, make_plan
from slipstick.report.explain.explain import explain_text
from slipstick.report.explain.sensitivity import sensitivity
from slipstick.report.json_report import report_json
from slipstick.report.tables import report_text
from slipstick.report.trace.costed import costed_rows, costed_text


@pytest.fixture(scope="module")
def answer(traced: Callable[[str], Graph]) -> Estimate:
    plan = make_plan(num_gpus=8, tp=2, seq_len=64, global_batch=32, family=Family(sp=True, recompute="full"))
    return estimate(traced("tiny-llama.train"), load_system("dgx-h100"), plan)


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_the_screen_is_never_left(answer: Estimate, columns: int) -> None:
    lines = report_text(answer, columns).splitlines()
    assert max(map(len, lines)) <= columns
    assert lines == [line.rstrip() for line in lines]


@pytest.mark.parametrize(("columns", "rows"), [(40, 5), (80, 4), (100, 2), (120, 2)])
def test_tables_stand_side_by_side_where_there_is_room(answer: Estimate, columns: int, rows: int) -> None:
    titles = ("Result", "Memory of a GPU", "What bounds it", "Where the time goes", "% of time for +1 % of")
    lines = report_text(answer, columns).splitlines()
    assert sum(any(t in line for t in titles) for line in lines) == rows


def test_the_screen_says_what_was_estimated(answer: Estimate) -> None:
    text = report_text(answer, 120)
    head = "tiny-llama  train  8 x H100-SXM5-80GB  no software  tp2+sp dp4  mbs 1  gbs 32  seq 64  bf16"
    assert text.startswith(head)
    assert "\x1b[" not in text


def test_every_metric_has_a_meaning(answer: Estimate) -> None:
    assert set(answer.metrics) <= set(METRICS)


def test_json_is_the_same_twice_and_adds_up(answer: Estimate) -> None:
    text = report_json(answer)
    assert text == report_json(answer)
    report = json.loads(text)
    assert sum(report["breakdown"].values()) == pytest.approx(report["metrics"]["step_time_s"], rel=1e-12)
    memory = {k: v for k, v in report["memory"].items() if k != "capacity"}
    assert sum(memory.values()) == pytest.approx(report["metrics"]["peak_mem_bytes"], rel=1e-12)
    assert sum(report["bounds"].values()) == pytest.approx(report["metrics"]["step_time_s"], rel=1e-9)


def test_json_has_what_the_screen_has(answer: Estimate) -> None:
    report = json.loads(report_json(answer, with_sensitivity=True))
    assert report["elasticities"] == dict(sensitivity(answer))
    assert "elasticities" not in json.loads(report_json(answer))
    assert report["inputs"]["flops_convention"] == "full"
    matmul = report["trust"]["breakdown"]["compute.matmul"]
    assert matmul["from"] == ["gemm bf16 pytorch H100-SXM5-80GB"]
    assert 0.0 < matmul["median_ape"] < matmul["p90_ape"]
    assert matmul["judged_share"] == pytest.approx(1.0)
    assert set(report["trust"]["breakdown"]) <= set(report["breakdown"])
    assert report["intervals"]["metrics"]["peak_mem_bytes"]["rows"] > 0


def test_rows_are_all_priced_nodes_and_add_up(answer: Estimate) -> None:
    rows = list(costed_rows(answer))
    assert sorted(r.node for r in rows) == sorted(e.name for e in answer.table.lowered.program.entries)
    micro = answer.plan.num_micro_batches
    spent = sum(r.time_s * r.count * (1 if r.phase in ("reduce", "optimizer") else micro) for r in rows)
    hidden = sum(answer.hidden_comm_s.values())
    lent = answer.breakdown_s.get("compute.lent_sms", 0.0)
    assert spent - hidden + lent == pytest.approx(answer.metrics["step_time_s"], rel=1e-12)
    terms = {name for p in answer.table.timing.priced if p.kernels is not None for name in p.kernels.terms}
    assert {r.bound for r in rows} <= {*terms, "network"}


def test_rows_are_written_by_suffix(answer: Estimate) -> None:
    rows = list(costed_rows(answer))
    as_json = json.loads(costed_text(answer, ".json"))
    as_csv = list(csv.DictReader(io.StringIO(costed_text(answer, ".csv"))))
    assert [float(r["time_s"]) for r in as_csv] == [r["time_s"] for r in as_json] == [r.time_s for r in rows]
    assert len(costed_text(answer, "").splitlines()) == len(rows) + 1


@pytest.mark.parametrize("name", ["step_time_s", "mfu", "peak_mem_bytes", "tokens_per_s"])
def test_a_metric_is_explained(answer: Estimate, name: str) -> None:
    text = explain_text(answer, name)
    assert text.startswith(f"{name} = {answer.metrics[name]:.6g}")
    assert METRICS[name].meaning in text


def test_a_kernel_is_explained_with_formula_inputs_and_sources(answer: Estimate) -> None:
    text = explain_text(answer, "attention")
    assert "overhead + (tensor + softmax + rows + waves) and memory" in text
    assert "989 TFLOP/s [datasheet] NVIDIA H100 data sheet" in text
    # 64 queries see half of 64 keys, and themselves: 65 of 128.
    assert "x 0.5078 (masked blocks are skipped)" in text
    assert "bound: overhead" in text


def test_a_collective_is_explained_with_its_algorithms(answer: Estimate) -> None:
    text = explain_text(answer, "reduce_scatter")
    assert "over tp=2" in text
    assert "(chosen)" in text
    assert "bandwidth: 450 GB/s [datasheet]" in text
    assert "infiniband: latency 0" not in text


def test_every_message_says_which_two_placements_it_lies_between(traced: Callable[[str], Graph]) -> None:
    # Four tp ranks for two key-value heads; states in shards over half of the replicas.
    family = Family(sp=True, zero=2, hsdp=True)
    plan = make_plan(num_gpus=16, tp=4, dp_shard=2, seq_len=64, family=family)
    answered = estimate(traced("tiny-llama.train"), load_system("dgx-h100"), plan)
    for entry in answered.table.lowered.program.entries:
        if entry.message is not None:
            text = explain_text(answered, entry.name)
            assert re.search(r"\b(P|S\(\d\)) to (R|S\(\d\))|ranks with a copy of the same heads", text), text
    assert "each P to S(0) over fsdp" in explain_text(answered, "reduce_scatter")
    assert "each P to R over dp" in explain_text(answered, "all_reduce")


def test_nodes_are_found_by_name_module_op_and_wildcard(answer: Estimate) -> None:
    name = next(r.node for r in costed_rows(answer) if r.op == "attention")
    assert explain_text(answer, name).startswith(name)
    for wanted in ("attention", "model.layers.*.self_attn", "self_attn", "*self_attn*"):
        assert name in explain_text(answer, wanted)


def test_what_is_not_there_is_answered_with_the_nearest(answer: Estimate) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'attention'"):
        explain_text(answer, "atention")


def test_many_nodes_are_cut_short(answer: Estimate) -> None:
    assert "more; name one" in explain_text(answer, "*")
