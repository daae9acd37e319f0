"""Saved answers become one page or one table, with the numbers that they were saved with."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., CompletedProcess[str]]


@pytest.fixture
def saved(cli: Cli, data: Path, tmp_path: Path) -> list[str]:
    """Two estimates and a cost, as files."""
    model = str(data / "configs" / "tiny-llama.json")
    names = [str(tmp_path / name) for name in ("one.json", "two.json", "cost.json")]
    for tp, name in zip("12", names, strict=False):
        words = ["--system", "dgx-h100", "--gpus", "2", "--tp", tp, "--seq", "128", "-q"]
        assert cli("estimate", model, *words, "-o", name).returncode == 0
    assert cli("cost", "dgx-h100", "-o", names[2]).returncode == 0
    return names


def test_a_table_has_a_row_for_each_answer(cli: Cli, saved: list[str], tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    assert cli("report", *saved, "-o", str(path)).returncode == 0
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    steps = [json.loads(Path(name).read_text(encoding="utf-8"))["metrics"]["step_time_s"] for name in saved[:2]]
    assert [row["file"] for row in rows] == saved
    assert [row["plan.tp"] for row in rows] == ["1", "2", ""]
    assert [float(row["step_time_s"]) for row in rows[:2]] == steps


def test_the_page_of_a_saved_answer_has_the_tables_of_the_answer(cli: Cli, saved: list[str]) -> None:
    page = cli("report", saved[0]).stdout
    assert page.startswith("<!doctype html>")
    for title in ("Result", "Where the time of a step goes", "Memory of a GPU", "What the cost rests on", "Inputs"):
        assert f"<h2>{title}" in page
    whole = cli("report", *saved).stdout
    assert all(f"<h2>{name}: " in whole for name in ("one", "two", "cost"))


def test_a_picture_is_the_first_chart_of_one_answer(cli: Cli, saved: list[str], tmp_path: Path) -> None:
    picture = tmp_path / "one.svg"
    assert cli("report", saved[0], "-o", str(picture)).returncode == 0
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    assert "a picture is of one result" in cli("report", *saved, "-o", str(picture)).stderr


def test_the_shares_of_a_page_add_up(cli: Cli, saved: list[str]) -> None:
    page = cli("report", saved[0]).stdout.rpartition("<h2>Where the time of a step goes")[2].partition("</section>")[0]
    widths = [float(part.partition("%")[0]) for part in page.split("width:")[1:]]
    # Each is rounded to a tenth of a percent.
    assert sum(widths) == pytest.approx(100.0, abs=0.05 * len(widths))


@pytest.mark.parametrize(
    ("text", "told", "code"),
    [
        ("[1]", "is not a report: it holds a list", 4),
        ("{}", "is no answer: write one with", 4),
        ("x", "is not JSON", 4),
        ('{"schema": "slipstick/report/1", "metrics": {"mfu": 1}, "memory": 2}', "memory is a int, not an object", 4),
        ('{"schema": "slipstick/report/1", "metrics": {"mfu": 1}, "breakdown": {"a": null}}', "breakdown.a is null", 4),
    ],
)
def test_what_is_no_answer_is_refused(text: str, told: str, code: int, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    done = cli("report", str(path))
    assert done.returncode == code
    assert told in done.stderr
