"""`slipstick estimate --emit trace`: the file, what is said of it, and what is refused."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., CompletedProcess[str]]


def test_a_trace_is_written_by_name(tiny: Cli, tmp_path: Path) -> None:
    plain, packed = tmp_path / "step.json", tmp_path / "step.json.gz"
    done = tiny("--pp", "2", "--gbs", "4", "--emit", "trace", "-o", str(plain))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[-2] == f"wrote {plain}"
    assert done.stderr.splitlines()[-1].endswith(" events")
    tiny("--pp", "2", "--gbs", "4", "--emit", "trace", "-o", str(packed))
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    trace = json.loads(plain.read_text(encoding="utf-8"))
    assert trace["otherData"]["schema"] == "slipstick/trace/1"
    assert trace["otherData"]["left_out"] == []


def test_a_trace_to_stdout_is_json(tiny: Cli) -> None:
    done = tiny("--emit", "trace", "-q")
    assert done.returncode == 0
    assert done.stderr == ""
    assert json.loads(done.stdout)["otherData"]["stages_shown"] == [0]


def test_detail_and_stages_are_chosen(tiny: Cli) -> None:
    done = tiny("--gbs", "4", "--emit", "trace", "--trace-detail", "task")
    trace = json.loads(done.stdout)
    assert {e["cat"] for e in trace["traceEvents"] if e["ph"] == "X"} == {"phase", "task", "compute"}
    assert trace["otherData"]["left_out"] == ["micro-batches 0-3 show their tasks, without layers and nodes"]
    assert trace["otherData"]["left_out"][0] in done.stderr


@pytest.mark.parametrize("form", ["table", "json"])
def test_other_kinds_go_to_a_file_too(tiny: Cli, form: str, tmp_path: Path) -> None:
    shown = tiny("--emit", form)
    assert shown.stdout == tiny("--format", form).stdout
    file = tmp_path / "out"
    written = tiny("--emit", form, "-o", str(file))
    assert (written.returncode, written.stdout) == (0, "")
    assert file.read_text(encoding="utf-8") == shown.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--emit", "trace", "--format", "json"), "--emit trace and --format json say two things"),
        (("--trace-detail", "node"), "--trace-detail is of --emit trace, and what is written is a table"),
        (("--trace-stages", "all", "--emit", "json"), "--trace-stages is of --emit trace"),
        (("--emit", "trac"), "'trac' is not allowed; did you mean 'trace'?"),
        (("--emit", "trace", "--trace-detail", "nodes"), "did you mean 'node'?"),
    ],
)
def test_what_says_nothing_or_two_things_is_refused(tiny: Cli, words: tuple[str, ...], message: str) -> None:
    done = tiny(*words)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_place_that_cannot_be_written_is_the_users_to_change(tiny: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = tiny("--emit", "trace", "-o", str(tmp_path / "file" / "step.json"))
    assert done.returncode == 2
    assert "cannot write" in done.stderr


def test_a_plan_that_does_not_fit_is_drawn_and_said(tiny: Cli, tmp_path: Path) -> None:
    file = tmp_path / "step.json"
    small = ("--set", "chip.memory.hbm.capacity=1GiB", "--emit", "trace", "-o", str(file))
    done = tiny(*small)
    assert done.returncode == 3
    assert file.exists()
    assert tiny(*small, "--allow-infeasible").returncode == 0


def test_memory_is_explained(tiny: Cli) -> None:
    done = tiny("--pp", "2", "--gbs", "4", "--explain", "memory")
    assert done.returncode == 0
    assert done.stdout.startswith("memory of a device of stage 0, the fullest of 2 stages: at most ")
