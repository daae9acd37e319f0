"""A pool of workers through the pieces of a search: who gets what, who is replaced, what comes back."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import field
from typing import Protocol

from ...ir.errors import InternalError
from ...ir.records import dataclass
from ..block import Block, Found
from .messages import Done, Failed, Gone, Ready, Refused, Report
from .retry import Pieces

# One to work on, and one at hand for when it is done; more would only fill memory with what is found.
_AT_HAND = 2
_MAX_FALSE_STARTS = 3


class WorkerPool(Protocol):
    """Workers by number, each with a queue of its own: it answers pieces in the order in which they were given."""

    def size(self) -> int:
        """Return how many workers there should be now."""
        ...

    def spawn(self) -> int:
        """Start a worker and return its number, which none had before; it says when it is ready."""
        ...

    def give(self, number: int, piece: Block) -> None:
        """Put a piece at the end of a worker's queue; no error if it is dying, which a later poll reports."""
        ...

    def poll(self) -> Sequence[tuple[int, Report]]:
        """Wait for workers to say something, not for ever; a lost worker reports no more."""
        ...

    def shutdown(self) -> None:
        """End every worker at once, whatever it does."""
        ...


@dataclass(slots=True)
class _Place:
    """A worker as its pool sees it: what it was given and has not answered, and the part of the space it knows."""

    is_ready: bool = False
    part: int | None = None
    given: deque[Block] = field(default_factory=deque)


def work_through(pool: WorkerPool, pieces: Pieces) -> Generator[Found]:
    """Yield what is found in each block, as it comes; the pool is shut down at the end, or when closed.

    Raises:
        InternalError: workers die before they are ready, or too many of them in any other way.
        SlipstickError: what a worker cannot do anything about, such as a model that it cannot read.
    """
    dispatch = _Dispatch(pool, pieces)
    try:
        dispatch.fill()
        while pieces.num_blocks_left:
            for number, report in pool.poll():
                found = dispatch.take(number, report)
                # Before the one who asked has time for what was found: no worker idles.
                dispatch.fill()
                if found is not None:
                    yield found
            dispatch.fill()
    finally:
        pool.shutdown()


class _Dispatch:
    """Gives pieces to those who are ready and takes what they say."""

    def __init__(self, pool: WorkerPool, pieces: Pieces) -> None:
        self._pool = pool
        self._pieces = pieces
        self._places: dict[int, _Place] = {}
        self._false_starts = 0

    def fill(self) -> None:
        """Hand out what waits, round by round so that all get one before any gets two; spawn more if some is left."""
        for num_given in range(_AT_HAND):
            for number, place in self._places.items():
                if place.is_ready and len(place.given) == num_given and self._may_have_more(place):
                    self._give(number, place)
        num_starting = sum(not place.is_ready for place in self._places.values())
        for _ in range(min(self._pool.size() - len(self._places), self._pieces.num_waiting - num_starting)):
            self._places[self._pool.spawn()] = _Place()

    def take(self, number: int, report: Report) -> Found | None:
        """Take a report; return what a block found, if that is now known."""
        place = self._places[number]
        match report:
            case Ready():
                place.is_ready, self._false_starts = True, 0
            case Done(found):
                return self._pieces.done(place.given.popleft(), found)
            case Failed(why):
                return self._pieces.failed(place.given.popleft(), why)
            case Refused(error):
                raise error
            case Gone(why):
                return self._replace(number, why)
        return None

    def _may_have_more(self, place: _Place) -> bool:
        """Whether a worker may have another piece: not behind a suspect, and not while one waits for an idle worker."""
        return not place.given or not (self._pieces.has_suspects or self._pieces.is_suspect(place.given[0]))

    def _give(self, number: int, place: _Place) -> None:
        piece = self._pieces.next(place.part, is_idle=not place.given)
        if piece is not None:
            place.part = piece.part
            place.given.append(piece)
            self._pool.give(number, piece)

    def _replace(self, number: int, why: str) -> Found | None:
        """Take away a lost worker: its first piece may have done it, what lay behind was not begun."""
        place = self._places.pop(number)
        if not place.is_ready:
            self._false_starts += 1
            if self._false_starts == _MAX_FALSE_STARTS:
                raise InternalError(
                    f"{_MAX_FALSE_STARTS} workers died one after another before they were ready, the last one: {why}; "
                    "if memory is short, fewer workers need less"
                )
        for piece in list(place.given)[:0:-1]:
            self._pieces.back(piece)
        return self._pieces.lost(place.given[0], why) if place.given else None
