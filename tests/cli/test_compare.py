"""`slipstick compare`: reports of the tool itself, what goes where, and the exit codes."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., CompletedProcess[str]]


@pytest.fixture
def reports(tiny: Cli, tmp_path: Path) -> tuple[str, str]:
    """One plan on the machine as it is, and with slower memory on half of the tensor-parallel ranks."""
    slow = ("--set", "chip.memory.hbm.bandwidth=1TB/s")
    paths = []
    for name, words in (("a", ("--tp", "2")), ("b", ("--tp", "1", *slow))):
        done = tiny("--gpus", "8", "--gbs", "32", *words, "--format", "json")
        (tmp_path / f"{name}.json").write_text(done.stdout, encoding="utf-8")
        paths.append(str(tmp_path / f"{name}.json"))
    return paths[0], paths[1]


def test_the_table_says_what_changed_and_why(cli: Cli, reports: tuple[str, str]) -> None:
    done = cli("compare", *reports)
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("step time: ", " of the ", "plan.tp", "--set chip.memory.hbm.bandwidth", "step_time_s", "comm.tp",
                  "Memory of a GPU", "Where the time goes"):  # fmt: skip
        assert words in done.stdout
    assert "sha256" not in done.stdout


def test_a_report_is_the_same_as_itself(cli: Cli, reports: tuple[str, str]) -> None:
    done = cli("compare", reports[0], reports[0], "--fail-on", "step_time_s>+0%")
    assert done.returncode == 0
    assert "the same\n\nNo input differs" in done.stdout
    assert "gate passed  step_time_s>+0%" in done.stdout


@pytest.mark.parametrize("form", ["table", "json", "markdown"])
def test_a_failed_gate_is_exit_5_with_the_comparison_on_stdout(cli: Cli, reports: tuple[str, str], form: str) -> None:
    gates = ("--fail-on", "step_time_s>+1000000%", "--fail-on", "step_time_s.comm.tp<1s")
    done = cli("compare", *reports, *gates, "--format", form)
    assert done.returncode == 5
    assert done.stderr.startswith("error: 1 of 2 gates failed: step_time_s.comm.tp<1s: ")
    assert "step_time_s" in done.stdout


def test_gates_that_hold_are_exit_0(cli: Cli, reports: tuple[str, str]) -> None:
    assert cli("compare", *reports, "--fail-on", "peak_mem_bytes>79GiB").returncode == 0


def test_json_is_whole_whatever_the_threshold(cli: Cli, reports: tuple[str, str]) -> None:
    texts = [cli("compare", *reports, "--format", "json", "--threshold", t).stdout for t in ("0", "50")]
    assert texts[0] == texts[1]
    changes = json.loads(texts[0])["parts"]["breakdown"]["changes"]
    whole = json.loads(texts[0])["metrics"]["step_time_s"]["difference"]
    assert sum(c["difference"] for c in changes.values()) == pytest.approx(whole, rel=1e-9)


def test_the_threshold_hides_lines(cli: Cli, reports: tuple[str, str]) -> None:
    few, many = (len(cli("compare", *reports, "--threshold", t).stdout.splitlines()) for t in ("40", "0"))
    assert few < many


def test_whole_runs_are_compared(cli: Cli, tiny: Cli, tmp_path: Path) -> None:
    for name, bandwidth in (("a", "1GB/s"), ("b", "0.1GB/s")):
        words = ("--steps", "1M", "--mtbf", "1000h", "--checkpoint-bandwidth", bandwidth, "--format", "json")
        (tmp_path / f"{name}.json").write_text(tiny(*words).stdout, encoding="utf-8")
    paths = (str(tmp_path / "a.json"), str(tmp_path / "b.json"))
    done = cli("compare", *paths, "--threshold", "0", "--fail-on", "train_goodput.checkpoints>+1%")
    assert done.returncode == 5
    assert "run.checkpoints.bytes_per_s" in done.stdout
    assert "Time of the run" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("a.json", "nowhere.json"), "cannot read 'nowhere.json': No such file"),
        (("-", "-"), "stdin can be one of both reports"),
        (("a.json", "a.json", "--fail-on", "stepp>+3%"), "unknown metric 'stepp'"),
        (("a.json", "a.json", "--fail-on", "step_time_s"), "a gate is METRIC[.PART]"),
        (("a.json", "a.json", "--threshold", "-1"), "--threshold"),
        (("a.json", "a.json", "--format", "tabel"), "did you mean 'table'?"),
        (("a.json",), "give B.json, or a measured run"),
    ],
)
def test_wrong_usage_is_exit_2(
    cli: Cli, reports: tuple[str, str], words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(reports[0]).parent)
    done = cli("compare", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
