"""Results of the sweep over model types: what agrees, what a row says, and processes that do not come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstick.benchmarks.coverage.case import failed, measure
from slipstick.benchmarks.coverage.page import page, row_of, summary
from slipstick.benchmarks.coverage.result import Result, from_json
from slipstick.benchmarks.workers import measure_all

GOOD = Result(
    "some", "SomeForCausalLM", "2 attention", 1000, 0, True,
    ratios={"forward": 1.0, "step": 1.004, "prefill": 0.999, "decode": 1.0},
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
