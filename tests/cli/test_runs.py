"""`slipstick runs`, on ledgers that are written here block by block."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pytest

from slipstick.explore.block import Found
from slipstick.explore.runs.ledger import Ledger
from slipstick.explore.runs.run import SearchRun
from slipstick.explore.runs.runs import LedgerFolder

from .conftest import Cli

RUN = SearchRun(
    "1.0+abc", "d" * 64, "model: toy\ngpus: 8\n", ("tp", "schedule", "step_time_s"), 2, "org/toy",
    "slipstick search toy --gpus 8", ("step_time_s",), {"schedule": ("1f1b", "gpipe")},
)  # fmt: skip
BLOCKS = (
    Found(0, {"tp does not divide heads": 3, "too little memory": 1}, 3,
          {"tp": np.array([1.0, 2.0]), "schedule": np.array([0.0, 1.0]), "step_time_s": np.array([4.0, 3.0])}),
    Found(1, {"too little memory": 2}, 4, {"tp": np.array([8.0]), "schedule": np.zeros(1),
                                           "step_time_s": np.array([2.5])}, ("candidate 3: killed by signal 9",)),
)  # fmt: skip


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with toy-1, which is done, and toy-2, which lacks a block."""
    folder = tmp_path / "runs"
    monkeypatch.setenv("SLIPSTICK_RUNS", str(folder))
    for blocks in (BLOCKS, BLOCKS[:1]):
        with LedgerFolder(folder).create(RUN) as ledger:
            for found in blocks:
                ledger.write(found)
    return folder


def test_the_list_says_what_there_is(cli: Cli, runs: Path) -> None:
    done = cli("runs", "list")
    heading, first, second = done.stdout.splitlines()
    assert heading.split() == ["run", "model", "state", "plans", "best", "size", "tool", "version"]
    assert first.split()[:8] == ["toy-1", "org/toy", "done", "3", "step", "time", "2.5", "s"]
    assert second.split()[:7] == ["toy-2", "org/toy", "interrupted:", "1", "of", "2", "blocks"]


def test_the_list_of_a_folder_without_runs_is_empty(cli: Cli, tmp_path: Path) -> None:
    done = cli("runs", "list", "--runs", str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (0, "")
    assert "there are no runs in" in done.stderr
    assert json.loads(cli("runs", "list", "--runs", str(tmp_path), "--format", "json").stdout)["runs"] == []


def test_the_list_as_json(cli: Cli, runs: Path) -> None:
    (runs / "broken.sqlite").write_text("no ledger at all")
    document = json.loads(cli("runs", "list", "--format", "json").stdout)
    broken, first, second = document["runs"]
    assert document["schema"] == "slipstick/runs/1"
    assert (broken["state"], first["state"], second["state"]) == ("unreadable", "done", "interrupted")
    assert "is no ledger of a search" in broken["error"]
    assert first["best"] == {"metric": "step_time_s", "value": 2.5}
    # 4 pruned and 2 kept of the first block; 2 pruned, 1 kept, 1 crashed of the second.
    counts = [first[f"num_{name}"] for name in ("candidates", "legal", "pruned", "crashed", "kept", "blocks_done")]
    assert counts == [10, 7, 6, 1, 3, 2]


def test_show_says_what_was_pruned_and_why(cli: Cli, runs: Path) -> None:
    text = cli("runs", "show", "toy-1").stdout
    for line in (
        "command       slipstick search toy --gpus 8",
        "state         done",
        "candidates  10",
        "pruned       3  tp does not divide heads",
        "pruned       3  too little memory",
        "crashed      1  candidate 3: killed by signal 9",
        "step_time_s  2.5 s  4 s",
        "  gpus: 8",
    ):
        assert line in text.splitlines()
    assert "schedule  " not in text


def test_show_as_json_and_as_the_space_alone(cli: Cli, runs: Path) -> None:
    document = json.loads(cli("runs", "show", "toy-1", "--format", "json").stdout)
    assert document["pruned"] == {"tp does not divide heads": 3, "too little memory": 3}
    assert document["ranges"]["tp"] == {"least": 1.0, "most": 8.0}
    assert document["words"] == {"schedule": ["1f1b", "gpipe"]}
    assert cli("runs", "show", "toy-1", "--format", "yaml").stdout == RUN.text


def test_a_run_may_be_named_by_its_file(cli: Cli, runs: Path) -> None:
    assert cli("runs", "show", str(runs / "toy-1.sqlite")).stdout == cli("runs", "show", "toy-1").stdout


def test_export_to_csv(cli: Cli, runs: Path, tmp_path: Path) -> None:
    done = cli("runs", "export", "toy-1", "-o", "-")
    assert done.stdout == "tp,schedule,step_time_s\n1,1f1b,4\n2,gpipe,3\n8,1f1b,2.5\n"
    assert done.stderr == "3 plans\n"
    path = tmp_path / "out.csv.gz"
    for _ in range(2):
        done = cli("runs", "export", "toy-1", "-o", str(path), "--columns", "step_time_s,tp", "--where", "tp<8")
    assert done.stderr == f"wrote {path}\n2 plans\n"
    assert gzip.decompress(path.read_bytes()) == b"step_time_s,tp\n4,1\n3,2\n"


def test_export_of_a_part_says_so(cli: Cli, runs: Path) -> None:
    done = cli("runs", "export", "toy-2", "-o", "-", "--where", "schedule=gpipe")
    assert [row["tp"] for row in csv.DictReader(io.StringIO(done.stdout))] == ["2"]
    assert done.stderr == "1 plan; 1 of 2 blocks are done, others are missing\n"


def test_export_to_parquet(cli: Cli, runs: Path, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "out.parquet"
    assert cli("runs", "export", "toy-1", "-o", str(path)).stderr == f"wrote {path}\n3 plans\n"
    assert duckdb.sql(f"FROM '{path}'").fetchall() == [(1.0, "1f1b", 4.0), (2.0, "gpipe", 3.0), (8.0, "1f1b", 2.5)]


def test_remove_asks_first(cli: Cli, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    done = cli("runs", "remove", "toy-1")
    assert (done.returncode, (runs / "toy-1.sqlite").exists()) == (2, True)
    assert "say --yes" in done.stderr
    assert cli("runs", "remove", "toy-1", "--yes").returncode == 0
    assert [path.name for path in runs.iterdir()] == ["toy-2.sqlite"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "toy-3"], "unknown run 'toy-3'; did you mean 'toy-2'? allowed: toy-1, toy-2"),
        (["show", "./toy-1"], "'toy-1' is no file: there is no such ledger"),
        (["remove", "./toy-1.sqlite", "--yes"], "unknown run './toy-1.sqlite'"),
        (["export", "toy-1", "-o", "out.txt"], "the name ends in .parquet, .csv or .csv.gz, or is - for CSV on stdout"),
        (
            ["export", "toy-1", "-o", "-", "--columns", "tp,pp"],
            "unknown column 'pp'; allowed: schedule, step_time_s, tp",
        ),
        (["export", "toy-1", "-o", "-", "--where", "tp"], "'tp' is no condition: a condition is a column, one of"),
        (["export", "toy-1", "-o", "none/\0/out.csv"], "cannot write 'none/\\x00/out.csv'"),
        (["lst"], "unknown verb 'runs lst'; did you mean 'list'? allowed: export, list, remove, show"),
    ],
)
def test_refusals(cli: Cli, runs: Path, words: list[str], message: str) -> None:
    done = cli("runs", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_damaged_block_is_no_row_of_an_export(cli: Cli, runs: Path, tmp_path: Path) -> None:
    db = sqlite3.connect(runs / "toy-1.sqlite")
    db.execute("UPDATE block SET data = zeroblob(length(data)) WHERE number = 1")
    db.commit()
    db.close()
    done = cli("runs", "export", "toy-1", "-o", str(tmp_path / "out.csv"))
    assert done.returncode == 2
    assert "is damaged on disk: block 1 is not what was written; nothing was changed" in done.stderr
    assert not (tmp_path / "out.csv").exists()
    with Ledger.open(runs / "toy-1.sqlite") as ledger:
        assert ledger.done() == {0}


def test_an_interrupt_may_say_how_to_go_on(cli: Cli, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_: LedgerFolder) -> None:
        raise KeyboardInterrupt("interrupted: 1 of 2 blocks are kept")

    monkeypatch.setattr("slipstick.explore.runs.summary.summaries", stop)
    done = cli("runs", "list")
    assert (done.returncode, done.stderr) == (130, "error: interrupted: 1 of 2 blocks are kept\n")
