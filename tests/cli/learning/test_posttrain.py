"""`slipstick posttrain`: the document, the run, plans that are found, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., CompletedProcess[str]]
ASKED = ("posttrain", "llama-3.1-8b", "--system", "dgx-h100", "--gpus", "16", "--zero", "1", "--prompts", "16",
         "--group", "4", "--osl", "400", "--max-tokens", "2048", "--quiet")  # fmt: skip


def test_the_document_has_the_parts_of_the_step_and_the_run(cli: Cli) -> None:
    answer = json.loads(cli(*ASKED, "--pp", "2", "--steps", "500", "--format", "json").stdout)
    assert answer["algorithm"] == "grpo"
    assert sum(answer["parts_s"].values()) == pytest.approx(answer["metrics"]["step_time_s"])
    assert answer["run"]["gpu_hours"] == pytest.approx(500 * answer["metrics"]["step_time_s"] / 3600 * 16)
    assert answer["engine"]["replicas"] == 16
    assert answer["metrics"]["mean_tokens"] == 912


def test_the_screen_names_every_part(cli: Cli) -> None:
    shown = cli(*ASKED, "--pp", "2", "--algorithm", "ppo", "--placement", "async", "--engine-gpus", "8").stdout
    for part in ("rollouts", "reward pass", "training of the critic", "weights to the engine", "engine idle"):
        assert part in shown


@pytest.mark.slow
def test_plans_that_are_found_are_no_slower_than_one_that_was_said(cli: Cli) -> None:
    said = json.loads(cli(*ASKED, "--pp", "2", "--format", "json").stdout)
    found = json.loads(cli(*ASKED, "--find-plans", "--format", "json").stdout)
    assert found["plans_tried"] > 4
    assert found["metrics"]["step_time_s"] <= said["metrics"]["step_time_s"]


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (("--algorithm", "grop"), 2, "grpo"),
        (("--placement", "colocated", "--engine-gpus", "8"), 2, "colocated, the engine has the GPUs of the trainer"),
        (("--engine-tp", "3"), 2, "does not divide the 16 GPUs"),
        (("--teacher", "llama-3.1-70b"), 2, "grpo has no teacher model"),
        (("--leave-out", "critic"), 2, "of grpo there is none; allowed: policy, reference"),
        (("--tokens", "1T"), 2, "as long as its steps"),
        (("--phase", "decode"), 2, "posttrain trains"),
        (("--isl", "4096"), 2, "leave no room"),
        (("--gpus", "1"), 3, "the trainer needs"),
        (("--environment-time", "5"), 2, "missing unit"),
    ],
)
def test_what_cannot_be_is_refused(cli: Cli, flags: tuple[str, ...], code: int, message: str) -> None:
    done = cli(*ASKED, *flags)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
