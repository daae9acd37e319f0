"""The recorded graphs that the tests of passes share."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstick.frontend import load
from slipstick.ir.graph import Graph

CONFIGS = Path(__file__).parents[1] / "data" / "configs"


@pytest.fixture(scope="session")
def tiny_llama() -> Graph:
    """Two layers, hidden 64, 4 heads, 2 key-value heads, MLP 96, vocabulary 160."""
    return load(str(CONFIGS / "tiny-llama.json"))


@pytest.fixture(scope="session")
def tiny_gpt2() -> Graph:
    return load(str(CONFIGS / "tiny-gpt2.json"))


@pytest.fixture(scope="session")
def tiny_mixtral() -> Graph:
    return load(str(CONFIGS / "tiny-mixtral.json"))


@pytest.fixture(scope="session")
def tiny_deepseek() -> Graph:
    """Four layers, the first dense; latent attention with ranks of 24 and 16."""
    return load(str(CONFIGS / "tiny-deepseek.json"))


@pytest.fixture(scope="session")
def tiny_gemma3n() -> Graph:
    """Six layers that do not fold; the last two read keys and values of the two before them."""
    return load(str(CONFIGS / "tiny-gemma3n.json"))


@pytest.fixture(scope="session")
def llama_8b() -> Graph:
    return load("llama-3.1-8b")


@pytest.fixture(params=["tiny_llama", "tiny_gpt2", "tiny_mixtral"])
def tiny(request: pytest.FixtureRequest) -> Graph:
    """Each of the small graphs in turn: dense and gated, with biases and a packed projection, with experts."""
    graph = request.getfixturevalue(request.param)
    assert isinstance(graph, Graph)
    return graph
