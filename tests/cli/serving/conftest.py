"""A small server on one GPU, and its answer as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..conftest import Cli


@pytest.fixture
def serve(cli: Cli, data: Path) -> Cli:
    """Serve a Llama of two layers on one GPU."""
    config = str(data / "configs" / "tiny-llama.json")
    return lambda *words: cli("estimate", config, "--system", "dgx-h100", "--phase", "serve", *words)


def report(serve: Cli, *words: str) -> dict[str, dict[str, float]]:
    done = serve("--format", "json", *words)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, float]] = json.loads(done.stdout)
    return found
