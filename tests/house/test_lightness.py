"""Help, import and refusals stay light: what is heavy is loaded by the function that needs it."""

import os
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

# Files of ours that a command enters; the numbers may only fall. A misspelt name is refused before its work is loaded.
ENTERED = {
    "estimate llama-3.1-8b --system dgx-h100 --gpus 8 --tp 8 --seq 4096 --gbs 8": 431,
    "estimate llama-3.1-8b --system dgx-h10 --gpus 8": 110,
    "estimate llama-3.1-9b --system dgx-h100 --gpus 8": 96,
    "cost dgx-h100": 205,
    "cost dgx-h10": 53,
    "--help": 11,
}
COUNT = """
import sys
entered = set()
sys.setprofile(lambda frame, event, _: event == "call" and entered.add(frame.f_code.co_filename))
from slipstick.cli import run
run(sys.argv[2:])
sys.setprofile(None)
own = [name for name in entered if name.startswith(sys.argv[1]) and "site-packages" not in name]
sys.stderr.write(f"entered {len(own)}")
"""


@pytest.mark.parametrize("command", ENTERED)
def test_a_command_enters_few_files(command: str, root: Path, tmp_path: Path) -> None:
    own = f"{root}{os.sep}"
    folder = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    asked = [sys.executable, "-c", COUNT, own, *command.split()]
    done = subprocess.run(asked, cwd=tmp_path, env=folder, capture_output=True, text=True, check=True)
    assert int(done.stderr.rpartition("entered ")[2]) <= ENTERED[command]


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
