"""`slipstick recompute`: the document, the plan file, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., CompletedProcess[str]]
ASKED = ("recompute", "llama-3.1-8b", "--system", "dgx-h100", "--gpus", "8", "--tp", "2", "--zero", "1",
         "--seq", "4096", "--gbs", "32", "--memory-limit", "40GiB", "--no-offloading", "--quiet",
         "--stack", "none")  # fmt: skip


@pytest.mark.slow
def test_the_plan_that_is_written_is_the_step_that_was_found(cli: Cli, tmp_path: Path) -> None:
    plan = tmp_path / "best.yaml"
    answer = json.loads(cli(*ASKED, "--format", "json", "--best-plan", str(plan)).stdout)
    best = answer["best"]
    assert best["fits"]
    assert best["metrics"]["peak_mem_bytes"] <= answer["limit_bytes"] == 40 * 2**30
    again = json.loads(cli("estimate", "--plan", str(plan), "--format", "json", "--quiet").stdout)
    assert again["metrics"]["step_time_s"] == pytest.approx(best["metrics"]["step_time_s"], rel=1e-12)
    assert again["metrics"]["peak_mem_bytes"] == best["metrics"]["peak_mem_bytes"]
    assert sum(best["breakdown_s"].values()) == pytest.approx(best["metrics"]["step_time_s"], rel=1e-9)
    front = [(p["metrics"]["peak_mem_bytes"], p["metrics"]["step_time_s"]) for p in answer["front"]]
    assert front == sorted(front)
    assert [s for _, s in front] == sorted((s for _, s in front), reverse=True)


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (("--memory-limit", "1GiB"), 3, "no memory policy fits 1 GiB"),
        (("--memory-limit", "0GiB"), 2, "above 0, as 70GiB"),
        (("--memory-limit", "24s"), 2, "wrong unit"),
        (("--phase", "decode"), 2, "memory policies say what training keeps"),
        (("--runs-on", "megatrn"), 2, "megatron"),
    ],
)
def test_what_cannot_be_is_refused(cli: Cli, flags: tuple[str, ...], code: int, message: str) -> None:
    done = cli(*ASKED, *flags)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
