"""What `torch.utils.checkpoint` runs a second time: which forward operators it repeats, and in which module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias, cast

import torch
import torch.utils.checkpoint
from torch import fx

from ...ir.graph import Phase
from .adapter import swapped

Run: TypeAlias = Callable[..., object]


def place_again(graph: fx.Graph) -> None:
    """Give operators that backward runs again the scope of those they repeat, and the link to them.

    A run of them repeats the operators of a piece of the forward pass in order, or the first of them: torch stops where
    nothing more is needed. Of pieces that are alike the one that ran last is the first to be repeated.
    """
    forward = [n for n in graph.nodes if n.meta["phase"] is Phase.FORWARD and n.op != "placeholder"]
    free = len(forward)
    for run in _runs(graph):
        start = _repeated(run, forward, free)
        if start is None:
            start = _repeated(run, forward, len(forward))
        if start is None:
            continue
        free = start
        for node, first in zip(run, forward[start:], strict=False):
            node.meta.update(forward=first, scope=first.meta["scope"])


def _runs(graph: fx.Graph) -> Iterator[list[fx.Node]]:
    run: list[fx.Node] = []
    for node in graph.nodes:
        again = node.meta["phase"] is Phase.RECOMPUTE
        if run and not again and node.op != "placeholder":
            yield run
            run = []
        if again:
            run.append(node)
    if run:
        yield run


def _repeated(run: Sequence[fx.Node], forward: Sequence[fx.Node], end: int) -> int | None:
    """Where the last piece of the forward pass before `end` begins that is what a run repeats."""
    for start in range(end - len(run), -1, -1):
        if all(_is_again(node, first) for node, first in zip(run, forward[start:], strict=False)):
            return start
    return None


def _is_again(node: fx.Node, first: fx.Node) -> bool:
    scope, of_first = (str(n.meta["scope"]).partition("@")[0] for n in (node, first))  # without the number of the call
    return node.target == first.target and scope in ("", of_first)


class _Whole:
    """Stands for checkpoints that run backward inside of backward: the same work, all of the forward pass again."""

    @staticmethod
    def apply(function: Run, preserve: bool, *args: object) -> object:
        return torch.utils.checkpoint.checkpoint(
            function, *args, use_reentrant=False, preserve_rng_state=preserve, early_stop=False
        )


def one_kind_of_checkpoint() -> AbstractContextManager[None]:
    """Let all checkpoints be of the kind whose backward can be recorded."""
    return swapped(torch.utils.checkpoint, "CheckpointFunction", _Whole)


def checkpoints_followed(again: Callable[[], AbstractContextManager[None]]) -> AbstractContextManager[None]:
    """Run under `again` what checkpoints repeat."""
    of_torch = cast("Run", torch.utils.checkpoint._checkpoint_without_reentrant_generator)

    def generator(function: Run, *args: object, **options: object) -> object:
        """Get the function for its repetitions alone: torch has run it the first time itself."""

        def repeat(*given: object, **named: object) -> object:
            with again():
                return function(*given, **named)

        return of_torch(repeat, *args, **options)

    return swapped(torch.utils.checkpoint, "_checkpoint_without_reentrant_generator", generator)
