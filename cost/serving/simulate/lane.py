"""One group of a replica, step by step: who waits, whose prompt runs, who decodes, who is put back.

A lane is told of requests (`enqueue`) and of the ends of its steps (`finish`), and plans the next one (`start`). Steps
that only decode and change nothing but contexts are taken many at a time, until a sequence is done, the cache is full
or a request comes that may join (`interrupt`).

The scheduler is that of the engines: first come, first served; a request starts when a place in the batch and room in
the cache are free; with chunked prefill decodes go first and prompts fill the step; where blocks are given out as
sequences grow and none is left, the last that started gives its own back, waits in front and is computed anew.
Sources: Yu et al., Orca, OSDI 2022; Kwon et al., arXiv 2309.06180, section 4.5; Agrawal et al., arXiv 2403.02310;
`vllm/v1/core/sched/scheduler.py`.
"""

from __future__ import annotations

from collections import deque

from ....backends.machine.software.engine import Scheduler
from ....ir.errors import InternalError
from .book import NEVER, Book, Meters, RequestWork, SimulatedSteps
from .room import Room
from .running import Put, Running
from .speeds import Chunk, Speeds

# Of the cache a request must leave so much free to start among others that grow: `watermark` of vLLM's BlockManager.
_WATERMARK = 0.01


class Busy:
    """How many groups of one replica run at once; each pass through the stages is slower for it.

    Args:
        pace: time from one group to the next over that of a whole pass.
    """

    __slots__ = ("_pace", "num")

    def __init__(self, pace: float) -> None:
        self._pace, self.num = pace, 0

    def slower(self) -> float:
        """Time between steps of one group over that of a pass."""
        return max(1.0, self.num * self._pace)


class BatchLane:
    """The state of one group between two events.

    Args:
        number: of the group, over all replicas.
        scheduler: how requests become steps.
        num_seqs: most sequences in the group.
        speeds: what steps take.
        room: its part of the cache.
        work: what requests ask for.
        book: where moments are written.
        busy: what its replica's groups share.
        prefilled: requests come with their prompt computed elsewhere.
    """

    __slots__ = ("_book", "_busy", "_chunks", "_gathered", "_mixed", "_num", "_prefilled", "_prompts", "_room",
                 "_scheduler", "_seqs", "_slower", "_speeds", "_static", "_waiting", "_work", "begun_s",
                 "done", "end_s", "load", "meters", "number", "running", "version", "woken")  # fmt: skip

    def __init__(
        self,
        number: int,
        scheduler: Scheduler,
        num_seqs: int,
        speeds: Speeds,
        room: Room,
        work: RequestWork,
        book: Book,
        busy: Busy,
        prefilled: bool = False,
    ) -> None:
        self.number, self._scheduler, self._seqs = number, scheduler, num_seqs
        self._speeds, self._room, self._work, self._book, self._busy = speeds, room, work, book, busy
        self._waiting: deque[int] = deque()
        self._prompts: deque[int] = deque()
        self._prefilled: set[int] | None = set() if prefilled else None
        self._static = scheduler.batching == "static"
        self._mixed = scheduler.mixed and not self._static
        self.running = Running(room, grows=not (scheduler.reserve_output or self._static))
        self._chunks: list[tuple[int, Chunk]] = []
        self._num, self._slower, self._gathered = 0, 1.0, False
        self.begun_s = self.end_s = 0.0
        self.version = 0
        # Requests that wait or run, counted when they change: who chooses among many lanes asks far more often.
        self.load = 0
        self.woken = False
        self.done: list[int] = []
        self.meters = Meters()

    @property
    def idle(self) -> bool:
        """Nothing runs."""
        return not self._num

    def enqueue(self, request: int, now_s: float, put: Put | None = None) -> bool:
        """Take a request, or one that had begun elsewhere; say whether the end of the current step moves for it."""
        first = not self._waiting
        if put is not None:
            self.running.restore(request, put)
        self._waiting.append(request)
        self.load = len(self._waiting) + self.running.num
        if self._prefilled is not None:
            self._prefilled.add(request)
        can_join = first and not self._chunks and self.running.num < self._seqs and not self._static
        return can_join and self._num > 1 and self._interrupt(now_s)

    def lose(self, now_s: float) -> list[tuple[int, Put | None]]:
        """Fail: return all requests that wait or run, with what those need that had begun.

        Tokens of steps that ended before are with their clients; the step that runs is lost.
        """
        if self._num:
            whole = 0
            if not self._chunks and self._num > 1:
                whole = self._steps_until(now_s)
                whole = min(whole - (self._decodes_s(whole) > now_s - self.begun_s), self._num - 1)
            if whole:
                self._plan(whole, self._decodes_s(whole))
                self.finish()
            else:
                self._busy.num -= 1
                self._num = 0
        self._chunks, self._gathered, self.woken = [], False, False
        self._prompts.clear()
        lost: list[tuple[int, Put | None]] = [*self.running.lose()]
        lost += [(request, self.running.forgotten(request)) for request in self._waiting]
        self._waiting.clear()
        self.load = 0
        self.version += 1
        return lost

    def _steps_until(self, now_s: float) -> int:
        """Steps of the row up to the first that ends behind a moment."""
        running = self.running
        return self._speeds.steps_until(
            running.batch, running.context, running.growth, now_s - self.begun_s, self._num, self._slower
        )

    def _interrupt(self, now_s: float) -> bool:
        """End a row of decode steps with the first that ends behind a moment."""
        num = self._steps_until(now_s)
        if num >= self._num:
            return False
        self._plan(num, self._decodes_s(num))
        return True

    def _plan(self, num: int, length_s: float) -> None:
        self._num, self.end_s = num, self.begun_s + length_s
        self.version += 1

    def _decodes_s(self, num: int) -> float:
        running = self.running
        return self._speeds.decodes_s(running.batch, running.context, running.growth, num, self._slower)

    def start(self, now_s: float) -> bool:
        """Plan the next step; False where there is nothing to do."""
        self.begun_s = now_s
        self._chunks = self._fill()
        self.load = len(self._waiting) + self.running.num
        if not self._chunks and not self.running.batch:
            return False
        self._busy.num += 1
        self._slower = self._busy.slower()
        if not self._chunks:
            num = self._room.steps(self.running.clock, self.running.next_end())
            self._plan(num, self._decodes_s(num))
        else:
            self._plan(1, self._prompts_s())
        return True

    def _prompts_s(self) -> float:
        """The length of a step with prompts."""
        batch = self.running.batch if self._mixed else 0
        prompts_s = self._slower * self._speeds.prompts_s(batch, [chunk for _, chunk in self._chunks])
        if batch:
            return prompts_s + self._decodes_s(1)
        waits = self._speeds.interference if self.running.batch else 1.0
        return prompts_s * waits + self._speeds.host_s(0)

    def _fill(self) -> list[tuple[int, Chunk]]:
        """Let requests in, put others back, and say which tokens of which prompts the next step computes."""
        mixed = self._mixed
        put_back = self._make_room() if mixed or not (self._waiting or self._prompts) else False
        if self._static:
            self._gathered = self._gathered and bool(self.running.num)
        chunks: list[tuple[int, Chunk]] = []
        left = self._scheduler.max_batched_tokens - (self._speeds.tokens(self.running.batch) if mixed else 0)
        for request in self._prompts:
            left = self._take(request, left, chunks)
        while self._waiting and not put_back and self._may_start(left, chunks):
            request = self._waiting.popleft()
            if self._admit(request, self.begun_s):
                left = self._take(request, left, chunks)
        if self._static:
            self._gathered = bool(self.running.num)
        if not chunks and not mixed:
            self._make_room()
        return chunks

    def _take(self, request: int, left: int, chunks: list[tuple[int, Chunk]]) -> int:
        """Put as much of a prompt into the step as may be; return the tokens that are left."""
        sequence = self.running.of(request)
        rest = sequence.target - sequence.computed
        tokens = min(rest, left) if self._scheduler.chunked_prefill else rest
        if tokens < 1 or (rest > left and not self._scheduler.chunked_prefill and chunks):
            return left
        chunks.append((request, (sequence.computed, sequence.computed + tokens)))
        return left - tokens

    def _may_start(self, left: int, chunks: list[tuple[int, Chunk]]) -> bool:
        """Whether the first who waits can run now."""
        running, request = self.running, self._waiting[0]
        if running.num >= self._seqs or (self._static and self._gathered):
            return False
        has_kv = self._prefilled is not None and request in self._prefilled
        fresh = running.target(self._work, request) - self._work.cached[request]
        if not self._static and not has_kv and not self._has_budget(fresh, left, bool(chunks)):
            return False
        ahead = int(self._scheduler.mixed)
        num_bytes = running.asked_bytes(self._work, request)
        spare = _WATERMARK if running.grows and running.num else 0.0
        return self._room.fits(num_bytes, running.clock + ahead, spare)

    def _has_budget(self, fresh: int, left: int, others: bool) -> bool:
        """Whether a step has tokens left for a prompt: for one of them, or for all where prompts are never cut."""
        if self._scheduler.chunked_prefill:
            return left > 0
        alone = not others and (fresh > self._scheduler.max_batched_tokens or not self.running.batch)
        return fresh <= left or alone

    def _admit(self, request: int, now_s: float) -> bool:
        """Give a request its place; False where its prompt is computed already and it decodes at once."""
        if self._book.start_s[request] == NEVER:
            self._book.start_s[request] = now_s
        self.running.admit(self._work, request)
        if self._prefilled is None or request not in self._prefilled:
            self._prompts.append(request)
            return True
        self._prefilled.remove(request)
        self.running.join(request, self._book.first_s[request])
        return False

    def _make_room(self) -> bool:
        """Put back those who started last until all others can make a step; say whether any was."""
        put_back = False
        while self.running.batch and not self._room.steps(self.running.clock, 1):
            if self.running.num == 1:
                raise InternalError("a request that fits alone has no room alone")
            request = self.running.put_back()
            if request in self._prompts:
                self._prompts.remove(request)
            self._waiting.appendleft(request)
            self._book.preemptions[request] += 1
            put_back = True
        return put_back

    def finish(self) -> None:
        """End the step: tokens are there, some sequences are done (`done`)."""
        self.done.clear()
        if not self._num:
            return
        self._busy.num -= 1
        self._measure()
        num, chunks = self._num, self._chunks
        self._num, self._chunks = 0, []
        if not chunks or (self._mixed):
            self._decoded(num)
        for request, (_, stop) in chunks:
            self._computed(request, stop)
        self.load = len(self._waiting) + self.running.num

    def _measure(self) -> None:
        """Write down the step and how full the engine was in it."""
        length_s, running = self.end_s - self.begun_s, self.running
        decodes = not self._chunks or self._mixed
        used = self._room.used_bytes(running.clock + self._num * decodes)
        self.meters.batch.add(running.num, length_s, running.num)
        # Bytes of cache in use over the steps, by what it is at their end, and in a long row also at its start.
        mean_bytes = (
            used
            if self._num <= self._scheduler.block_tokens
            else (self._room.used_bytes(self.running.clock) + used) / 2.0
        )
        self.meters.kv_bytes.add(mean_bytes, length_s, used)
        self._book.num_steps += self._num
        if not self._book.full:
            tokens = sum(stop - start for _, (start, stop) in self._chunks)
            batch = running.batch if decodes else 0
            self._book.steps.append(
                SimulatedSteps(self.number, self.begun_s, length_s, self._num, batch, len(self._chunks), tokens, used)
            )

    def _decoded(self, num: int) -> None:
        """Give those who decode their tokens, and let those go who have all."""
        running, book, end_s = self.running, self._book, self.end_s
        if not running.batch:
            return
        length_s = end_s - self.begun_s
        once_s = length_s if num == 1 else self._decodes_s(1)
        for last_s, count in running.last:
            book.gap(self.begun_s + once_s - last_s, end_s, count)
        if num > 1:
            book.gap((length_s - once_s) / (num - 1), end_s, running.left * (num - 1))
        for request in running.advance(num, end_s, keep=self._static):
            self._end(request)

    def _computed(self, request: int, stop: int) -> None:
        """Note how far a prompt has come; at its end comes a token."""
        sequence = self.running.of(request)
        sequence.computed = stop
        if stop < sequence.target:
            return
        self._prompts.remove(request)
        if self._book.first_s[request] == NEVER:
            self._book.first_s[request] = self.end_s
        else:
            self._book.gap(self.end_s - sequence.last_s, self.end_s, 1)
        if sequence.rounds:
            self.running.join(request, self.end_s)
        else:
            self.running.drop(request)
            self._end(request)

    def _end(self, request: int) -> None:
        self._book.finish_s[request] = self.end_s
        self.done.append(request)
