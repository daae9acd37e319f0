"""Rows of served requests as cases: form, model, types, degrees and settings, one of each data set by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slipstick.backends.machine.software.engine_file import load_engine
from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family
from slipstick.ir.types import DType
from slipstick.validation.inference.cases import ServedCase, served_case
from slipstick.validation.inference.forms import CaseQuantity, RequestForm
from slipstick.validation.inference.outcomes import read_cases
from slipstick.validation.inference.replicas import Replica, replica_of
from slipstick.validation.rows.rows import NotJudged, Row
from slipstick.validation.rows.tables import RowFault, Table, read_table
from slipstick.validation.rows.words import engine_of, system_of

HERE = Path(__file__).parents[1]
Case = Callable[[str], ServedCase]
Find = Callable[..., ServedCase]


@pytest.fixture(scope="module")
def table() -> Table:
    return read_table(HERE / "inference_latency.csv", [])


@pytest.fixture(scope="module")
def find(table: Table) -> Find:
    def first(**cells: str) -> ServedCase:
        rows = (row for row in table.rows if all(row.text(name) == value for name, value in cells.items()))
        return served_case(next(rows))

    return first


def quantities(case: ServedCase) -> dict[str, float]:
    return {one.quantity.value: one.value for one in case.measured}


def test_every_row_is_a_case_or_says_why_not(table: Table) -> None:
    faults: list[RowFault] = []
    cases, skipped = read_cases(table, faults)
    assert faults == []
    assert len(cases) + len(skipped) == len(table.rows) == 1181
    assert all(skipped.values())
    # Llama 4 has no config; GB200 under 'agg' and the two production rows have no layout.
    assert len(skipped) < 50


def test_what_every_row_names_is_known(table: Table) -> None:
    for row in table.rows:
        system_of(row)
        if engine_of(row):
            load_engine(engine_of(row))
    assert {row.text("engine") for row in table.rows if not engine_of(row)} == {"DeepSeek production", "RTP-LLM"}


def test_a_static_batch_is_told_by_its_throughput_and_its_time_per_token_follows(find: Find) -> None:
    case = find(id="lmdeploy_llama2-7b_b1_128_128")
    assert (case.form, case.engine, case.system, case.dense) == (RequestForm.STATIC, "lmdeploy", "dgx-a100-80gb", True)
    # 1252.32 ms for 128 tokens of which 22 ms are the first; the latency itself is derived from the throughput.
    assert quantities(case) == pytest.approx(
        {"ttft": 0.022, "tpot": (1.25232 - 0.022) / 127, "throughput": 102.21}, rel=1e-9
    )
    assert (case.numerics.dtype, case.numerics.precision, case.numerics.kv_dtype) == (DType.FP16, "none", "same")


def test_a_full_cache_is_excluded_by_its_own_remark(table: Table) -> None:
    cases, _ = read_cases(table, [])
    lmdeploy = [case for case in cases.values() if case.row.dataset == "lmdeploy_static_a100"]
    assert sum(bool(case.excluded) for case in lmdeploy) == 8
    assert all("KV cache overflow" in case.row.text("note") for case in lmdeploy if case.excluded)


def test_first_tokens_and_whole_requests(find: Find) -> None:
    first, whole = find(dataset="trtllm_first_token_latency"), find(dataset="nvidia_llama2_200_200")
    assert (first.form, set(quantities(first))) == (RequestForm.FIRST_TOKEN, {"ttft"})
    assert (whole.form, set(quantities(whole))) == (RequestForm.STATIC, {"e2el"})
    assert whole.in_no_fit


def test_lengths_of_a_drawn_load_are_nine_tenths_of_those_printed(find: Find) -> None:
    drawn = find(dataset="aiconfigurator_silicon_agg", engine="vllm 0.18.0", input_tokens="8192", tp="4")
    # --random-range-ratio 0.8: uniform from 0.8 to 1 of 8192 and 1024.
    assert (drawn.lengths.prompt, drawn.lengths.output) == (round(0.9 * 8192), round(0.9 * 1024))
    fixed = find(dataset="aiconfigurator_silicon_agg", engine="trtllm 1.0.0rc3", input_tokens="1024")
    assert fixed.lengths.prompt == 1024
    assert any("length_share 0.9" in said for said in drawn.assumed)
    assert not any("length_share" in said for said in fixed.assumed)


@pytest.mark.parametrize(
    ("cells", "precision", "kv"),
    [
        ({"engine": "vllm 0.18.0"}, "mxfp4", "same"),
        ({"engine": "sglang 0.5.9", "accelerator": "H200-SXM-141GB"}, "fp8-block", "same"),
        ({"engine": "sglang 0.5.9", "accelerator": "B200-SXM", "precision": "fp4"}, "nvfp4", "fp8"),
        ({"engine": "NIM 1.8.0"}, "fp8", "fp8"),
        ({"engine": "trtllm nan", "model": "meta-llama/Llama-3.1-70B", "precision": "fp4"}, "nvfp4", "fp8"),
        ({"engine": "TensorRT-LLM v0.17", "precision": "fp16"}, "none", "same"),
    ],
)
def test_words_of_precision_are_recipes(find: Find, cells: dict[str, str], precision: str, kv: str) -> None:
    numerics = find(**cells).numerics
    assert (numerics.precision, numerics.kv_dtype) == (precision, kv)


def test_a_word_that_is_no_recipe_is_refused(find: Find) -> None:
    row = find(engine="NIM 1.8.0").row
    with pytest.raises(NotJudged, match="which recipe of low precision 'int3' is"):
        served_case(row.having({"precision": "int3"}))


def row(**cells: int) -> Row:
    return Row({name: str(value) for name, value in cells.items()})


def test_ranks_of_attention_are_those_of_experts() -> None:
    assert replica_of(row(tp=8, moe_tp=8, ep=1)).replica == Replica(8)
    assert replica_of(row(tp=4, moe_tp=1, ep=4)).replica == Replica(4, 4)
    assert replica_of(row(tp=1, moe_tp=1, ep=8, attention_dp=8)).replica == Replica(1, 8, 8)
    # tp x attention_dp = moe_tp x ep tells what is not given: two groups whose experts are cut over both.
    cut = replica_of(row(tp=2, moe_tp=4, ep=1)).replica
    assert cut == Replica(2, 1, 2, cut=True)
    assert cut.text == "tp2 dp2 etp4"


def test_degrees_become_a_plan() -> None:
    family = Family(workload=Workload.DECODE)
    apart = Replica(1, 8, 8)
    plan = apart.plan(apart.family(family, "dgx-h100"), 100)
    assert (plan.tp, plan.dp, plan.ep, plan.num_gpus, plan.family.etp) == (1, 8, 8, 8, False)
    assert plan.family.exchange == "allgather"
    assert apart.family(family, "gb200-nvl72").exchange == "alltoall"
    cut = Replica(2, 1, 2, cut=True)
    assert cut.plan(cut.family(family), 100).etp == 4
    assert Replica(8).plan(family, 100).family == family
    with pytest.raises(PlanError, match="ep=4 is neither 1 nor tp x dp = 8"):
        Replica(8, 4).plan(family, 100)


def test_pools_have_all_devices_of_their_row(find: Find) -> None:
    case = find(dataset="aiconfigurator_silicon_disagg", n_gpus="48", decode_ep="32", batch_or_concurrency="2048")
    prefill, decode = case.layout.prefill, case.layout.decode
    assert prefill is not None
    assert decode is not None
    assert (prefill.workers, prefill.laid.replica) == (4, Replica(1, 4, 4))
    assert (decode.workers, decode.batch, decode.laid.replica) == (1, 64, Replica(1, 32, 32))
    assert 4 * 4 + 32 == 48


def test_prompt_workers_whose_degrees_are_not_given_have_what_is_left(find: Find) -> None:
    case = find(dataset="aiconfigurator_silicon_disagg", n_gpus="24", prefill_ep="1", decode_ep="8")
    assert case.layout.prefill is not None
    # (24 - 8) devices of two workers.
    assert case.layout.prefill.laid.replica == Replica(1, 8, 8)
    assert any("prefill of whole experts over 8 ranks" in said for said in case.assumed)


def test_settings_of_recipes_are_on_the_engine(find: Find) -> None:
    engine = load_engine("vllm", "h100-sxm-80gb")
    case = find(dataset="aiconfigurator_silicon_agg", engine="vllm 0.18.0", batch_or_concurrency="8")
    assert case.settings.on(engine).scheduler.max_num_seqs == 8
    most = find(dataset="trtllm_max_throughput_v017", input_tokens="128", output_tokens="4096")
    assert (most.form, most.settings.requests) == (RequestForm.SATURATED, 1500)
    assert most.settings.on(engine).scheduler.cache_utilization == 0.95
    assert set(quantities(most)) == {CaseQuantity.THROUGHPUT.value}


def test_what_was_measured_must_be_told(find: Find) -> None:
    given = find(engine="NIM 1.8.0").row
    with pytest.raises(NotJudged, match="is no measurement that is predicted"):
        served_case(given.having({"measurement": "production 24 h average"}))
    empty = {"ttft_ms": "", "tpot_ms": "", "total_latency_ms": "", "output_tokens_per_s_total": ""}
    with pytest.raises(NotJudged, match="neither latencies nor a throughput"):
        served_case(given.having(empty))
