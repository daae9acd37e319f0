"""Every verb refuses software that does not run the phase, with what does."""

from __future__ import annotations

import pytest

from slipstick.cli import run


@pytest.mark.parametrize(
    "words",
    [
        ("estimate", "gpt2", "--engine", "vllm"),
        ("estimate", "gpt2", "--stack", "vllm"),
        ("estimate", "gpt2", "--stack", "nanotron", "--phase", "decode"),
        ("estimate", "gpt2", "--stack", "nanotron", "--phase", "serve", "--isl", "64", "--osl", "8"),
        ("search", "gpt2", "--gbs", "64", "--stack", "sglang"),
        ("recompute", "gpt2", "--gbs", "64", "--stack", "vllm"),
        ("export", "gpt2", "--to", "megatron", "--stack", "vllm"),
    ],
)
def test_a_phase_that_the_software_does_not_run_is_refused(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code = run([*words, "--system", "dgx-h100", "--gpus", "8"])
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert " runs " in said.err
    assert "leave --" in said.err


@pytest.mark.parametrize("phase", ["train", "decode"])
def test_the_pure_machine_runs_all(phase: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("estimate", "gpt2", "--stack", "default", "--system", "dgx-h100", "--phase", phase)
    assert run([*words, "--seq", "128", "--no-sensitivity", "-q"]) == 0, capsys.readouterr().err
