"""`slipstick calibrate --stack` on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., CompletedProcess[str]]
STEPS = str(Path(__file__).parents[2] / "validation" / "training_step.csv")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--stack", "nanotron"), "nothing to fit: give --from"),
        (("--from", STEPS, "--stack", "nanotrn"), "did you mean 'nanotron'"),
        (("--from", STEPS, "--stack", "default"), "does not say what is free"),
        (("--from", STEPS, "--stack", "nanotron,"), "with commas between"),
        (("--from", STEPS, "--stack", "nanotron", "--joint", "--where", "tp=1"), "--where, --joint: not with --stack"),
        (("--device", "cpu", "--stack", "nanotron"), "leave out --stack"),
    ],
)
def test_mistakes_are_answered_and_nothing_is_written(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli("calibrate", *words, "-o", "out")
    assert done.returncode == 2
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_one_file_holds_one_stack_and_no_profile_is_written_over(cli: Cli, tmp_path: Path) -> None:
    both = cli("calibrate", "--from", STEPS, "--stack", "nanotron,nanotron-per-rank", "-o", str(tmp_path / "one.yaml"))
    assert (both.returncode, "would hold 2 stacks" in both.stderr) == (2, True)
    mine = tmp_path / "mine.yaml"
    mine.write_text("{name: mine, like: default, fit: {data_sets: [a], free: [host.layer]}}", encoding="utf-8")
    over = cli("calibrate", "--from", STEPS, "--stack", str(mine), "-o", str(tmp_path))
    assert (over.returncode, "is no fit of a stack" in over.stderr) == (2, True)
    assert mine.read_text(encoding="utf-8").startswith("{name: mine, like: default")
