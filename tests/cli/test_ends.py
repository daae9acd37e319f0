"""Help, lists, and every way in which a command may end."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import click
import pytest

from slipstick.cli import VERBS, run
from slipstick.ir.errors import VerifyError

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize("words", [(), *((verb,) for verb in VERBS)])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_fits_a_terminal(cli: Cli, words: tuple[str, ...], flag: str) -> None:
    done = cli(*words, flag)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(" ".join(("Usage: slipstick", *words)))
    wide = [line for line in done.stdout.splitlines() if len(line) > 80]
    # The examples are not broken, so that they can be copied.
    assert all(line.strip().startswith(("slipstick", "costed")) for line in wide)


def test_help_lists_the_verbs_and_exit_codes(cli: Cli) -> None:
    text = cli("--help").stdout
    assert all(f"\n  {verb} " in text for verb in VERBS)
    assert "3 does not fit" in text


@pytest.mark.parametrize("kind", ["system", "chip", "network", "stack", "calibration", "prices"])
def test_a_schema_goes_to_stdout_or_to_a_file(cli: Cli, kind: str, tmp_path: Path) -> None:
    done = cli("schema", kind)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["type"] == "object"
    written = cli("schema", kind, "-o", str(tmp_path / "s.json"))
    assert (written.returncode, written.stdout) == (0, "")
    assert (tmp_path / "s.json").read_text(encoding="utf-8") == done.stdout


def test_an_unknown_kind_of_file_gets_the_nearest(cli: Cli) -> None:
    done = cli("schema", "sistem")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'system'?" in done.stderr


@pytest.mark.parametrize("title", ["Options", "Workload", "Plan", "Machine", "Compiler", "Other"])
def test_flags_are_grouped(cli: Cli, title: str) -> None:
    for verb in ("estimate", "compile"):
        assert f"\n{title}:\n" in cli(verb, "--help-all").stdout


def test_the_version_is_printed(cli: Cli) -> None:
    from slipstick import __version__

    assert cli("--version").stdout == f"slipstick {__version__}\n"


def test_no_verb_prints_help_and_is_wrong_usage(cli: Cli) -> None:
    done = cli()
    assert (done.returncode, done.stdout) == (2, "")
    assert "Verbs:" in done.stderr


@pytest.mark.parametrize("kind", ["metrics", "models", "ops", "passes", "systems", "tp-plans"])
def test_every_kind_is_listed_and_shown(cli: Cli, kind: str) -> None:
    records = json.loads(cli("list", kind, "--format", "json").stdout)
    table = cli("list", kind)
    assert table.returncode == 0
    assert len(table.stdout.splitlines()) == len(records) + 1
    name, singular = records[0]["name"], {"passes": "pass"}.get(kind, kind.removesuffix("s"))
    assert name in cli("show", singular, name).stdout
    assert json.loads(cli("show", singular, name, "--format", "json").stdout)["name"] == name


def test_show_takes_overrides(cli: Cli) -> None:
    assert "4.8 TB/s" in cli("show", "system", "dgx-h100", "--set", "chip.memory.hbm.bandwidth=4.8TB/s").stdout


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Make `slipstick list` raise."""

    def install(error: BaseException) -> None:
        def fail(kind: str, as_json: bool, columns: int | None) -> str:
            raise error

        monkeypatch.setattr("slipstick.report.catalogue.catalogue.list_text", fail)

    return install


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError(), VerifyError("node %3"), MemoryError()])
def test_our_own_mistake_is_exit_1_and_says_where_the_traceback_is(
    cli: Cli, failing: Callable[[BaseException], None], error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLIPSTICK_DEBUG", raising=False)
    failing(error)
    done = cli("list", "ops")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: internal: {type(error).__name__}: ")
    assert "SLIPSTICK_DEBUG=1" in done.stderr


def test_the_traceback_can_be_had(failing: Callable[[BaseException], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTICK_DEBUG", "1")
    failing(KeyError("x"))
    with pytest.raises(KeyError):
        run(["list", "ops"])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.exceptions.Abort()])
def test_an_interruption_is_exit_130(cli: Cli, failing: Callable[[BaseException], None], error: BaseException) -> None:
    failing(error)
    assert cli("list", "ops").returncode == 130


def _num_blocks(runs: Path) -> int:
    """Blocks that the one ledger of a folder holds by now."""
    for path in runs.glob("*.sqlite"):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db, suppress(sqlite3.Error):
            return int(db.execute("SELECT count(*) FROM block").fetchone()[0])
    return 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_search_that_is_ended_says_how_to_go_on(number: signal.Signals, code: int, tmp_path: Path) -> None:
    words = [
        "search",
        "gpt2",
        "--system",
        "dgx-h100",
        "--gpus",
        "64",
        "--seq",
        "1024",
        "--gbs",
        "512",
        "--vary",
        "zero=0,1,2,3",
        "--vary",
        "recompute=none,selective,full",
        "--vary",
        "schedule=1f1b,gpipe,zb-h1",
        "--vary",
        "precision=none,fp8,mxfp8",
        "--runs",
        str(tmp_path),
        "-q",
    ]
    # Tests that run under `nohup` or behind `&` inherit signals that are ignored.
    process = subprocess.Popen(
        [sys.executable, "-m", "slipstick", *words],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    try:
        until = time.monotonic() + 120.0
        while not _num_blocks(tmp_path) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(number)
        told = process.communicate(timeout=120.0)[1]
    finally:
        process.kill()
    assert process.returncode == code
    assert "blocks are kept; resume with `slipstick search --resume " in told
    assert "Traceback" not in told


@pytest.mark.parametrize("words", [("list", "ops"), ("estimate", "gpt2", "--system", "dgx-h100", "-q")])
def test_a_reader_that_leaves_is_no_failure(cli: Cli, words: tuple[str, ...]) -> None:
    assert cli(*words).returncode == 0
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "slipstick", *words], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs a device that is always full")
def test_a_full_disk_is_said() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "slipstick", "list", "ops"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (2, "error: cannot use 'stdout': No space left on device\n")


@pytest.mark.parametrize("stream", [1, 2])
def test_a_closed_stream_is_no_failure(stream: int) -> None:
    command = f"exec {sys.executable} -m slipstick list ops {stream}>&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_python_m_runs_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "slipstick", "list", "nothing"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")


def test_shells_can_complete() -> None:
    environment = {**os.environ, "_SLIPSTICK_COMPLETE": "bash_source"}
    done = subprocess.run(
        [sys.executable, "-m", "slipstick"], capture_output=True, text=True, check=False, env=environment
    )
    assert "_SLIPSTICK_COMPLETE" in done.stdout
