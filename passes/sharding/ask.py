"""What a sharding rule sees and says, along one mesh axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ...ir.graph import Phase
from ...ir.ops import OpCall
from ...ir.placement import PARTIAL, REPLICATE, Partial, Placement, Replicate, Shard


@dataclass(frozen=True, slots=True)
class Ask:
    """One call along one axis: global types, how the inputs lie, which of them are parameters.

    `forward` holds the input placements of the forward node that a backward node belongs to. `reduced` says, input by
    input, what a partial sum is turned into when it must be whole: sharded over the sequence under sequence
    parallelism, else replicated. `axis` is the mesh axis, `cp` the
    method of context parallelism. `own_tokens` says that over `tp` each rank routes the tokens it holds. `all_tokens`
    says that experts get the tokens of all ranks of the axis, and `own_rows` that each takes out of them the rows of
    its own experts. `cut_again` says that what a slice takes out is several tensors side by side itself.
    """

    axis: str
    call: OpCall
    given: tuple[Placement, ...]
    is_param: tuple[bool, ...]
    reduced: tuple[Placement, ...]
    phase: Phase
    forward: tuple[Placement, ...] = ()
    cp: str = "none"
    own_tokens: bool = False
    all_tokens: bool = False
    own_rows: bool = False
    cut_again: bool = False

    @property
    def num_outputs(self) -> int:
        """Outputs of the call."""
        return len(self.call.outputs)

    def whole(self, index: int) -> Placement:
        """Return how an input lies once a partial sum is made whole."""
        return self.reduced[index] if isinstance(self.given[index], Partial) else self.given[index]

    def rank(self, index: int) -> int:
        """Dims of an input."""
        return self.call.inputs[index].rank


@dataclass(frozen=True, slots=True)
class Answer:
    """How the inputs must lie and how the outputs then do."""

    inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]


Rule: TypeAlias = Callable[[Ask], Answer]


def replicate_all(ask: Ask) -> Answer:
    """Everything whole on every rank: always right, never cheap."""
    return Answer((REPLICATE,) * len(ask.given), (REPLICATE,) * ask.num_outputs)


def shard_dim(placement: Placement) -> int | None:
    """Return the sharded dim, None when there is none."""
    return placement.dim if isinstance(placement, Shard) else None


__all__ = [
    "PARTIAL", "REPLICATE", "Answer", "Ask", "Partial", "Placement", "Replicate", "Rule", "Shard", "replicate_all",
    "shard_dim",
]  # fmt: skip
