"""Shells complete verbs, flags and names: asked as click's scripts ask, by words and the number of the last."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def completed(line: str) -> list[str]:
    words = line.split(" ")
    asked = {"_SLIPSTICK_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "slipstick"], capture_output=True, text=True, check=True, env={**os.environ, **asked}
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("slipstick est", "plain,estimate"),
        ("slipstick estimate llama-3.1-", "plain,llama-3.1-8b"),
        ("slipstick estimate gpt2 --system dgx-h1", "plain,dgx-h100"),
        ("slipstick estimate gpt2 --stack megatron", "plain,megatron-core"),
        ("slipstick estimate gpt2 --engine vl", "plain,vllm"),
        ("slipstick estimate gpt2 --prices ca", "plain,catch"),
        ("slipstick choose gpt2 --system dgx-h100,dgx-h2", "plain,dgx-h100,dgx-h200"),
        ("slipstick estimate gpt2 --system ./mi", "file,./mi"),
        ("slipstick show node N", "plain,N5"),
        ("slipstick list sch", "plain,schedules"),
        ("slipstick estimate gpt2 --tensor-p", "plain,--tensor-parallel-size"),
        ("slipstick completion z", "plain,zsh"),
    ],
)
def test_what_is_begun_is_completed(line: str, found: str) -> None:
    assert found in completed(line)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_printed(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "slipstick", "completion", shell], capture_output=True, text=True, check=True
    )
    assert f"_SLIPSTICK_COMPLETE={shell}_complete" in done.stdout
