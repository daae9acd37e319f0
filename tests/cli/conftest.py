"""The command line as a function: arguments in, exit code and both streams out; graphs cached for the session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from slipstick.cli import run

Cli = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="session")
def cache(graph_folder: Path) -> Path:
    """The graph cache of the run, filled by the first test that needs a model."""
    return graph_folder


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command given as words."""

    def call(*words: str) -> CompletedProcess[str]:
        capsys.readouterr()
        code = run(words)
        streams = capsys.readouterr()
        assert "Traceback" not in streams.err
        return CompletedProcess(words, code, streams.out, streams.err)

    return call


def pure(words: Sequence[str]) -> Sequence[str]:
    """Return flags with the pure machine, where they name no software and ask for no server."""
    return words if {"--stack", "--engine", "serve", "--plan"} & set(words) else (*words, "--stack", "none")


@pytest.fixture
def estimate(cli: Cli) -> Cli:
    """Estimate GPT-2 on the H100 machine, with more flags; the pure one where none names software."""
    return lambda *words: cli("estimate", "gpt2", "--system", "dgx-h100", "--seq", "128", *pure(words))


@pytest.fixture
def tiny(cli: Cli, data: Path) -> Cli:
    """Estimate a Llama of two layers, which tensor parallelism divides."""
    config = str(data / "configs" / "tiny-llama.json")
    return lambda *words: cli("estimate", config, "--system", "dgx-h100", "--seq", "128", *pure(words))


@pytest.fixture(scope="session")
def data() -> Path:
    return Path(__file__).parents[1] / "data"
