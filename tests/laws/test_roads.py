"""One question, one answer: a plan has the same numbers on every road; `python -m benchmarks.roads` asks more.

The law is the oracle: nothing here says what the numbers are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from slipstick.benchmarks.roads.__main__ import recorded_once
from slipstick.benchmarks.roads.draw import OWN, Draw
from slipstick.benchmarks.roads.laws import CHECKS, questions

GPT = OWN[0]
ON = ("--system", "dgx-h100", "--gpus", "8", "--seq", "512", "--gbs", "64")
SERVED = ("--system", "dgx-h100", "--isl", "200", "--osl", "200")
SEARCH = ("--vpp", "1", "--schedule", "1f1b", "--no-ledger", "--no-why", "--top", "1")
# Each kind of disagreement that there was, as small as it gets.
KNOWN = (
    (
        "search",
        (
            GPT,
            *ON,
            "--tp",
            "1",
            "--pp",
            "1",
            "--zero",
            "2",
            "--recompute",
            "none",
            "--cp",
            "1",
            "--set",
            "chip.clock=1GHz",
            "--flops-convention",
            "causal",
            "--stack",
            "megatron-core",
            *SEARCH,
        ),
    ),
    ("choose", (GPT, *ON, "--tp", "1", "--pp", "1", "--tokens", "1B", "--stack", "torchtitan", "--basis", "build")),
    ("recompute", (GPT, *ON, "--zero", "1", "--calibration", "default", "--set", "chip.clock=1GHz", "--mbs", "1")),
    ("size", ("qwen3-8b", *SERVED, "--rps", "20", "--engine", "sglang", "--cached", "100", "--disagg", "on")),
    ("size", ("mixtral-8x7b", *SERVED, "--rps", "200", "--max-num-seqs", "64", "--disagg", "off", "--ep", "2")),
    (
        "size",
        ("mixtral-8x7b", *SERVED, "--rps", "2", "--max-num-seqs", "64", "--disagg", "on", "--engine", "tensorrt-llm"),
    ),
    ("one degree", (GPT, *ON, "--zero", "1", "--kernels", "fused")),
    ("python", (GPT, *ON, "--zero", "3", "--set", "chip.clock=1GHz", "--no-fuse")),
)


@pytest.fixture(scope="module", autouse=True)
def shared() -> Iterator[None]:
    with recorded_once():
        yield


@pytest.mark.parametrize(("law", "flags"), KNOWN, ids=[f"{law}-{k}" for k, (law, _) in enumerate(KNOWN)])
def test_roads_that_disagreed_agree(law: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    assert CHECKS[law](flags, tmp_path) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (2, 3))])
def test_roads_agree(seed: int, tmp_path: Path) -> None:
    """A round of all laws on random questions; a question that every road refuses is fine."""
    for law, flags in islice(questions(Draw(seed)), len(CHECKS) + 1):
        assert not CHECKS[law](flags, tmp_path), f"{law} {' '.join(flags)}"
