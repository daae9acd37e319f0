"""What the frontend's tests share: small configs, modules as users write them, sums over a graph."""

from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="session")
def configs() -> Path:
    """The folder of small `config.json` files."""
    return DATA / "configs"


@pytest.fixture(scope="session")
def nets() -> str:
    """The path of a file of factories, as a user would name it."""
    return str(DATA / "nets.py")
