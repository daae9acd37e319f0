"""Every verb that answers writes its answer in the form that a suffix says, and numbers are the same in all forms."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., CompletedProcess[str]]

VERBS = {
    "estimate": "estimate {model} --system dgx-h100 --gpus 2 --tp 2 --seq 128 -q",
    "serve": "estimate {model} --phase serve --system dgx-h100 --isl 64 --osl 16 -q",
    "size": "size {model} --system dgx-h100 --target-rps 10 --isl 64 --osl 16 --tp 1 --pp 1 -q",
    "cost": "cost dgx-h100 --gpus 16",
    "trace": "trace {model} -q",
    "search": "search {model} --system dgx-h100 --gpus 2 --seq 128 --gbs 4 --tp 2 --fix recompute=none -q --no-ledger",
    "area": "design area",
    "study": "design study --area 826mm2 --power 400W --unit a100 --memory hbm2e",
    "list": "list systems",
    "show": "show system dgx-h100",
    "sweep": "sweep none --die-area 400,800mm2 --power 500W -q",
}
TEXTS = {".json": "", ".csv": "", ".md": "# ", ".html": "<!doctype html>", ".txt": ""}


@pytest.fixture
def words(data: Path) -> Callable[[str], list[str]]:
    model = str(data / "configs" / "tiny-llama.json")
    return lambda verb: VERBS[verb].format(model=model).split()


@pytest.mark.parametrize("verb", VERBS)
def test_a_suffix_says_the_form(verb: str, words: Callable[[str], list[str]], cli: Cli, tmp_path: Path) -> None:
    for suffix, start in TEXTS.items():
        path = tmp_path / f"answer{suffix}"
        done = cli(*words(verb), "-o", str(path))
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert path.read_text(encoding="utf-8").startswith(start)
    json.loads((tmp_path / "answer.json").read_text(encoding="utf-8"))
    head, *rows = csv.reader((tmp_path / "answer.csv").read_text(encoding="utf-8").splitlines())
    assert rows
    assert {len(row) for row in rows} == {len(head)}


@pytest.mark.parametrize("verb", VERBS)
def test_a_page_asks_no_other_host_and_runs_its_own_scripts_alone(
    verb: str, words: Callable[[str], list[str]], cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "answer.html"
    assert cli(*words(verb), "-o", str(path)).returncode == 0
    page = path.read_text(encoding="utf-8")
    # Scripts are named by their hashes: nothing else in a page can run, and nothing is fetched.
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    policy = unescape(policy)
    assert policy.startswith("default-src 'none';")
    assert not re.findall(r"(?:script|connect)-src[^;]*(?:unsafe|http|\*)", policy)
    assert all(f'{link}="http' not in page for link in ("src", "href"))
    assert len(page) < 2_500_000


def test_what_a_user_names_is_text_on_a_page(cli: Cli, data: Path, tmp_path: Path) -> None:
    model = tmp_path / "<img src=x>&.json"
    model.write_bytes((data / "configs" / "tiny-llama.json").read_bytes())
    done = cli("estimate", str(model), "--system", "dgx-h100", "--seq", "128", "-q", "--format", "html")
    assert done.returncode == 0, done.stderr
    assert "<img src=x" not in done.stdout
    assert "&lt;img src=x&gt;&amp;" in done.stdout


def test_whole_numbers_are_whole_in_parquet(words: Callable[[str], list[str]], cli: Cli, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "answer.parquet"
    assert cli(*words("estimate"), "-o", str(path)).returncode == 0
    types = dict(duckdb.sql(f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM '{path}')").fetchall())
    names = ("plan.tp", "plan.gbs", "plan.sp", "plan.schedule", "step_time_s")
    assert [types[name] for name in names] == ["BIGINT", "BIGINT", "BOOLEAN", "VARCHAR", "DOUBLE"]
    report = json.loads(cli(*words("estimate"), "--format", "json").stdout)
    row = duckdb.sql(f"SELECT \"plan.tp\", step_time_s, mfu FROM '{path}'").fetchall()
    assert row == [(2, report["metrics"]["step_time_s"], report["metrics"]["mfu"])]


def test_a_row_of_csv_has_the_digits_of_the_document(words: Callable[[str], list[str]], cli: Cli) -> None:
    report = json.loads(cli(*words("estimate"), "--format", "json").stdout)
    (row,) = csv.DictReader(cli(*words("estimate"), "--format", "csv").stdout.splitlines())
    assert {name: float(row[name]) for name in report["metrics"]} == report["metrics"]
    assert sum(float(v) for name, v in row.items() if name.startswith("breakdown_s.")) == pytest.approx(
        report["metrics"]["step_time_s"], rel=1e-12
    )


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["-o", "a.xlsx"], "cannot write '.xlsx'; formats of this result: .json, .csv, .parquet, .md, .html"),
        (["-o", "a.pdf", "--phase", "serve"], "cannot write '.pdf'"),
        (["-o", "a.csv", "--format", "json"], "--format json and -o a.csv say two things, and the suffix is of csv"),
        (["-o", "a.parquet.gz"], "formats of this result"),
        (["--format", "parquet"], "--format parquet is no text: name a file"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_work(flags: list[str], told: str, cli: Cli) -> None:
    done = cli("estimate", "gpt2", "--system", "no-such-system", *flags)
    assert done.returncode == 2
    assert told in done.stderr


def test_a_file_of_any_name_takes_the_form_that_is_said(
    words: Callable[[str], list[str]], cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "answer.v2"
    assert cli(*words("cost"), "--format", "json", "-o", str(path)).returncode == 0
    json.loads(path.read_text(encoding="utf-8"))


def test_the_front_of_a_search_is_a_picture(words: Callable[[str], list[str]], cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "front.svg"
    assert cli(*words("search"), "-o", str(path)).returncode == 0
    assert path.read_text(encoding="utf-8").startswith("<svg")
