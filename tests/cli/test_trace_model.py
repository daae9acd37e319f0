"""`slipstick trace`: a model's contents and how its operators are priced, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., CompletedProcess[str]]


@pytest.fixture
def trace(cli: Cli, data: Path) -> Cli:
    return lambda *words: cli("trace", "-q", str(data / "configs" / "tiny-llama.json"), *words)


def test_it_says_what_is_in_a_model(trace: Cli) -> None:
    done = trace("--batch", "3", "--seq", "32")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tiny-llama  train  bf16  batch 3  seq 32\n")
    assert "saved for backward" in done.stdout
    assert any(line.startswith("block0") for line in done.stdout.splitlines())


def test_coverage_names_who_prices_what(trace: Cli) -> None:
    done = trace("--coverage", "--phase", "decode", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["machine"] == "dgx-h100"
    assert {r["model"] for r in found["pricing"] if r["class"] == "matmul"} == {"gemm"}


def test_another_machine_can_be_named(trace: Cli, tmp_path: Path) -> None:
    path = tmp_path / "coverage.txt"
    done = trace("--coverage", "--system", "dgx-a100-80gb", "-o", str(path))
    assert (done.returncode, done.stdout) == (0, "")
    assert "on one device of dgx-a100-80gb" in path.read_text(encoding="utf-8")


def test_operators_without_a_rule_are_listed_and_the_way_out_is_named(cli: Cli, data: Path) -> None:
    model = f"{data / 'nets.py'}:unusual"
    refused = cli("trace", "-q", model, "--phase", "prefill")
    assert refused.returncode == 4
    assert "'aten.cummax'" in refused.stderr
    assert "'aten.cummin'" in refused.stderr
    assert "--allow-unpriced" in refused.stderr
    kept = cli("trace", "-q", model, "--phase", "prefill", "--allow-unpriced", "--coverage")
    assert kept.returncode == 0, kept.stderr
    assert "bytes alone: no rule, FLOPs unknown" in kept.stdout
    assert "note: only the bytes of operators without a rule are counted" in kept.stdout


def test_an_estimate_of_such_a_model_says_what_it_leaves_out(cli: Cli, data: Path) -> None:
    words = ("estimate", "-q", f"{data / 'nets.py'}:unusual", "--system", "dgx-h100", "--phase", "prefill")
    assert cli(*words).returncode == 4
    done = cli(*words, "--allow-unpriced", "--format", "json")
    assert done.returncode == 0, done.stderr
    warnings = json.loads(done.stdout)["warnings"]
    assert any("aten.cummax (1 call)" in w for w in warnings)
    assert any("% of the bytes of a micro-batch" in w for w in warnings)


def test_what_is_misspelt_is_refused_before_anything_is_recorded(cli: Cli) -> None:
    assert "did you mean 'llama-3.1-8b'" in cli("trace", "llama-3.1-8").stderr
    assert cli("trace", "gpt2", "--phase", "prefil").returncode == 2
    assert cli("trace", "gpt2", "--batch", "0").returncode == 2
