"""Sequences that run in one group: their contexts, their shares of the cache, and which is done next.

All that decode gain tokens together, so a count of decode steps, the clock, stands for the lengths of all of them: a
sequence is done at a clock that is known when it starts to decode, and the sum of contexts is a line in the clock.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush

from ....ir.records import dataclass
from .book import NEVER, RequestWork
from .room import Room


@dataclass(slots=True)
class Sequence:
    """A request that runs.

    Attributes:
        serial: the how manieth that was let in.
        target: tokens of which it needs keys and values before its next token.
        computed: those it has.
        rounds: decode steps left behind its prompt.
        rate: tokens that each of them makes.
        held_bytes: of the cache, while it does not grow.
        saved_bytes: what it does not hold of its tokens, as others do.
        last_s: when its last token came.
        place: in the cache, once it grows; -1 before.
        joined: clock at which it began to decode; -1 before.
    """

    serial: int
    target: int
    computed: int
    rounds: int
    rate: float
    held_bytes: float
    saved_bytes: float
    last_s: float = NEVER
    place: int = -1
    joined: int = -1


@dataclass(frozen=True, slots=True)
class Put:
    """What is known of a request that was put back: tokens to compute anew, steps left, when its last token came."""

    target: int
    rounds: int
    last_s: float


class Running:
    """Who runs.

    Args:
        room: the cache of the group.
        grows: blocks are given out as sequences grow, not before they start.

    Attributes:
        batch: sequences that decode; in a static batch those that are done keep their place.
        left: those of them that wait for tokens.
        clock: decode steps so far.
        last: when those who decode got their last tokens, and how many of them.
    """

    __slots__ = ("_ends", "_order", "_put", "_room", "_sequences", "_serial", "_tokens", "_tokens_a_step", "batch",
                 "clock", "grows", "last", "left")  # fmt: skip

    def __init__(self, room: Room, grows: bool) -> None:
        self._room, self.grows = room, grows
        self._sequences: dict[int, Sequence] = {}
        self._ends: list[tuple[int, int, int]] = []
        self._order: list[tuple[int, int]] = []
        self._put: dict[int, Put] = {}
        self._serial = self.batch = self.left = self.clock = 0
        self._tokens = self._tokens_a_step = 0.0
        self.last: list[tuple[float, int]] = []

    @property
    def num(self) -> int:
        """All who run, those whose prompts are computed among them."""
        return len(self._sequences)

    @property
    def context(self) -> float:
        """Tokens that those who decode look at in the next step, on average."""
        return (self._tokens + self._tokens_a_step) / self.batch

    @property
    def growth(self) -> float:
        """What the mean context grows by in a step."""
        return self._tokens_a_step / self.batch

    def of(self, request: int) -> Sequence:
        """The state of a request that runs."""
        return self._sequences[request]

    def target(self, work: RequestWork, request: int) -> int:
        """Tokens whose keys and values a request needs before it decodes, also one that waits again."""
        put = self._put.get(request)
        return work.prompt[request] if put is None else put.target

    def asked_bytes(self, work: RequestWork, request: int) -> float:
        """Bytes of cache that it needs before it starts: for its prompt, or for all its tokens."""
        tokens = self.target(work, request) if self.grows else work.prompt[request] + work.output[request]
        return self._room.bytes_of(tokens) - self._room.saved_bytes(work.cached[request])

    def admit(self, work: RequestWork, request: int) -> Sequence:
        """Let a request in, with room for what it asks for."""
        held, saved = self.asked_bytes(work, request), self._room.saved_bytes(work.cached[request])
        self._room.hold(held)
        rounds = work.rounds[request]
        rate = (work.output[request] - 1) / rounds if rounds else 0.0
        put = self._put.pop(request, None) or Put(work.prompt[request], rounds, NEVER)
        self._serial += 1
        sequence = Sequence(self._serial, put.target, work.cached[request], put.rounds, rate, held, saved, put.last_s)
        self._sequences[request] = sequence
        if self.grows:
            self._order.append((self._serial, request))
        return sequence

    def join(self, request: int, last_s: float) -> None:
        """Let a request decode that got a token at a moment."""
        sequence = self._sequences[request]
        sequence.joined, sequence.last_s = self.clock, last_s
        if self.grows:
            self._room.hold(-sequence.held_bytes - sequence.saved_bytes)
            sequence.place = self._room.grow(sequence.target, sequence.rate, self.clock)
        self.batch += 1
        self.left += 1
        self._tokens += sequence.target
        self._tokens_a_step += sequence.rate
        heappush(self._ends, (self.clock + sequence.rounds, sequence.serial, request))
        if self.last and self.last[-1][0] == last_s:
            self.last[-1] = (last_s, self.last[-1][1] + 1)
        else:
            self.last.append((last_s, 1))

    def next_end(self) -> int:
        """Steps until the first is done."""
        ends = self._ends
        while not self._holds(ends[0][2], ends[0][1]):
            heappop(ends)
        return ends[0][0] - self.clock

    def advance(self, num: int, end_s: float, keep: bool) -> list[int]:
        """Make so many decode steps that end at a moment; return who is done.

        With `keep` they go on in the batch until it is done as a whole.
        """
        self.clock += num
        self._tokens += num * self._tokens_a_step
        done: list[int] = []
        while self._ends and self._ends[0][0] <= self.clock:
            _, serial, request = heappop(self._ends)
            if self._holds(request, serial):
                done.append(request)
        self.left -= len(done)
        if not keep:
            for request in done:
                self.drop(request)
        elif not self.left:
            for request in list(self._sequences):
                self.drop(request)
        self.last = [(end_s, self.left)] if self.left else []
        return done

    def drop(self, request: int) -> None:
        """Take a request out, and its room back."""
        sequence = self._sequences.pop(request)
        if sequence.place < 0:
            self._room.hold(-sequence.held_bytes)
        else:
            self._room.leave(sequence.place)
            self._room.hold(sequence.saved_bytes)
        if sequence.joined < 0:
            return
        self.batch -= 1
        self._tokens -= self._held_tokens(sequence)
        self._tokens_a_step -= sequence.rate
        if not self.batch:
            self._tokens = self._tokens_a_step = 0.0

    def put_back(self) -> int:
        """Take out who started last, and keep in mind what it needs when it comes again."""
        while not self._holds(self._order[-1][1], self._order[-1][0]):
            self._order.pop()
        request = self._order.pop()[1]
        sequence = self._sequences[request]
        last_s = sequence.last_s
        if sequence.joined >= 0:
            # Its own token leaves the list of the last ones of those who decode.
            last_s, count = self.last.pop()
            if count > 1:
                self.last.append((last_s, count - 1))
            self.left -= 1
        self._put[request] = self._again(sequence, last_s)
        self.drop(request)
        return request

    def lose(self) -> list[tuple[int, Put]]:
        """Take all out; return those whose answers are not done, with what each needs when it comes again."""
        lost: list[tuple[int, Put]] = []
        for request, sequence in list(self._sequences.items()):
            # Those who joined behind the last decode step have a token of their own moment, the others its tokens.
            own = sequence.joined < 0 or sequence.joined == self.clock
            if sequence.joined < 0 or self.clock - sequence.joined < sequence.rounds:
                lost.append((request, self._again(sequence, sequence.last_s if own else self.last[0][0])))
            self.drop(request)
        self.left = 0
        for kept in (self.last, self._ends, self._order):
            kept.clear()
        return lost

    def restore(self, request: int, put: Put) -> None:
        """Keep in mind what a request needs that ran elsewhere."""
        self._put[request] = put

    def forgotten(self, request: int) -> Put | None:
        """Return what was kept in mind of a request that waits, and keep it no longer."""
        return self._put.pop(request, None)

    def _again(self, sequence: Sequence, last_s: float) -> Put:
        """What a sequence needs to go on behind its last token."""
        if sequence.joined < 0:
            return Put(sequence.target, sequence.rounds, last_s)
        # What is computed anew includes the last token, which the next one follows: a step less remains.
        target = math.ceil(self._held_tokens(sequence) - 1e-9) + 1
        return Put(target, sequence.rounds - (self.clock - sequence.joined) - 1, last_s)

    def _held_tokens(self, sequence: Sequence) -> float:
        return sequence.target + sequence.rate * (self.clock - sequence.joined)

    def _holds(self, request: int, serial: int) -> bool:
        sequence = self._sequences.get(request)
        return sequence is not None and sequence.serial == serial
