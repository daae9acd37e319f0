"""A factory's module described by flags: what it takes, and the length that its code names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

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


@pytest.mark.parametrize(
    "words",
    [
        ("trace",), ("compile", "--emit", "graph"), ("compile", "--emit", "sharded"), ("export", "--to", "megatron"),
    ],
)  # fmt: skip
def test_every_verb_refuses_a_length_that_the_graph_is_not_of(cli: Cli, data: Path, words: tuple[str, ...]) -> None:
    """The table has 64 positions; where no length is typed, 64 is it."""
    verb, *more = words
    model = f"{data / 'cli_nets.py'}:Masked"
    refused = cli(verb, model, *more, "-q", *INPUTS, "--seq", "128")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "is recorded for seq = 64" in refused.stderr
    assert cli(verb, model, *more, "-q", *INPUTS).returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gpt2", "--images", "2"), "--images 2: GPT2LMHeadModel sees no pictures, it reads input_ids"),
        (("gpt2", "--images", "2", "--phase", "decode"), "sees no pictures"),
        (("gpt2", "--dim", "a=1"), "--dim a: of ONNX and .pt2 files only"),
        (("{net}:factory", "--images", "2"), "--images 2: of models of transformers by name"),
        (("{net}:factory", "--phase", "prefill", "--loss", "{net}:squared"), "--loss {net}:squared: of training"),
        (("{net}:factory", "--fixed", "seq=64", "--fixed", "seq=32"), "--fixed says 2 things of 'seq'"),
        (("{net}:factory", "--input", "ids:int64[batch,seq]", "--input", "ids:int64[batch,8]"), "2 things of 'ids'"),
        (("{net}:Rows", "--input", "input:bf16[batch,16]", "--seq", "64"), "--seq 64: 'Rows' reads no sequence"),
    ],
)
def test_words_on_inputs_that_a_model_does_not_read_are_refused(
    cli: Cli, data: Path, words: tuple[str, ...], said: str
) -> None:
    net = str(data / "cli_nets.py")
    done = cli("estimate", *(word.format(net=net) for word in words), "--system", "dgx-h100", "-q")
    assert (done.returncode, done.stdout) == (2, "")
    assert said.format(net=net) in done.stderr


def test_a_loss_and_fixed_sizes_are_flags(cli: Cli, data: Path) -> None:
    words = ("estimate", f"{data / 'cli_nets.py'}:factory", "--system", "dgx-h100", "-q", "--seq", "64")
    done = cli(*words, "--loss", f"{data / 'cli_nets.py'}:squared", "--fixed", "seq=64")
    assert done.returncode == 0, done.stderr
    assert "note: seq is fixed at 64, as asked for" in done.stdout
    assert "did you mean 'squared'?" in cli(*words, "--loss", f"{data / 'cli_nets.py'}:squar").stderr


def test_rows_without_a_sequence_are_counted_as_samples(cli: Cli, data: Path) -> None:
    """Throughput, energy, emissions and cost name the unit that the model reads: no token where there is none."""
    rows = ("--input", "input[batch,16]")
    done = cli("estimate", f"{data / 'cli_nets.py'}:Rows", "--system", "dgx-h100", "-q", *rows)
    assert done.returncode == 0, done.stderr
    assert "J/sample (" in done.stdout
    assert "including PUE" in done.stdout
    assert "kgCO2e for 1M samples" in done.stdout
    assert "token" not in done.stdout


def test_a_module_of_vectors_that_was_fed_token_ids_is_refused_with_what_to_say(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "vectors.py"
    path.write_text("from torch import nn\n\n\ndef net():\n    return nn.Linear(48, 48)\n", encoding="utf-8")
    done = cli("trace", f"{path}:net", "-q")
    assert (done.returncode, done.stdout) == (4, "")
    # One line: torch's own log of the shapes that were tried is not part of it.
    assert done.stderr.count("\n") == 1
    assert "No inputs were said, so forward was run on token ids" in done.stderr
    assert "--input 'input:bf16[batch,seq,48]' for vectors" in done.stderr
    # At one length, rows of ids are as long as a vector.
    other = tmp_path / "vectors64.py"
    other.write_text("from torch import nn\n\n\ndef net():\n    return nn.Linear(64, 64)\n", encoding="utf-8")
    assert "net multiplies token ids by its weights" in cli("trace", f"{other}:net", "-q").stderr
    assert cli("trace", f"{path}:net", "-q", "--input", "input:bf16[batch,seq,48]").returncode == 0
