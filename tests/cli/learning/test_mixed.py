"""`slipstick mixed`: the document, the screen, the function of Python, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

import slipstick

Cli = Callable[..., CompletedProcess[str]]
STAGES = "dgx-h100:2,dgx-a100-80gb:2"
ASKED = ("mixed", "llama-3.1-8b", "--stages", STAGES, *["--gpus", "64", "--tp", "8", "--seq", "4096", "--gbs", "64"])


def test_the_document_has_the_stages_and_the_same_plan_in_other_ways(cli: Cli) -> None:
    answer = json.loads(cli(*ASKED, "--zero", "1", "--format", "json").stdout)
    assert sum(answer["layers"]) == 32
    assert [s["system"] for s in answer["stages"]] == ["dgx-h100"] * 2 + ["dgx-a100-80gb"] * 2
    assert sum(answer["breakdown_s"].values()) == pytest.approx(answer["metrics"]["step_time_s"])
    assert [g["num_gpus"] for g in answer["groups"]] == [32, 32]
    usd = sum(g["money"]["usd_per_step"] for g in answer["groups"])
    assert answer["metrics"]["usd_per_step"] == pytest.approx(usd)
    times = {name: other["metrics"]["step_time_s"] for name, other in answer["others"].items()}
    assert set(times) == {"even layers", "dgx-a100-80gb:2,dgx-h100:2", "dgx-h100:4", "dgx-a100-80gb:4"}
    mixed = answer["metrics"]["step_time_s"]
    assert times["dgx-h100:4"] < mixed < min(times["even layers"], times["dgx-a100-80gb:4"])


def test_the_screen_has_every_stage(cli: Cli) -> None:
    shown = cli(*ASKED, "--pp-layout", "10,10,6,6").stdout
    for k, line in enumerate(shown.split("Stages\n")[1].splitlines()[1:5]):
        number, system, layers, *_ = line.split()
        assert (number, system, layers) == (str(k), "dgx-h100" if k < 2 else "dgx-a100-80gb", "10" if k < 2 else "6")


def test_the_function_answers_as_the_command(cli: Cli) -> None:
    asked = json.loads(cli(*ASKED, "--link", "25Gbit/s", "--format", "json").stdout)
    found = slipstick.mixed("llama-3.1-8b", stages=STAGES, gpus=64, tp=8, seq=4096, gbs=64, link="25Gbit/s")
    assert found.best.metrics == asked["metrics"]


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (("--stages", "dgx-h100"), 2, "SYSTEM:N,SYSTEM:N"),
        (("--stages", "dgx-h100:2,dgx-h1000:2"), 2, "dgx-h100"),
        (("--pp", "8"), 2, "has 4 stages; leave --pp out"),
        (("--system", "dgx-h100"), 2, "leave --system out"),
        (("--steps", "100"), 2, "a whole training run"),
        (("--schedule", "dualpipe"), 2, "two copies"),
        (("--precision", "fp8"), 2, "fp8"),
        (("--link", "0"), 2, "above 0"),
        (("--link-latency", "5"), 2, "missing unit"),
        (("--pp-layout", "32"), 2, "needs 4 parts"),
        (("--phase", "serve"), 2, "a server runs two graphs"),
        (("--gbs", "1024", "--mbs", "64"), 3, "on dgx-h100 needs"),
    ],
)
def test_what_cannot_be_is_refused(cli: Cli, flags: tuple[str, ...], code: int, message: str) -> None:
    done = cli(*ASKED, *flags)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
