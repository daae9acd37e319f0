"""What a sharding rule sees and says, along one mesh axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...ir.graph import Phase
from ...ir.ops import OpCall
from ...ir.placement import PARTIAL, REPLICATE, Partial, Placement, Replicate, Shard
from ...ir.sizes.expr import Dim, Expr

# Each rank of these axes has samples of its own.
DATA_AXES: tuple[str, ...] = ("dp", "fsdp", "ep")


@dataclass(frozen=True, slots=True)
class Ask:
    """One call along one axis: global types, how the inputs lie, which of them are parameters.

    `forward` holds the input placements of the forward node that a backward node belongs to. `reduced` says, input by
    input, what a partial sum is turned into when it must be whole: sharded over the sequence under sequence
    parallelism, else replicated. `axis` is the mesh axis, `cp` the
    method of context parallelism. `own_tokens` says that over `tp` each rank routes the tokens it holds. `all_tokens`
    says that experts get the tokens of all ranks of the axis, and `own_rows` that each takes out of them the rows of
    its own experts. `cut_again` says that what a slice takes out is several tensors side by side itself.
    `stacked` says of a reshape that tensors side by side in one dim are so in the other, as columns and as heads.
    `on_all` says of each tensor taken out of a packed dim, or put into it, whether it is one head that all ranks hold.
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
    on_all: tuple[bool, ...] = ()
    stacked: bool = False

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


def per_replica(ask: Ask) -> Answer:
    """Each replica runs the op on the samples that it has: nothing of the batch crosses an axis of data parallelism.

    Dims of a result that have the replicas' factor are sharded. A result without one is the replica's own; in the
    backward phase it is a gradient of what all replicas have, to which each adds its part.
    """
    wants = tuple(p if isinstance(p := ask.whole(i), Shard) else REPLICATE for i in range(len(ask.given)))
    found = (samples_dim(t.dims, ask.axis) for t in ask.call.outputs)
    rest: Placement = PARTIAL if ask.phase is Phase.BACKWARD else REPLICATE
    return Answer(wants, tuple(rest if dim is None else Shard(dim) for dim in found))


def makes_own_samples(ask: Ask, found: Answer) -> Answer:
    """Results with samples that are made of what has none (a table repeated for each) are made where they belong."""
    kinds = ask.call.inputs
    if ask.axis not in DATA_AXES or ask.all_tokens or any(samples_dim(t.dims, ask.axis) is not None for t in kinds):
        return found
    dims = [samples_dim(t.dims, ask.axis) for t in ask.call.outputs]
    if all(dim is None for dim in dims) or any(p != REPLICATE for p in (*found.inputs, *found.outputs)):
        return found
    return Answer(found.inputs, tuple(REPLICATE if dim is None else Shard(dim) for dim in dims))


def samples_dim(dims: Sequence[Dim], axis: str) -> int | None:
    """Return the dim that holds the samples of all ranks of an axis of data parallelism, None where there is none."""
    return next((i for i, d in enumerate(dims) if isinstance(d, Expr) and axis in d.symbols), None)


def shares_samples(ask: Ask) -> bool:
    """Whether samples are dealt out over the axis and an input has those of one replica only."""
    if ask.axis not in DATA_AXES or ask.all_tokens:
        return False
    pairs = zip(ask.given, ask.call.inputs, strict=True)
    return any(isinstance(p, Shard) and not p.routed and samples_dim(t.dims, ask.axis) is not None for p, t in pairs)


def shard_dim(placement: Placement) -> int | None:
    """Return the sharded dim, None when there is none."""
    return placement.dim if isinstance(placement, Shard) else None


__all__ = [
    "DATA_AXES", "PARTIAL", "REPLICATE", "Answer", "Ask", "Partial", "Placement", "Replicate", "Rule", "Shard",
    "makes_own_samples", "per_replica", "replicate_all", "samples_dim", "shard_dim", "shares_samples",
]  # fmt: skip
