"""Blocks into pieces to be worked on, in which order, and what to do with a piece that fails: again, halves, a line."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from ...ir.errors import InternalError
from ...ir.records import dataclass
from ..block import Block, Found, joined
from .order import Untouched

# Once may be chance: a machine that is out of memory, a hand that kills. A single candidate gets two tries of its own.
_TRIES = 2
# Beyond these the fault is not in single candidates, and to look for each of them would take for ever.
MAX_CRASHED = 1000
MAX_LOST_IN_A_ROW = 50


@dataclass(slots=True)
class _Cut:
    """A block in pieces: how many are still out, and what was found in the others, by their first candidates."""

    num_out: int
    found: list[tuple[int, Found]]


class Pieces:
    """All that is left to do of a search; a piece is a block, or a part of one that was cut in halves.

    A piece whose worker died or failed is suspect and comes again. Then it is cut in halves, and these again, until
    single candidates remain that do it: they become lines in `Found.crashed`. Pieces that were only lost on the
    way (`back`) are not blamed. What is found in the pieces of a block is joined in the order of candidates.

    A worker has a suspect for itself: what it did just before may be done and its answer lost with it, so that of two
    pieces of one worker the wrong one is blamed.
    """

    def __init__(self, blocks: Iterable[Block], columns: Sequence[str]) -> None:
        """Take the blocks, each number once, and the names of the columns that are found in them."""
        self._waiting: dict[int, deque[Block]] = {}
        for block in blocks:
            self._waiting.setdefault(block.part, deque()).append(block)
        self._parts = tuple(self._waiting)
        self._places = {part: place for place, part in enumerate(self._parts)}
        self._untouched = Untouched(len(self._parts))
        self._begun: set[int] = set()
        self._columns = tuple(columns)
        self._failures: dict[Block, int] = {}
        self._suspects: deque[Block] = deque()
        self._cuts: dict[int, _Cut] = {}
        self._num_crashed = 0
        self._lost_in_a_row = 0
        self.num_waiting = sum(map(len, self._waiting.values()))
        self.num_blocks_left = self.num_waiting

    @property
    def has_suspects(self) -> bool:
        """Whether suspects wait for a worker that has nothing else to do."""
        return bool(self._suspects)

    def is_suspect(self, piece: Block) -> bool:
        """Whether nothing else may be given to the worker of a piece until it has answered."""
        return piece in self._failures

    def next(self, part: int | None, is_idle: bool = True) -> Block | None:
        """Return the next piece for a worker that knows a part: one of that, else one of a part that no one has begun.

        That is the part behind its own if it can be, which often shares a family with it. Only when all are begun does
        a worker help with a part of others. An idle worker gets suspects first, no other gets any. None when no piece
        waits for it.
        """
        if self._suspects and is_idle:
            self.num_waiting -= 1
            return self._suspects.popleft()
        if part not in self._waiting:
            part = self._other_part(part)
        if part is None:
            return None
        pieces = self._waiting[part]
        piece = pieces.popleft()
        self._begun.add(part)
        self.num_waiting -= 1
        if not pieces:
            del self._waiting[part]
            self._begun.discard(part)
        return piece

    def more(self, part: int) -> Block | None:
        """Return the next piece of a part; None when none waits, whatever does elsewhere."""
        return self.next(part, is_idle=False) if part in self._waiting else None

    def back(self, piece: Block) -> None:
        """Take a piece back that its worker had not begun when it died: it comes again before others of its part."""
        self.num_waiting += 1
        if piece in self._failures:
            self._suspects.appendleft(piece)
            return
        if piece.part not in self._waiting:
            self._waiting[piece.part] = deque()
            self._begun.add(piece.part)
        self._waiting[piece.part].appendleft(piece)

    def done(self, piece: Block, found: Found) -> Found | None:
        """Take what was found in a piece; return what its whole block found, once no piece of it is out."""
        self._lost_in_a_row = 0
        return self._settled(piece, found)

    def lost(self, pieces: Sequence[Block], why: str) -> Found | None:
        """Take pieces one of which a worker died of; return what a block found if this was the last of it.

        Raises:
            InternalError: worker after worker died, and none did anything in between.
        """
        self._lost_in_a_row += 1
        if self._lost_in_a_row > MAX_LOST_IN_A_ROW:
            raise InternalError(
                f"{self._lost_in_a_row} workers died one after another, the last one ({why}) on {_words(pieces[0])}; "
                "this is no fault of single candidates: is there memory enough for so many workers?"
            )
        found = [self.failed(piece, why) for piece in reversed(pieces)]
        return found[0]

    def overdue(self, piece: Block, limit_s: float) -> Found | None:
        """Take a piece that took longer than it may: chance does not do that, so that it gets no second try.

        Returns:
            What its block found if this was the last of it.
        """
        self._failures[piece] = _TRIES - 1
        return self.failed(piece, f"no answer in {limit_s:g} s")

    def failed(self, piece: Block, why: str) -> Found | None:
        """Take a piece that failed, and why; return what its block found if this was the last of it.

        Raises:
            InternalError: so many candidates failed by now that it is no fault of single ones.
        """
        failures = self._failures.pop(piece, 0) + 1
        if failures < _TRIES:
            self._failures[piece] = failures
            self.back(piece)
            return None
        if len(piece) > 1:
            self._halve(piece)
            return None
        return self._settled(piece, self._crashed(piece, why))

    def _other_part(self, part: int | None) -> int | None:
        place = self._untouched.take(None if part is None else self._places.get(part))
        if place is not None:
            return self._parts[place]
        return max(self._begun, key=lambda part: len(self._waiting[part]), default=None)

    def _halve(self, piece: Block) -> None:
        self._cuts.setdefault(piece.number, _Cut(1, [])).num_out += 1
        for half in reversed(piece.halves()):
            # One of them did it: a half that fails is the one. A single candidate has two tries of its own, though.
            self._failures[half] = _TRIES - 1 if len(half) > 1 else 0
            self.back(half)

    def _crashed(self, piece: Block, why: str) -> Found:
        line = f"{_words(piece)}: {why}"
        self._num_crashed += 1
        if self._num_crashed > MAX_CRASHED:
            raise InternalError(
                f"more than {MAX_CRASHED} candidates failed or killed their worker, the last one so: {line}; "
                "this is no fault of single candidates"
            )
        # Whether it was legal nobody lived to tell.
        return Found(piece.number, {}, 0, {name: np.zeros(0) for name in self._columns}, (line,))

    def _settled(self, piece: Block, found: Found) -> Found | None:
        cut = self._cuts.get(piece.number)
        self._failures.pop(piece, None)
        if cut is not None:
            cut.found.append((piece.first, found))
            cut.num_out -= 1
            if cut.num_out:
                return None
            del self._cuts[piece.number]
            found = joined([part for _, part in sorted(cut.found, key=lambda pair: pair[0])])
        self.num_blocks_left -= 1
        return found


def _words(piece: Block) -> str:
    """Return how people call a piece.

    >>> _words(Block(0, 3, 17, 18)), _words(Block(0, 3, 16, 20))
    ('candidate 17 of part 3', 'candidates 16 to 19 of part 3')
    """
    if len(piece) == 1:
        return f"candidate {piece.first} of part {piece.part}"
    return f"candidates {piece.first} to {piece.last - 1} of part {piece.part}"
