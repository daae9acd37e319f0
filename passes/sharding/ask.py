"""What a sharding rule sees and says, along one mesh axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from ...ir.graph import Phase
from ...ir.ops import OpCall
from ...ir.ops.index_map import SAMPLE_AXES, SEQUENCE_AXES
from ...ir.placement import PARTIAL, REPLICATE, Partial, Placement, Replicate, Shard
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, Expr

# Samples of one rank of them.
_OF_ONE = "mbs"


@dataclass(frozen=True, slots=True)
class Ask:
    """One call along one axis: global types, how the inputs lie, which of them are parameters.

    `forward` holds the input placements of the forward node that a backward node belongs to. `reduced` says, input by
    input, what a partial sum is turned into when it must be whole: sharded over the sequence under sequence
    parallelism, else replicated. `axis` is the mesh axis, `cp` the method of context parallelism. `own_tokens` says
    that over `tp` each rank routes the tokens it holds, `all_tokens` that experts get the tokens of all ranks of the
    axis. `cut_again` says that what a slice takes out is several tensors side by side itself. `stacked` says of a
    reshape that tensors side by side in one dim are so in the other, as columns and as heads. `on_all` says of each
    tensor taken out of a packed dim, or put into it, whether it is one head that all ranks hold.
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
    return Answer(wants, tuple(_made(ask, t.dims) for t in ask.call.outputs))


def _made(ask: Ask, dims: Sequence[Dim]) -> Placement:
    samples = samples_dim(dims, ask.axis)
    if samples is not None:
        return Shard(samples)
    is_part = ask.phase is Phase.BACKWARD and own_dim(dims, ask.axis) is None
    return PARTIAL if is_part else REPLICATE


def of_own(ask: Ask, rule: Rule) -> Answer:
    """Each replica computes with numbers of its own: what counts its samples alone lies whole on it, and differs.

    A sum over such numbers is a part of that over all replicas, as the rule says of numbers that are distributed.
    """
    own = (own_dim(t.dims, ask.axis) for t in ask.call.inputs)
    dealt = tuple(p if dim is None else Shard(dim) for p, dim in zip(ask.given, own, strict=True))
    found = per_replica(ask)
    sums = [isinstance(p, Partial) for p in rule(replace(ask, given=dealt)).outputs]
    counts = [
        isinstance(p, Shard) or own_dim(t.dims, ask.axis) is not None
        for p, t in zip(found.outputs, ask.call.outputs, strict=True)
    ]
    lies = zip(found.outputs, sums, counts, strict=True)
    return Answer(found.inputs, tuple(PARTIAL if is_sum and not counted else p for p, is_sum, counted in lies))


def makes_own_samples(ask: Ask, found: Answer) -> Answer:
    """Results with samples that are made of what has none (a table repeated for each) are made where they belong."""
    kinds = ask.call.inputs
    if ask.axis not in SAMPLE_AXES or ask.all_tokens or any(samples_dim(t.dims, ask.axis) is not None for t in kinds):
        return found
    dims = [samples_dim(t.dims, ask.axis) for t in ask.call.outputs]
    if all(dim is None for dim in dims) or any(p != REPLICATE for p in (*found.inputs, *found.outputs)):
        return found
    return Answer(found.inputs, tuple(REPLICATE if dim is None else Shard(dim) for dim in dims))


def samples_dim(dims: Sequence[Dim], axis: str) -> int | None:
    """Return the dim that holds the samples of all ranks of an axis of data parallelism, None where there is none."""
    return next((i for i, d in enumerate(dims) if isinstance(d, Expr) and axis in d.symbols), None)


def own_dim(dims: Sequence[Dim], axis: str) -> int | None:
    """Return the dim that holds samples of one rank of an axis alone, None where there is none."""
    return next(
        (i for i, d in enumerate(dims) if isinstance(d, Expr) and _OF_ONE in d.symbols and axis not in d.symbols), None
    )


def has_own(ask: Ask) -> bool:
    """Whether an axis distributes samples and something in the call has those of one rank alone."""
    if ask.axis not in SAMPLE_AXES or ask.all_tokens:
        return False
    return any(own_dim(t.dims, ask.axis) is not None for t in (*ask.call.inputs, *ask.call.outputs))


def shares_samples(ask: Ask) -> bool:
    """Whether samples are distributed over the axis and an input has those of one replica only."""
    if ask.axis not in SAMPLE_AXES or ask.all_tokens:
        return False
    pairs = zip(ask.given, ask.call.inputs, strict=True)
    return any(isinstance(p, Shard) and not p.routed and samples_dim(t.dims, ask.axis) is not None for p, t in pairs)


def has_batch(size: Dim) -> bool:
    """Whether a size grows with the samples of a rank."""
    return isinstance(size, Expr) and _OF_ONE in size.symbols


def is_alike(axis: str, have: Placement, want: Placement) -> bool:
    """Whether nothing is to be converted; samples of a replica are its own, packed among those of others or not."""
    if axis not in SAMPLE_AXES or have == want or not isinstance(have, Shard) or not isinstance(want, Shard):
        return have == want
    return have == replace(want, packed=have.packed)


__all__ = [
    "PARTIAL",
    "REPLICATE",
    "SAMPLE_AXES",
    "SEQUENCE_AXES",
    "Answer",
    "Ask",
    "Partial",
    "Placement",
    "Replicate",
    "Rule",
    "Shard",
    "has_batch",
    "has_own",
    "is_alike",
    "makes_own_samples",
    "of_own",
    "own_dim",
    "per_replica",
    "replicate_all",
    "samples_dim",
    "shares_samples",
]
