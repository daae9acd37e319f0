"""A pool of workers through the pieces of a search: who gets what, who is replaced, what comes back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import field
from time import monotonic
from typing import Protocol

from ...ir.errors import ClusterLostError, InternalError
from ...ir.records import dataclass
from ..block import Block, Found
from ..job import News
from .messages import Done, Errand, Failed, Gone, Ready, RefusedPiece, Report
from .retry import Pieces

# One errand to work on, and one at hand for when it is done; more would only fill memory with what is found.
_AT_HAND = 2
# Pieces of one errand: what takes a second or so, far fewer than are left for each worker. To send one and to wait for
# it takes the one who asks as long whatever is in it, on Ray 0.4 ms.
_ERRAND_S, _MOST_PIECES, _ROUNDS_LEFT = 1.0, 16, 4
# The weight of the last errand in what a piece is thought to take.
_NEWEST = 0.1
_MAX_FALSE_STARTS = 3
# Machines in a row; a cluster that loses so many is no place to work on.
_MAX_LOST_MACHINES = 10
# A block takes seconds, those that lower a family of a large model first perhaps a minute on a busy machine.
LIMIT_S = 600.0
# More passes between two looks only where this process itself was held up, and perhaps its workers with it.
_LONGEST_LOOK_S = 10.0


class WorkerPool(Protocol):
    """Workers by number, each with a queue of its own: it answers pieces in the order in which they were given."""

    def size(self) -> int:
        """Return how many workers there should be now."""
        ...

    def spawn(self) -> int:
        """Start a worker and return its number, which none had before; it says when it is ready."""
        ...

    def give(self, number: int, errand: Errand) -> None:
        """Put an errand at the end of a worker's queue; no error if it is dying, which a later poll reports."""
        ...

    def poll(self) -> Sequence[tuple[int, Report]]:
        """Wait for workers to say something, not for ever: of an errand a report a piece; the lost report no more."""
        ...

    def end(self, number: int) -> None:
        """End one worker at once, whatever it does; nothing more is heard of it."""
        ...

    def shutdown(self) -> None:
        """End every worker at once, whatever it does."""
        ...


@dataclass(slots=True)
class _Place:
    """A worker as its pool sees it: what it was given and has not answered, and the part of the space it knows.

    `since_s` is when it began with the first errand of these, of which it has answered `num_answered` pieces; `heard`
    is the number of the last news that it was sent.
    """

    is_ready: bool = False
    part: int | None = None
    given: deque[list[Block]] = field(default_factory=deque)
    since_s: float = 0.0
    num_answered: int = 0
    heard: int = 0


def work_through(
    pool: WorkerPool,
    pieces: Pieces,
    limit_s: float = LIMIT_S,
    news: Callable[[], News] = News,
    clock: Callable[[], float] = monotonic,
) -> Generator[Found]:
    """Yield what is found in each block, as it comes; the pool is shut down at the end, or when closed.

    A worker that does not answer an errand within `limit_s` seconds is ended; its pieces come again one by one, and the
    one that takes too long is cut in halves until the single candidates remain that never end, which become lines in
    `Found.crashed`. Each errand brings its worker the `news` that it has not heard.

    Raises:
        InternalError: workers die before they are ready, or too many of them in any other way.
        SlipstickError: what a worker cannot do anything about, such as a model that it cannot read.
    """
    dispatch = _Dispatch(pool, pieces, limit_s, news, clock)
    try:
        dispatch.fill()
        while pieces.num_blocks_left:
            reports = pool.poll()
            dispatch.look()
            for number, report in reports:
                found = dispatch.take(number, report)
                # Before the one who asked has time for what was found: no worker idles.
                dispatch.fill()
                if found is not None:
                    yield found
            yield from dispatch.end_overdue()
            dispatch.fill()
    finally:
        pool.shutdown()


class _Dispatch:
    """Gives pieces to those who are ready and takes what they say."""

    def __init__(
        self,
        pool: WorkerPool,
        pieces: Pieces,
        limit_s: float,
        news: Callable[[], News],
        clock: Callable[[], float],
    ) -> None:
        self._pool = pool
        self._pieces = pieces
        self._limit_s = limit_s
        self._news = news
        # What a piece takes, the last ones most; unknown at first, and then pieces go one by one.
        self._piece_s = _ERRAND_S
        self._places: dict[int, _Place] = {}
        # Workers that may have more: of a thousand, all but a few have what they can take.
        self._open: set[int] = set()
        self._looked_for_overdue_s = 0.0
        self._false_starts = 0
        self._lost_machines = 0
        self._now_s = 0.0
        self._clock = clock
        self._looked_s = clock()

    def look(self) -> None:
        """Let time pass: a clock that stands while this process is stopped or waits for the one who asked."""
        before, self._looked_s = self._looked_s, self._clock()
        self._now_s += min(self._looked_s - before, _LONGEST_LOOK_S)

    def fill(self) -> None:
        """Hand out what waits, round by round so that all get one before any gets two; spawn more if some is left.

        Where news will come, none gets two before the first: workers send much that they would leave out with news.
        """
        if self._open and self._pieces.num_waiting:
            is_known = self._news is News or self._news().number > 0
            for num_given in range(_AT_HAND if is_known else 1):
                for number in sorted(self._open):
                    place = self._places[number]
                    if len(place.given) == num_given and self._may_have_more(place):
                        self._give(number, place)
            self._open = {number for number in self._open if len(self._places[number].given) < _AT_HAND}
        num_free = self._pool.size() - len(self._places)
        if num_free > 0 and self._pieces.num_waiting:
            num_starting = sum(not place.is_ready for place in self._places.values())
            for _ in range(min(num_free, self._pieces.num_waiting - num_starting)):
                self._places[self._pool.spawn()] = _Place()

    def take(self, number: int, report: Report) -> Found | None:
        """Take a report; return what a block found, if that is now known."""
        place = self._places[number]
        match report:
            case Ready():
                self._open.add(number)
                place.is_ready, self._false_starts, self._lost_machines = True, 0, 0
            case Done(found):
                return self._pieces.done(self._answered(number, place), found)
            case Failed(why):
                return self._pieces.failed(self._answered(number, place), why)
            case RefusedPiece(error):
                raise error
            case Gone():
                return self._replace(number, report)
        return None

    def end_overdue(self) -> Iterator[Found]:
        """End workers that take too long over a piece; yield blocks of which that was the last piece.

        All are looked at some ten times within the limit.
        """
        if self._now_s - self._looked_for_overdue_s < self._limit_s / 10:
            return
        self._looked_for_overdue_s = self._now_s
        before_s = self._now_s - self._limit_s
        for number, place in [*self._places.items()]:
            if place.given and place.since_s < before_s:
                self._pool.end(number)
                first, *behind = self._take_away(number)
                if behind:
                    self._pieces.lost([first, *behind], f"no answer in {self._limit_s:g} s")
                    continue
                found = self._pieces.overdue(first, self._limit_s)
                if found is not None:
                    yield found

    def _may_have_more(self, place: _Place) -> bool:
        """Whether a worker may have another errand: not behind a suspect, nor while one waits for an idle worker."""
        return not place.given or not (self._pieces.has_suspects or self._pieces.is_suspect(place.given[0][0]))

    def _give(self, number: int, place: _Place) -> None:
        piece = self._pieces.next(place.part, is_idle=not place.given)
        if piece is None:
            return
        errand, most = [piece], 1
        if not self._pieces.is_suspect(piece):
            fair = self._pieces.num_waiting // (_ROUNDS_LEFT * len(self._places))
            most = min(_MOST_PIECES, fair, int(_ERRAND_S / max(self._piece_s, 1e-6)))
        while len(errand) < most and (more := self._pieces.more(piece.part)) is not None:
            errand.append(more)
        place.since_s = place.since_s if place.given else self._now_s
        place.part = piece.part
        place.given.append(errand)
        news = self._news()
        packet = news.packet if news.number > place.heard else b""
        place.heard = news.number
        self._pool.give(number, Errand(tuple(errand), packet))

    def _answered(self, number: int, place: _Place) -> Block:
        """Take away the piece that was answered; behind the last of an errand the next begins now."""
        errand = place.given[0]
        piece = errand.pop(0)
        place.num_answered += 1
        if not errand:
            took_s = (self._now_s - place.since_s) / place.num_answered
            self._piece_s += _NEWEST * (took_s - self._piece_s)
            place.since_s, place.num_answered = self._now_s, 0
            place.given.popleft()
            self._open.add(number)
        return piece

    def _replace(self, number: int, gone: Gone) -> Found | None:
        """Take a lost worker away; what it was doing is suspect, unless its machine was lost and it with it."""
        if gone.with_machine:
            self._lost_machines += 1
            if self._lost_machines == _MAX_LOST_MACHINES:
                raise ClusterLostError(f"{_MAX_LOST_MACHINES} machines were lost before a worker was ready on another")
        elif not self._places[number].is_ready:
            self._false_starts += 1
            if self._false_starts == _MAX_FALSE_STARTS:
                raise InternalError(
                    f"{_MAX_FALSE_STARTS} workers died one after another before they were ready, "
                    f"the last one: {gone.why}; if memory is short, fewer workers need less"
                )
        pieces = self._take_away(number)
        if not gone.with_machine:
            return self._pieces.lost(pieces, gone.why) if pieces else None
        for piece in reversed(pieces):
            self._pieces.back(piece)
        return None

    def _take_away(self, number: int) -> list[Block]:
        """Take away a lost worker: return its first errand, which may have done it; what lay behind was not begun."""
        given = self._places.pop(number).given
        self._open.discard(number)
        for errand in list(given)[:0:-1]:
            for piece in reversed(errand):
                self._pieces.back(piece)
        return given[0] if given else []
