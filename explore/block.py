"""What a search works on and gives back at a time: blocks of candidates, and what was found in one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from ..ir.records import dataclass

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbouring candidates of one part of a space, worked on at once.

    Attributes:
        number: its place in the order of the space, from 0; what the ledger knows it by.
        part: which part of the space; what a part is, is its job's to say (a family of plans on one system).
        first: its first candidate in the part.
        last: behind its last.
    """

    number: int
    part: int
    first: int
    last: int

    def __len__(self) -> int:
        """Number of candidates."""
        return self.last - self.first

    def halves(self) -> tuple[Block, Block]:
        """Return both halves of a block of two candidates or more, to find the one that breaks a worker.

        >>> Block(4, 0, 10, 13).halves()
        (Block(number=4, part=0, first=10, last=11), Block(number=4, part=0, first=11, last=13))
        """
        middle = (self.first + self.last) // 2
        return (
            Block(self.number, self.part, self.first, middle),
            Block(self.number, self.part, middle, self.last),
        )


@dataclass(frozen=True, slots=True)
class Stored:
    """Where all rows of a block are kept: a shard of a ledger by its file, and what it says of the block."""

    shard: str
    head: tuple[int | str | bytes, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """What was found in a block: how many candidates went which way, and those that count as columns.

    Attributes:
        number: of the block.
        pruned: candidates that were not evaluated, by the reason as people read it.
        num_legal: candidates that are legal by divisibility; the others are in `pruned` as well.
        columns: a number a row of each column, for every plan that was evaluated and kept, in the order of candidates.
        crashed: candidates that killed their worker or failed in it, and how, in words.
        places: of each row among all that were kept, where some of these were left out; None where all are here.
        left_out: rows that were left out.
        stored: where a worker keeps all of them; None where nobody does yet.
    """

    number: int
    pruned: Mapping[str, int]
    num_legal: int
    columns: Mapping[str, Array]
    crashed: tuple[str, ...] = field(default=())
    places: Array | None = None
    left_out: int = 0
    stored: Stored | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Travel as one table: thirty columns of a few rows each would take longer to pack than to find."""
        table = np.array(list(self.columns.values()), dtype=np.float64)
        before = (self.number, self.pruned, self.num_legal)
        return _arrived, (before, tuple(self.columns), table, (self.crashed, self.places, self.left_out, self.stored))

    @property
    def num_rows(self) -> int:
        """Number of plans that are here as rows."""
        return len(next(iter(self.columns.values()))) if self.columns else 0

    @property
    def num_kept(self) -> int:
        """Number of plans evaluated and kept."""
        return self.num_rows + self.left_out

    @property
    def num_candidates(self) -> int:
        """Number of candidates of the block: each is pruned, kept, or crashed its worker."""
        return sum(self.pruned.values()) + self.num_kept + len(self.crashed)


def _arrived(
    before: tuple[int, Mapping[str, int], int],
    names: tuple[str, ...],
    table: NDArray[np.float64],
    behind: tuple[tuple[str, ...], Array | None, int, Stored | None],
) -> Found:
    number, pruned, num_legal = before
    crashed, places, left_out, stored = behind
    columns = dict(zip(names, table, strict=True))
    return Found(number, pruned, num_legal, columns, crashed, places, left_out, stored)


def joined(parts: Sequence[Found]) -> Found:
    """Put what was found in the pieces of one block together, in the order of candidates; all have all their rows."""
    if len(parts) == 1:
        return parts[0]
    names = list(dict.fromkeys(name for part in parts for name in part.columns))
    kept = [part for part in parts if part.num_rows]
    pruned = sum((Counter(part.pruned) for part in parts), Counter[str]())
    return Found(
        parts[0].number,
        dict(pruned),
        sum(part.num_legal for part in parts),
        {name: np.concatenate([part.columns[name] for part in kept]) if kept else np.zeros(0) for name in names},
        tuple(line for part in parts for line in part.crashed),
    )


def cut(part: int, num_candidates: int, at_once: int, number: int) -> Iterator[Block]:
    """Cut a part of so many candidates into blocks, numbered from `number` on.

    >>> [len(block) for block in cut(0, 5, 2, 0)]
    [2, 2, 1]
    """
    for first in range(0, num_candidates, at_once):
        yield Block(number + first // at_once, part, first, min(first + at_once, num_candidates))
