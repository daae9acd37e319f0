"""Results of the sweep over model types: what agrees, what a row says, and processes that do not come back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slipstick.benchmarks.coverage.case import failed, measure
from slipstick.benchmarks.coverage.compared import Compared, cells
from slipstick.benchmarks.coverage.page import page, row_of, summary
from slipstick.benchmarks.coverage.plans import Planned
from slipstick.benchmarks.coverage.result import Result, from_json
from slipstick.benchmarks.sweep import Sweep
from slipstick.benchmarks.workers import measure_all

GOOD = Result(
    "some", "SomeForCausalLM", "2 attention", 1000, 0, True,
    ratios={"forward": 1.0, "step": 1.004, "prefill": 0.999, "decode": 1.0}, plans=Planned({}, 1.0),
)  # fmt: skip
FAILED = Result(
    "other", "OtherForCausalLM", why_not={"train": "no rule", "prefill": "no rule", "decode": "a|b"}, oracle="no count"
)


def test_a_result_agrees_when_everything_counted_is_within_a_hundredth() -> None:
    assert GOOD.agrees
    assert not Result("x", parameters_agree=True, ratios={"forward": 1.0, "step": 1.02}).agrees
    assert not Result("x", parameters_agree=False, ratios={"forward": 1.0, "step": 1.0}).agrees
    assert not Result("x", parameters_agree=None, ratios={"forward": 1.0, "step": 1.0}).agrees


def test_what_was_traced_and_not_counted_does_not_agree() -> None:
    assert not Result("x", parameters_agree=True, ratios={"forward": 1.0}).agrees
    assert not Result("x", parameters_agree=True).agrees
    assert not FAILED.agrees


def test_a_decode_step_that_differs_counts() -> None:
    assert not Result("x", parameters_agree=True, ratios={"forward": 1.0, "step": 1.0, "decode": 0.9}).agrees


def test_results_are_kept_as_lines() -> None:
    assert from_json(GOOD.to_json()) == GOOD
    assert "\n" not in FAILED.to_json()


def test_rows_say_ratios_and_reasons() -> None:
    assert row_of(GOOD) == (
        "| some | `SomeForCausalLM` | 2 attention | 1,000 | 1.0000 | 1.0040 | 0.9990 | 1.0000 | 5 |  |"
    )
    assert row_of(FAILED) == (
        "| other | `OtherForCausalLM` | - | - | - | - | - | - | - | "
        "train, prefill: no rule; decode: a\\|b; not counted: no count |"
    )


def test_rows_say_under_how_many_plans_there_is_an_estimate() -> None:
    found = replace(GOOD, plans=Planned({"tp 2": "9 heads", "pp 2": "9 heads"}, 1.2))
    said = "tp 2, pp 2: 9 heads; compute of a GPU grows 1.20-fold with 64 replicas"
    assert row_of(found).endswith(f"| 3 | {said} |")


def test_modules_of_all_kinds_are_kept_and_compared_alike() -> None:
    """FLOPs within 0.5 %, and all parameters or all that get a gradient."""
    ratios = {"forward": 1.0, "step": 1.004, "inference": 1.0}
    good = Compared("a/b", parameters=(9, 10, 9), ratios=ratios, notes=("n",), plans=Planned({}, 1.0))
    assert good.agrees
    assert Compared.from_json(good.to_json()) == good
    assert cells(good) == ("-", "10", "1.0000", "1.0040", "1.0000", "5", "n")
    assert not replace(good, parameters=(8, 10, 9)).agrees
    assert not replace(good, ratios={**ratios, "step": 1.006}).agrees
    assert not replace(good, why_not={"prefill": "no rule"}).agrees


def test_packages_that_are_not_installed_are_named(tmp_path: Path) -> None:
    written = tmp_path / "page.md"
    kept = tmp_path / "results.jsonl"
    kept.write_text(f"{GOOD.to_json()}\n", encoding="utf-8")
    Sweep(
        "some", "", "", 1.0, measure, failed, from_json, page, str, names=lambda: ["some"], missing=lambda: ["a", "b"]
    ).main(["--resume", "--results", str(kept), "--page", str(written)])
    assert written.read_text(encoding="utf-8").endswith("\nNot installed, and so not measured: a, b.\n")


def test_the_summary_counts_rows() -> None:
    told = summary([GOOD, FAILED])
    assert "1 (50.0%) are traced for train" in told
    assert "1 agree with PyTorch" in told
    assert page([GOOD, FAILED]).endswith(f"{row_of(GOOD)}\n{row_of(FAILED)}\n")


def test_folders_of_a_machine_are_left_out() -> None:
    path = Path("somewhere") / "site-packages" / "transformers" / "models" / "x.py"
    failed = Result("x", why_not={"train": f"module 'a' ({path}:7) fails"})
    assert "train: module 'a' transformers/models/x.py:7) fails" in row_of(failed).replace(
        "(transformers", "transformers"
    )
    assert "somewhere" not in row_of(failed)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_type_that_takes_too_long_is_given_up() -> None:
    ((result,),) = measure_all(["llama"], 1, measure, failed, 0.01)
    assert result.why_not["train"] == "took more than 0 s"
