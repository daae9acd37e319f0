"""A factory's module described by flags: what it takes, and the length that its code names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

Cli = Callable[..., CompletedProcess[str]]
INPUTS = ("--input", "ids:int64[batch,seq]", "--input", "mask[batch,seq]")


def test_inputs_are_flags_and_the_length_is_that_of_the_code_where_none_was_typed(cli: Cli, data: Path) -> None:
    words = ("estimate", f"{data / 'cli_nets.py'}:Masked", "--system", "dgx-h100", "-q")
    asked = cli(*words)
    assert asked.returncode == 2
    assert "--input 'ids:int64[batch,seq]' --input 'mask:bf16[batch,seq]'" in asked.stderr
    done = cli(*words, *INPUTS, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["inputs"]["plan"]["seq"] == 64
    shown = cli(*words, *INPUTS)
    assert "note: seq is fixed at 64: " in shown.stdout
    other = cli(*words, *INPUTS, "--seq", "128")
    assert (other.returncode, other.stdout) == (2, "")
    assert "is recorded for seq = 64" in other.stderr


def test_every_verb_that_takes_a_model_takes_its_description(cli: Cli, data: Path, tmp_path: Path) -> None:
    model = f"{data / 'cli_nets.py'}:Masked"
    traced = cli("trace", model, "--phase", "prefill", "--seq", "64", "-q", *INPUTS, "--format", "json")
    assert traced.returncode == 0, traced.stderr
    target = tmp_path / "masked.graph"
    compiled = cli("compile", model, "--phase", "prefill", "-q", *INPUTS, "--emit", "graph", "-o", str(target))
    assert compiled.returncode == 0, compiled.stderr
    assert "bound seq 64 to 64" in target.read_text(encoding="utf-8")
    search = ("search", model, "--system", "dgx-h100", "--gpus", "8", "--gbs", "8", "-q", *INPUTS)
    refused = cli(*search)
    assert refused.returncode == 2
    assert "is recorded for seq = 64" in refused.stderr


def test_a_loss_and_fixed_sizes_are_flags(cli: Cli, data: Path) -> None:
    words = ("estimate", f"{data / 'cli_nets.py'}:factory", "--system", "dgx-h100", "-q", "--seq", "64")
    done = cli(*words, "--loss", f"{data / 'cli_nets.py'}:squared", "--fixed", "seq=64")
    assert done.returncode == 0, done.stderr
    assert "note: seq is fixed at 64, as asked for" in done.stdout
    assert "did you mean 'squared'?" in cli(*words, "--loss", f"{data / 'cli_nets.py'}:squar").stderr
