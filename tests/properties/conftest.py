"""Small models with sixteen layers, lowered once a family, and plans drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from slipstick.driver import Lowered, lower
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family

MODELS = ("tiny-llama", "tiny-gpt2", "tiny-mixtral")
LAYERS = 16


@pytest.fixture(scope="session")
def deep(traced: Callable[[str], Graph]) -> Callable[[str], Graph]:
    """Return a small training graph by the name of its model, with sixteen layers."""

    def made(name: str) -> Graph:
        graph = traced(f"{name}.train")
        runs = tuple(replace(r, count=LAYERS) if r.count > 1 else r for r in graph.schedule)
        return replace(graph, schedule=runs)

    return cache(made)


@pytest.fixture(scope="session")
def lowered(deep: Callable[[str], Graph]) -> Callable[[str, Family], Lowered]:
    """Return a small model lowered for a family."""
    return cache(lambda name, family: lower(deep(name), family))
