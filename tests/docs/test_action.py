"""The step for continuous integration does what it says: it keeps the first answer, and fails where a gate does."""

from __future__ import annotations

import os
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


def test_what_is_cited_is_what_is_shipped() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
