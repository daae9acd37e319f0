"""What a reference implementation is given: one node on one rank, with real tensors.

References compute in float64 whatever the element types of the graph, so that two ways of adding differ by rounding
alone. They read shapes off the local tensors and constants off the attributes and the recorded call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from ...ir.errors import SlipstickError
from ...ir.graph import Node, Value
from ...ir.meaning import Argument
from ...ir.placement import Shard
from ...ir.sizes.expr import Dim


class NotComputedError(SlipstickError):
    """A node that has no reference, or of which a constant was not recorded: it is listed with this reason."""


@dataclass(frozen=True)
class Call:
    """One node on one rank: local inputs (float64, int64 or bool), and the local dims of what it makes.

    `rank` and `degrees` are by mesh axis. `sources` and `results` are the values of the graph that inputs and outputs
    stand for, with their placements; `held` are the positions of this rank where its queries are not all there are;
    `sizes` are the numbers of the graph's symbols.
    """

    node: Node
    inputs: tuple[Tensor, ...]
    dims: tuple[tuple[int, ...], ...]
    rank: Mapping[str, int]
    degrees: Mapping[str, int]
    sources: tuple[Value, ...] = ()
    results: tuple[Value, ...] = ()
    held: Tensor | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    def local(self, dim: Dim) -> int:
        """Return a size as a number."""
        return dim if isinstance(dim, int) else round(float(dim.evaluate({k: float(v) for k, v in self.sizes.items()})))

    def constant(self, name: str, default: Argument = None) -> Argument:
        """Return an argument of the recorded call by its name in the operator's schema; the default where it was left.

        NotComputedError for a node that has no recorded call at all.
        """
        if self.node.meaning is None or not self.node.meaning.steps:
            raise NotComputedError(f"'{self.node.op}' of {self.node.scope or 'the top'} has no recorded call")
        return self.node.meaning.steps[0].argument(name, default)

    def number(self, name: str, default: float) -> float:
        """Return a constant that is a number."""
        found = self.constant(name, default)
        if not isinstance(found, int | float):
            raise NotComputedError(f"'{name}' of '{self.node.op}' is {found}, not a number")
        return found

    def word(self, name: str, default: str) -> str:
        """Return a constant that is a word."""
        found = self.constant(name, default)
        return found if isinstance(found, str) else default

    def shares(self, value: int, dim: int) -> int:
        """Return among how many ranks a dim of an input is cut: 1 where it is whole.

        A mean over rows, of which each rank holds some, divides by its own rows times this.
        """
        degree = 1
        for axis, placement in self.sources[value].placements:
            if isinstance(placement, Shard) and placement.dim == dim:
                degree *= self.degrees.get(axis, 1)
        return degree

    def positions(self, length: int, axis: str = "cp") -> tuple[Tensor, Tensor]:
        """Return the positions of this rank and of all ranks of an axis, in the order in which they are held.

        `length` is that of all ranks together. With balanced context parallelism rank r of c holds pieces r and
        2c - 1 - r of 2c, so that all ranks see equally many pairs under a causal mask (arXiv 2407.21783, 3.3.2).
        """
        if self.held is not None:
            return self.held, torch.arange(length)
        degree = self.degrees.get(axis, 1)
        every = zigzag(length, degree)
        own = length // degree
        start = self.rank.get(axis, 0) * own
        return every[start : start + own], every


def zigzag(length: int, degree: int) -> Tensor:
    """Return positions in the order in which ranks hold them, rank by rank.

    >>> zigzag(8, 2).tolist()
    [0, 1, 6, 7, 2, 3, 4, 5]
    """
    if degree == 1:
        return torch.arange(length)
    pieces = torch.arange(length).chunk(2 * degree)
    return torch.cat([torch.cat((pieces[r], pieces[2 * degree - 1 - r])) for r in range(degree)])


Reference: TypeAlias = Callable[[Call], tuple[Tensor, ...]]

__all__ = ["Call", "NotComputedError", "Reference", "zigzag"]
