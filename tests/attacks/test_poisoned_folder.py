"""No process runs a module that lies in the current folder, whatever installed module it is named after."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest

from slipstick.cli import VERBS, run

POISON = "open({mark!r}, 'a').write(__name__ + ' in ' + open('/proc/self/cmdline').read() + chr(10))\n"
# Names that are installed nowhere, too: Python and libraries ask for some of them.
ABSENT = {"sitecustomize", "usercustomize", "ujson", "cupy", "setproctitle"}
SEARCH = (
    "search",
    "gpt2",
    "--system",
    "dgx-h100",
    "--gpus",
    "2",
    "--seq",
    "128",
    "--gbs",
    "4",
    "--jobs",
    "2",
    "--quiet",
)
POOL = """
from slipstick.ir.host.children import process_pool
if __name__ == "__main__":
    with process_pool(2) as pool:
        print(*pool.map(abs, (-1, -2)))
"""
# As in a session of Python, whose first place of modules is the current folder.
SESSION = "import sys; sys.path.insert(0, ''); from slipstick.ir.host.children import process_pool as pool\n" + (
    "with pool(1) as one: paths = one.submit(eval, '__import__(\"sys\").path').result()\n"
    "print('' in paths or __import__('os').getcwd() in paths, sys.path[0] == '')"
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc who ran it")


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "mark"


@pytest.fixture
def folder(tmp_path: Path, mark: Path) -> Path:
    """A folder with a file for every module that anything may import."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in {*sys.stdlib_module_names, *packages_distributions(), "slipstick", *ABSENT}:
        if name.isidentifier():
            (folder / f"{name}.py").write_text(POISON.format(mark=str(mark)), encoding="utf-8")
    return folder


def python(folder: Path, *words: str, limit_s: float = 120.0) -> str:
    """What Python prints in a folder from whose modules it keeps, until it ends or the limit, with all it started."""
    process = subprocess.Popen(
        [sys.executable, "-P", *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"},
    )
    try:
        return process.communicate(timeout=limit_s)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]


def ran(mark: Path) -> str:
    return mark.read_text(encoding="utf-8") if mark.exists() else ""


def test_the_poison_works(folder: Path, mark: Path) -> None:
    subprocess.run([sys.executable, "-c", "import json"], cwd=folder, check=True)
    assert "json in" in ran(mark)


@pytest.mark.parametrize(
    "executor",
    [
        "processes",
        pytest.param("ray", marks=[pytest.mark.deep, pytest.mark.skipif(find_spec("ray") is None, reason="no ray")]),
    ],
)
def test_workers_of_a_search_run_nothing_of_the_folder(executor: str, folder: Path, mark: Path) -> None:
    said = python(folder, "-m", "slipstick", *SEARCH, "--executor", executor)
    assert "tokens/s/GPU" in said, said
    assert ran(mark) == ""


def test_processes_of_a_pool_run_nothing_of_the_folder(folder: Path, mark: Path, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(POOL, encoding="utf-8")
    assert python(folder, str(tmp_path / "script")) == "1 2\n"
    assert ran(mark) == ""


def test_a_session_keeps_its_current_folder_to_itself(tmp_path: Path) -> None:
    assert python(tmp_path, "-c", SESSION) == "False True\n"


def test_the_module_as_a_program_leaves_the_folder_out(folder: Path, mark: Path) -> None:
    """But for what Python itself loads before any line of ours, and our own name."""
    for file in folder.iterdir():
        if file.stem not in {"torch", "numpy", "yaml", "click", "ray", "onnx", "matplotlib", "cupy"}:
            file.unlink()
    subprocess.run([sys.executable, "-m", "slipstick", "list", "systems"], cwd=folder, check=True, capture_output=True)
    assert ran(mark) == ""


def examples(verb: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The first example of a verb's help, in words; the bare verb where it has none."""
    run((verb, "--help"))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    return next((line[1:] for line in lines if line[:2] == ["slipstick", verb]), [verb])


@pytest.mark.deep
@pytest.mark.parametrize("verb", sorted(VERBS))
def test_no_verb_runs_anything_of_the_folder(
    verb: str, folder: Path, mark: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python(folder, "-m", "slipstick", *examples(verb, capsys), limit_s=30.0)
    assert ran(mark) == ""
