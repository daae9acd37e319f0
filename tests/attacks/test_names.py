"""Names that steer a terminal, are a formula of a spreadsheet or a script of a page are text wherever they stand."""

from __future__ import annotations

import csv
import io
import json
import re
from html import unescape
from pathlib import Path

import pytest
import yaml

from slipstick.cli import run

ROOT = Path(__file__).resolve().parents[2]
GRAPH = (ROOT / "tests" / "golden" / "tiny-llama.train.graph").read_text(encoding="utf-8")
ON = ("--system", "dgx-h100", "--gpus", "8", "--seq", "256", "--gbs", "16")
FORMULAS = ("=cmd()|1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3+cmd|' /C calc'!A0")
SCRIPTS = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "javascript:alert(1)")
CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
STEERING = ("\x1b[31mred", "\x1b]0;title\x07", "\x1b]52;c;ZXZpbA==\x07", "\x9b2J", "a\x08b")


def named(folder: Path, name: str) -> str:
    """A graph that says it has this name."""
    path = folder / "x.graph"
    path.write_text(GRAPH.replace('"tiny-llama"', json.dumps(name), 1), encoding="utf-8")
    return str(path)


def printed(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    """What a command says, all of it."""
    capsys.readouterr()
    assert run(words) == code
    told = capsys.readouterr()
    return told.out + told.err


@pytest.mark.parametrize("name", FORMULAS)
def test_no_cell_of_a_csv_is_a_formula(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(["estimate", named(tmp_path, name), *ON, "--format", "csv", "-q"], capsys)
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["model.name"] == f"'{name}"
    assert not [cell for cell in row.values() if re.match(r"[=@+-]", cell) and not re.fullmatch(r"-?[\w.]+", cell)]


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_name_is_a_tag_of_a_page(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = printed(["estimate", named(tmp_path, name), *ON, "--format", "html", "-q"], capsys)
    assert name not in page or "<" not in name
    assert page.count("<script") == page.count("</script")
    assert "onerror=alert(1)>" not in page
    assert "default-src 'none'" in unescape(page)
    notes = printed(["estimate", named(tmp_path, name), *ON, "--format", "md", "-q"], capsys)
    assert not re.search(r"(?<!\\)<(script|img)", notes)


@pytest.mark.parametrize("name", STEERING)
def test_no_file_steers_a_terminal(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    system = yaml.safe_load((ROOT / "backends" / "systems" / "dgx-h100.yaml").read_text(encoding="utf-8"))
    (tmp_path / "x.yaml").write_text(yaml.safe_dump({**system, "name": name}), encoding="utf-8")
    (tmp_path / "p.json").write_text(json.dumps({"schema": "slipstick/plan/1", "model": name}), encoding="utf-8")
    (tmp_path / "r.json").write_text(json.dumps({"schema": name}), encoding="utf-8")
    for words in (
        ["cost", str(tmp_path / "x.yaml")],
        ["estimate", "--plan", str(tmp_path / "p.json")],
        ["compare", str(tmp_path / "r.json"), str(tmp_path / "r.json")],
    ):
        told = printed(words, capsys, code=4)
        assert told.startswith("error: ")
        assert not re.search(CONTROL, told)


@pytest.mark.parametrize("name", STEERING)
@pytest.mark.parametrize("form", ["table", "md", "csv"])
def test_no_name_of_a_graph_does(name: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = printed(["estimate", named(tmp_path, name), *ON, "-q", "--format", form], capsys)
    assert not re.search(CONTROL, told)


@pytest.mark.parametrize("name", STEERING)
def test_what_is_typed_is_told_without_steering(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = printed(["cost", name], capsys, code=2)
    assert "unknown system" in told
    assert not re.search(CONTROL, told)


def test_a_name_that_is_a_sentence_for_a_shell_is_quoted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "a; touch evil $(id)"
    folder.mkdir()
    path = named(folder, "tiny")
    assert f"slipstick estimate '{path}' " in unescape(
        printed(["estimate", path, *ON, "--format", "html", "-q"], capsys)
    )
