from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from slipstick.explore.job import InProcess
from slipstick.explore.runs.ledger import Ledger, lock_of
from slipstick.explore.runs.lock import Lock
from slipstick.explore.runs.running import run_blocks
from slipstick.explore.runs.runs import LedgerFolder, called, new_name
from slipstick.explore.runs.summary import Counts, Summary, summaries
from slipstick.ir.errors import UnknownNameError, UsageError

from ..fake_job import FakeJob
from ..kept_run import VERSION, finished, run_of

JOB = FakeJob()


@pytest.fixture
def runs(tmp_path: Path) -> LedgerFolder:
    """Two runs that are done."""
    found = LedgerFolder(tmp_path / "runs")
    for _ in range(2):
        with found.create(run_of(JOB)) as ledger:
            run_blocks(JOB, InProcess(), ledger, lambda _: None)
    return found


def test_the_folder_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SLIPSTICK_RUNS", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert LedgerFolder.default().folder == tmp_path / ".local" / "state" / "slipstick" / "runs"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert LedgerFolder.default().folder == tmp_path / "state" / "slipstick" / "runs"
    monkeypatch.setenv("SLIPSTICK_RUNS", str(tmp_path / "own"))
    assert LedgerFolder.default().folder == tmp_path / "own"
    assert called(tmp_path / "own" / "a-1.sqlite") == "a-1"
    assert called(tmp_path / "a-1.sqlite") == str(tmp_path / "a-1.sqlite")


@pytest.mark.parametrize(
    ("model", "name"),
    [("toy/Toy-1", "toy-1-1"), ("models/x.json", "x-1"), ("net.onnx", "net-1"), ("", "run-1"), ("///", "run-1"),
     ("pkg.mod:factory", "pkg.mod-factory-1"), ("m" * 99, "m" * 60 + "-1"), ("../..", "run-1")],
)  # fmt: skip
def test_a_name_comes_from_the_model(model: str, name: str) -> None:
    assert new_name(model, []) == name
    assert new_name(model, [name]) == f"{name[:-1]}2"


def test_runs_get_the_next_number_and_are_listed_as_people_count(runs: LedgerFolder) -> None:
    assert runs.names() == ["toy-1-1", "toy-1-2"]
    shutil.copy(runs.path("toy-1-2"), runs.folder / "toy-1-10.sqlite")
    assert runs.names() == ["toy-1-1", "toy-1-2", "toy-1-10"]
    with runs.create(run_of(JOB)) as third:
        assert third.path.name == "toy-1-3.sqlite"


def test_a_name_that_another_process_is_taking_is_passed_over(
    runs: LedgerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LedgerFolder, "names", lambda _: [])
    with runs.create(run_of(JOB)) as third:
        assert third.path.name == "toy-1-3.sqlite"


def test_a_run_is_named_by_its_name_or_its_file(runs: LedgerFolder, tmp_path: Path) -> None:
    path = runs.folder / "toy-1-1.sqlite"
    assert runs.path("toy-1-1") == path
    assert runs.path(str(path)) == path
    # The file name alone is looked for in the folder of runs too.
    assert runs.path(path.name) == path
    assert runs.path("toy-9.sqlite") == Path("toy-9.sqlite")
    with pytest.raises(UnknownNameError, match="unknown run 'toy-1-3'; did you mean 'toy-1-2'"):
        runs.path("toy-1-3")
    with pytest.raises(UnknownNameError, match="unknown run 'a': there are no runs in"):
        LedgerFolder(tmp_path / "none").path("a")


def test_a_run_is_removed_with_all_of_its_files(runs: LedgerFolder) -> None:
    path = runs.path("toy-1-1")
    lock = Lock.take(lock_of(path), "the run")
    lock.release()
    path.with_name("toy-1-1.sqlite-wal").touch()
    runs.remove("toy-1-1")
    assert [p.name for p in runs.folder.iterdir()] == ["toy-1-2.sqlite"]


def test_a_folder_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    assert summaries(LedgerFolder(tmp_path / "none")) == []


def test_counts_of_heads_are_those_of_the_blocks(runs: LedgerFolder) -> None:
    # Of 0 to 19 every second is odd; the others' step takes 1 / (n + 1).
    summary = Summary.of(runs.path("toy-1-1"))
    counts = summary.counts
    assert (counts.num_done, counts.num_candidates, counts.num_legal, counts.num_kept) == (5, 20, 20, 10)
    assert (counts.pruned, counts.crashed) == ({"odd": 10}, ())
    assert counts.ranges == {"number": (0.0, 18.0), "step_time_s": (1 / 19, 1.0)}
    assert (summary.state, summary.best, summary.running) == ("done", ("step_time_s", 1 / 19), None)


def test_of_an_objective_that_should_be_large_the_best_is_the_largest(tmp_path: Path) -> None:
    run = run_of(JOB)
    with Ledger.create(tmp_path / "a.sqlite", type(run).of(JOB, VERSION, objectives=["+number"])) as ledger:
        assert Summary.of(ledger.path).best is None
        run_blocks(JOB, InProcess(), ledger, lambda _: None)
        assert Summary.of(ledger.path).best == ("number", 18.0)


def test_counts_of_nothing() -> None:
    counts = Counts.of((), ("a",))
    assert (counts.num_candidates, counts.ranges) == (0, {})


def test_a_run_that_cannot_be_read_does_not_hide_the_others(runs: LedgerFolder) -> None:
    (runs.folder / "broken.sqlite").write_bytes(runs.path("toy-1-1").read_bytes()[:5000])
    with Ledger.create(runs.folder / "begun.sqlite", run_of(JOB)):
        pass
    begun, broken, *_ = found = summaries(runs)
    assert [s.state for s in found] == ["interrupted", "unreadable", "done", "done"]
    assert broken.wrong is not None
    assert "broken.sqlite' is" in broken.wrong
    assert begun.counts.num_done == 0


def test_removing_waits_for_no_one(runs: LedgerFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstick.explore.runs.lock._locked", lambda _: False)
    lock_of(runs.path("toy-1-1")).write_text("4711\n")
    with pytest.raises(UsageError, match="run 'toy-1-1' is being run by process 4711"):
        runs.remove("toy-1-1")
    assert Summary.of(runs.path("toy-1-1")).running == "process 4711"
    assert "toy-1-1" in runs.names()


def test_finished_is_what_it_says(tmp_path: Path) -> None:
    assert Summary.of(finished(tmp_path / "a.sqlite", JOB)).is_done
