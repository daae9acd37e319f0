"""Settings that were left open: which an answer hangs on, and by how much; what was said is left alone."""

import pytest

from slipstick.app.open_settings import MOST, changes, changes_text
from slipstick.cli import run
from slipstick.ir.errors import PlanError

WORDS = ["estimate", "llama-3.1-8b", "--system", "dgx-h100", "--gpus", "8", "--tp", "8", "--seq", "4096", "--gbs", "8"]


def test_changes_are_sorted_and_those_that_are_refused_or_small_are_left_out() -> None:
    values = {("a", 1): 1.1, ("a", 2): 0.7, ("b", 1): 1.001, ("c", 1): 1.2}

    def again(name: str, value: object) -> float:
        if name == "d":
            raise PlanError("not legal")
        return values[name, int(str(value))]

    found = changes(1.0, {"a": (1, 2), "b": (1,), "c": (1,), "d": (1,)}, again)
    assert [[(one.name, one.value) for one in of] for of in found] == [[("a", 2), ("a", 1)], [("c", 1)]]
    assert found[0][0].share == pytest.approx(-0.3)
    assert "none changes it" in changes_text("step_time_s", 1.0, [])


def test_no_more_settings_than_are_read() -> None:
    many = {str(k): (k,) for k in range(1, 9)}
    found = changes(1.0, many, lambda _, value: 1.0 + int(str(value)) / 10)
    assert [of[0].name for of in found] == ["8", "7", "6", "5"][:MOST]


def test_a_setting_is_what_the_estimate_with_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*WORDS, "--explain", "settings", "--quiet"]) == 0
    text = capsys.readouterr().out
    row = next(line for line in text.splitlines() if line.startswith("--recompute") and " full " in line)
    assert run([*WORDS, "--recompute", "full", "--quiet", "--no-sensitivity"]) == 0
    time = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("step time"))
    assert " ".join(row.split()[2:4]) == " ".join(time.split()[2:4])


def test_what_was_said_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*WORDS, "--stack", "megatron-core", "--explain", "settings", "--quiet"]) == 0
    assert "--stack" not in capsys.readouterr().out
