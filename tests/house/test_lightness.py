"""Help and import stay light: what is heavy is loaded by the function that needs it."""

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"networkx", "numpy", "onnx", "plotille", "pydantic", "rich", "torch", "transformers", "yaml"}
COMMANDS = {
    "import": ["-c", "import slipstick"],
    "help": ["-m", "slipstick", "--help"],
    "help of a verb": ["-m", "slipstick", "estimate", "--help"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_nothing_heavy_is_imported(command: list[str], tmp_path: Path) -> None:
    assert _imported_by(command, tmp_path) & HEAVY == set()


@pytest.mark.parametrize("name", sorted(HEAVY - {"onnx", "torch", "transformers"}))
def test_the_log_would_show_a_heavy_import(name: str, tmp_path: Path) -> None:
    assert name in _imported_by(["-c", f"import {name}"], tmp_path)


def _imported_by(command: list[str], folder: Path) -> set[str]:
    """Top-level names of every module that a fresh interpreter loads for `command`."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rsplit("|", 1)[1].strip().split(".")[0] for line in lines}
