"""Tables of whole runs: what is answered, what is refused, and that published runs are near what they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from slipstick.cli import run
from slipstick.ir.errors import UsageError
from slipstick.validation.judge import judge_files
from slipstick.validation.kinds import JudgingSettings
from slipstick.validation.results.outcomes import Part
from slipstick.validation.rows.machine_room import MachineRoom
from slipstick.validation.rows.split import in_first_half

TABLES = Path(__file__).parent
HEAD = "id,dataset,metric,measured,arguments,fitted,note\n"


def table(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(HEAD + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


def answering(found: Mapping[str, float], asked: list[Sequence[str]]) -> JudgingSettings:
    def estimate(arguments: Sequence[str]) -> Mapping[str, float]:
        asked.append(arguments)
        if "unknown" in arguments:
            raise UsageError("no such model")
        return found

    return JudgingSettings(MachineRoom(), estimate=estimate)


def test_rows_are_judged_by_their_metric_and_the_same_arguments_answered_once(tmp_path: Path) -> None:
    (tmp_path / "cfg").mkdir()
    (tmp_path / "cfg" / "own.json").write_text("{}", encoding="utf-8")
    path = table(
        tmp_path,
        "a,one,step_time_s,4,llama --system dgx-h100 --tp 2,,seq assumed",
        "b,one,tokens_per_s,50,llama --system dgx-h100 --tp 2,,",
        "c,two,step_time_s,1,cfg/own.json --engine vllm,,",
        "d,two,ttft_s,1,llama,,",
        "e,two,step_time_s,1,unknown,,",
    )
    asked: list[Sequence[str]] = []
    found = {o.row.id: o for o in judge_files([path], (), answering({"step_time_s": 5.0, "tokens_per_s": 40.0}, asked))}
    assert asked == [
        ("llama", "--system", "dgx-h100", "--tp", "2", "--stack", "none"),
        (str(tmp_path / "cfg" / "own.json"), "--engine", "vllm"),
        ("llama", "--stack", "none"),
        ("unknown", "--stack", "none"),
    ]
    assert {name: o.error for name, o in found.items() if o.has_error} == pytest.approx(
        {"a": 0.25, "b": -0.2, "c": 4.0}
    )
    assert (found["a"].unit, found["a"].system, found["a"].reason) == ("s", "dgx-h100", "seq assumed")
    assert (found["b"].unit, found["c"].engine) == ("/s", "vllm")
    assert {name: o.reason for name, o in found.items() if o.part is Part.SKIPPED} == {
        "d": "the answer has no metric 'ttft_s'",
        "e": "no such model",
    }


def test_only_the_half_that_a_fit_may_see_counts_as_fitted(tmp_path: Path) -> None:
    names = [f"row{k}" for k in range(20)]
    path = table(tmp_path, *(f"{name},one,step_time_s,1,llama,clocks," for name in names))
    found = judge_files([path], (), answering({"step_time_s": 1.0}, []))
    assert {o.row.id for o in found if o.part is Part.FIT} == {name for name in names if in_first_half("runs", name)}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,one,step_time,4,llama,,", "unknown metric 'step_time'; did you mean 'step_time_s'?"),
        ("a,one,mfu,0.4,llama,,", "'mfu' is in none of s, B, W, USD and no rate"),
        ("a,one,step_time_s,0,llama,,", "'0' must be a number above zero"),
        ("a,one,step_time_s,,llama,,", "'' must be a number above zero"),
        ("a,one,step_time_s,1,llama 'x,,", "No closing quotation"),
    ],
)
def test_what_cannot_be_judged_is_refused_with_its_line(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(UsageError, match="line 2") as caught:
        judge_files([table(tmp_path, row)], (), answering({}, []))
    assert message in str(caught.value)


def test_without_an_estimator_tables_of_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="slipstick validate"):
        judge_files([table(tmp_path, "a,one,step_time_s,1,llama,,")], (), JudgingSettings(MachineRoom()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "percent"),
    [
        ("train TPU v6e MaxText bf16", 15),
        ("train Gaudi2", 15),
        ("train torchtitan A100 FSDP2", 8),
        ("train NeMo long-seq H100 fp8", 12),
        ("infer 405B fp8 vLLM 0.6.3 MI300X", 15),
        ("infer DeepSeek-R1 H200 (early 2025)", 20),
        ("infer DeepSeek-R1 MI300X (early 2025)", 20),
        ("infer MI300X vLLM latency fp8", 15),
        ("infer MI300X vLLM throughput fp8", 15),
        ("infer MLPerf offline AMD", 15),
    ],
)
def test_published_runs_that_fitted_nothing_are_near(dataset: str, percent: int) -> None:
    """Median error of rows that fitted nothing; sources stand in the table."""
    arguments = ["validate", str(TABLES / "runs.csv"), "-q", "--part", "judged", "--where", f"dataset={dataset}"]
    assert run([*arguments, "--max-error", str(percent)]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "dataset", "percent"),
    [
        ("power", "serve on H100 (GPUs alone)", 10),
        ("power", "serve on B200 (GPUs alone)", 20),
        ("bills", "H100 clusters, public spreadsheet, prices h100-cluster-2024", 10),
    ],
)
def test_published_powers_and_bills_are_near(table: str, dataset: str, percent: int) -> None:
    """Median error; nothing was fitted to them, and sources stand in the tables."""
    arguments = ["validate", str(TABLES / f"{table}.csv"), "-q", "--where", f"dataset={dataset}"]
    assert run([*arguments, "--max-error", str(percent)]) == 0
