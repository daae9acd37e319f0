"""Blocks of candidates whose plans are one table: families that share a graph and differ in their schedule at most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...ir.plan import Family, PlanTable
from ...ir.records import dataclass
from ..block import Array, Block, Found
from .degrees import Counts, plan_table
from .space import PlanSpace

Index = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Piece:
    """Candidates of a block, all or some, with their family."""

    block: Block
    family: Family
    numbers: Counts


@dataclass(frozen=True, slots=True)
class BlockPieces:
    """Pieces of blocks that are worked on as one table, and what is found given back piece by piece.

    A plan is the same to the last bit in any table. So what does not depend on the schedule is worked out once, and
    what costs as much for a few plans as for many is done once for all.
    """

    pieces: Sequence[Piece]

    def __len__(self) -> int:
        """Number of pieces."""
        return len(self.pieces)

    def alone(self) -> Iterator[BlockPieces]:
        """Yield each piece as a table of its own."""
        return (BlockPieces([piece]) for piece in self.pieces)

    def table(self, space: PlanSpace) -> PlanTable:
        """Return all candidates as plans, piece behind piece."""
        return PlanTable.joined(
            [
                plan_table(one.family, one.numbers, space.seq_len, space.kv_len, space.load(one.family))
                for one in self.pieces
            ]
        )

    @property
    def numbers(self) -> Counts:
        """The numbers of all candidates."""
        return np.concatenate([one.numbers for one in self.pieces], axis=1)

    @property
    def which(self) -> Index:
        """The piece of each candidate."""
        return np.repeat(np.arange(len(self)), [one.numbers.shape[1] for one in self.pieces])

    def counted(self, candidates: NDArray[np.bool_], which: Index) -> list[int]:
        """Return how many of some candidates each piece has; `which` says the piece of each."""
        return [int(count) for count in np.bincount(which[candidates], minlength=len(self))]

    def found(
        self,
        pruned: Mapping[str, Sequence[int]],
        num_legal: Sequence[int],
        columns: Mapping[str, Array],
        which: Index,
    ) -> list[Found]:
        """Return what is found in each piece: candidates left out, by the reason, and rows, of the pieces `which`."""
        ends = np.searchsorted(which, np.arange(1, len(self)))
        split = {name: np.split(column, ends) for name, column in columns.items()}
        return [
            Found(
                piece.block.number,
                {reason: num[k] for reason, num in pruned.items() if num[k]},
                num_legal[k],
                {name: parts[k] for name, parts in split.items()},
            )
            for k, piece in enumerate(self.pieces)
        ]
