"""A graph that was read from a file: its nodes are interpreted, one by one, and never printed as code.

A torch.fx GraphModule writes the source of its graph, with the names that the graph holds, and executes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from torch import fx, nn

from ....ir.errors import NotUnderstoodError
from .targets import is_checked


class ReadGraph(nn.Module):
    """The nodes of a graph, and as submodules the graphs that are arguments of its nodes."""

    graph: fx.Graph

    def __init__(self) -> None:
        """Begin an empty graph."""
        super().__init__()
        self.graph = fx.Graph()

    def forward(self, *args: object) -> object:
        """Run the graph on real tensors, as the mask of an attention is asked what it hides."""
        return _OnTensors(self, graph=self.graph).run(*args)


class _OnTensors(fx.Interpreter):
    """Runs operators that check their arguments."""

    def call_function(self, target: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
        """Run one call."""
        if not callable(target) or not is_checked(target):
            raise NotUnderstoodError(f"'{target}' is not run on tensors of a file")
        return target(*args, **kwargs)


def is_graph(value: object) -> TypeGuard[fx.GraphModule | ReadGraph]:
    """Whether a value is a graph that can be run: a live one, or one of a file."""
    return isinstance(value, fx.GraphModule | ReadGraph)


__all__ = ["ReadGraph", "is_graph"]
