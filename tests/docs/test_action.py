"""The step for continuous integration does what it says: it keeps the first answer, and fails where a gate does."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
JOB = "llama-3.1-8b --system dgx-h100 --gpus 8 --zero 1 --gbs 64"


def _step(folder: Path, command: str, gates: str) -> subprocess.CompletedProcess[str]:
    script = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"][1]["run"]
    words = {"COMMAND": command, "BASELINE": "kept.json", "GATES": gates, "GITHUB_STEP_SUMMARY": "summary.md"}
    # The shell of such a step ends at the first command that fails, in pipes too.
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, **words, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )  # fmt: skip


def test_the_first_answer_is_kept_and_later_ones_are_compared(tmp_path: Path) -> None:
    assert _step(tmp_path, JOB, "").returncode == 0
    assert (tmp_path / "kept.json").exists()
    assert _step(tmp_path, JOB, "step_time_s>+3%\nmfu<1%\n").returncode == 0
    slower = _step(tmp_path, f"{JOB} --recompute full", "step_time_s>+3%\n")
    assert slower.returncode == 5, slower.stderr
    assert "step_time_s" in slower.stderr
    assert "step time" in (tmp_path / "summary.md").read_text(encoding="utf-8")


def test_all_lines_of_a_command_are_read_as_a_shell_reads_them_and_none_is_run(tmp_path: Path) -> None:
    command = (
        "llama-3.1-8b --system dgx-h100 \\\n  --gpus 8\n\n# the batch\n--zero 1 --gbs 64\n"
        "--set 'chip.power=650 W' --set \"chip.clock=1.7 GHz\" --set chip.num_sms=$(touch\\ ran)"
    )
    failed = _step(tmp_path, command, "")
    assert failed.returncode == 2
    assert "chip.num_sms: '$(touch ran)' is not a quantity" in failed.stderr
    assert not (tmp_path / "ran").exists()
    assert _step(tmp_path, command.rpartition(" --set ")[0], "").returncode == 0
    kept = json.loads((tmp_path / "kept.json").read_text(encoding="utf-8"))
    assert "chip.power=650 W" in str(kept["inputs"])
    assert kept["inputs"]["plan"]["gbs"] == 64
    assert _step(tmp_path, "llama-3.1-8b --set 'chip", "").returncode != 0


def test_the_step_installs_what_lies_beside_it_and_nothing_by_name() -> None:
    steps = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"]
    for words in (shlex.split(line) for step in steps for line in step["run"].splitlines() if "pip install" in line):
        assert all("$GITHUB_ACTION_PATH/" in w or "$GITHUB_ACTION_PATH[" in w for w in words[4:] if w[0] != "-"), words
    assert (ROOT / "constraints.txt").exists()


def test_what_is_cited_is_what_is_shipped() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
