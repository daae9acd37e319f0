"""A machine of round numbers for simulations, traffic for it, and a scheduler that goes from token to token."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from slipstick.backends.machine.software.engine import Engine
from slipstick.cost.serving.batching.times import Array, Curve, StepTimes, Surface
from slipstick.cost.serving.traffic.sizes import Requests
from slipstick.cost.serving.traffic.traffic import Traffic

Made = Callable[..., StepTimes]


@pytest.fixture(scope="session")
def made() -> Made:
    """Make step times: 5 ms and 10 us a sequence, 1 ns a token of context; prompts 5 us a token; 1 kB a token."""

    def make(free_bytes: float = 1e9, groups: int = 1, pace: float = 1.0, knee: float = 2048.0) -> StepTimes:
        batches = np.array([1.0, 2.0, 16.0, 64.0, 256.0])
        contexts = np.array([1.0, 256.0, 1024.0, 4096.0])
        # Attention grows faster behind a knee, so that jumps cross pieces of the table.
        attention = 1e-9 * np.outer(batches, contexts + np.maximum(contexts - 512.0, 0.0))
        tokens = np.array([1.0, 512.0, 8192.0])
        rest = np.maximum(5e-3, 5e-6 * tokens) + 1e-6 * tokens
        whole = np.outer([1.0, 256.0], 1e-9 * contexts**2)
        lengths = np.array([1.0, knee, 65536.0])
        kept = 1000.0 * np.minimum(lengths, knee) + 100.0 * np.maximum(lengths - knee, 0.0)
        return StepTimes(
            Curve(batches, 5e-3 + 1e-5 * batches), Surface(batches, contexts, attention), Curve(tokens, rest),
            Surface(np.array([1.0, 256.0]), contexts, whole), Curve(lengths, kept), free_bytes, groups, pace,
        )  # fmt: skip

    return make


@pytest.fixture(scope="session")
def few() -> Callable[..., Traffic]:
    """Make some requests of random lengths that come at random."""

    def make(num: int = 60, seed: int = 0, gap_s: float = 0.03, most: int = 60, cached: bool = False) -> Traffic:
        random = np.random.default_rng(seed)
        prompt, output = random.integers(1, 900, num), random.integers(1, most, num)
        there = random.integers(0, prompt) if cached else np.zeros(num, dtype=np.int64)
        return Traffic(np.cumsum(random.exponential(gap_s, num)), Requests(prompt, output, there))

    return make


@pytest.fixture(scope="session")
def naive() -> Callable[[StepTimes, Engine, Traffic], tuple[Array, Array]]:
    """First and last tokens of open traffic by a scheduler that goes from token to token."""
    return lambda times, engine, traffic: ByToken(times, engine, traffic).run()


@dataclass
class Request:
    number: int
    ready_s: float
    prompt: int
    output: int
    cached: int
    target: int = 0
    computed: int = 0
    made: int = 0
    first_s: float = -1.0
    finish_s: float = -1.0

    @property
    def decodes(self) -> bool:
        return self.computed >= self.target

    @property
    def tokens(self) -> int:
        return self.computed if self.decodes else self.target


class ByToken:
    """The scheduler one token at a time, on lists and on the tables themselves; continuous batching on one group."""

    def __init__(self, times: StepTimes, engine: Engine, traffic: Traffic) -> None:
        self.times, self.engine, self.s = times, engine, engine.scheduler
        over, tokens = engine.overheads, traffic.requests
        columns = zip(traffic.arrival_s, tokens.prompt, tokens.output, tokens.cached, strict=True)
        self.all = [
            Request(i, float(at + over.prompt_s + over.prompt_token_s * p), int(p), int(o), int(c), int(p))
            for i, (at, p, o, c) in enumerate(columns)
        ]
        self.coming = sorted(self.all, key=lambda r: (r.ready_s, r.number))
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.now_s = 0.0

    def run(self) -> tuple[Array, Array]:
        while self.coming or self.waiting or self.running:
            if not self.waiting and not self.running:
                self.now_s = max(self.now_s, self.coming[0].ready_s)
            while self.coming and self.coming[0].ready_s <= self.now_s:
                self.waiting.append(self.coming.pop(0))
            self.step()
        return np.array([r.first_s for r in self.all]), np.array([r.finish_s for r in self.all])

    def held(self, request: Request, ahead: int) -> float:
        tokens = request.tokens + ahead * request.decodes
        if self.s.reserve_output:
            tokens = request.prompt + request.output
        return self.bytes_of(tokens)

    def bytes_of(self, tokens: int) -> float:
        return float(self.times.kv_bytes(math.ceil(tokens / self.s.block_tokens) * self.s.block_tokens))

    def used(self, ahead: int) -> float:
        return sum(self.held(r, ahead) for r in self.running)

    def make_room(self) -> bool:
        found = False
        while any(r.decodes for r in self.running) and self.used(1) > self.times.free_bytes:
            last = self.running.pop()
            if last.decodes:
                last.target = last.computed + 1
            last.computed = 0
            self.waiting.insert(0, last)
            found = True
        return found

    def step(self) -> None:
        mixed = self.s.mixed
        put_back = self.make_room() if mixed else False
        chunks = self.chunks(put_back)
        if not chunks and not mixed:
            self.make_room()
        decoders = [r for r in self.running if r.decodes] if mixed or not chunks else []
        waits = sum(r.decodes for r in self.running)
        self.now_s += self.length_s(decoders, chunks, waits)
        for r in decoders:
            r.computed += 1
            self.token(r)
        for r, stop in chunks:
            r.computed = stop
            if r.decodes:
                self.token(r)

    def chunks(self, put_back: bool) -> list[tuple[Request, int]]:
        left = self.s.max_batched_tokens - self.s.mixed * sum(r.decodes for r in self.running)
        found = []
        for r in [r for r in self.running if not r.decodes]:
            tokens = min(r.target - r.computed, left)
            if tokens > 0:
                found.append((r, r.computed + tokens))
                left -= tokens
        while self.waiting and not put_back and len(self.running) < self.s.max_num_seqs:
            r = self.waiting[0]
            fresh = r.target - r.cached
            some = any(q.decodes for q in self.running)
            alone = not found and (fresh > self.s.max_batched_tokens or not some)
            if (left <= 0) if self.s.chunked_prefill else (fresh > left and not alone):
                break
            r.computed = r.cached
            limit = self.times.free_bytes * (0.99 if self.running and not self.s.reserve_output else 1.0)
            if self.used(int(self.s.mixed)) + self.held(r, 0) > limit:
                break
            self.running.append(self.waiting.pop(0))
            tokens = min(fresh, left) if self.s.chunked_prefill else fresh
            found.append((r, r.cached + tokens))
            left -= tokens
        return found

    def length_s(self, decoders: list[Request], chunks: list[tuple[Request, int]], waits: int) -> float:
        times, over, num = self.times, self.engine.overheads, len(chunks)
        batch = len(decoders)
        total = over.step_s + over.sequence_s * batch
        if batch:
            total += float(times.decode_s(batch, sum(r.computed + 1 for r in decoders) / batch))
        if not chunks:
            return total
        attention = sum(float(times.chunk_attention_s(r.computed, stop, num)) / num for r, stop in chunks)
        tokens = sum(stop - r.computed for r, stop in chunks)
        if batch:
            grown = float(times.step_s(batch, 1.0, tokens, attention) - times.decode_s(batch, 1.0))
            return total + over.interference * grown
        alone = float(times.prompt_rest(tokens)) + attention
        least = float(times.decode_s(num, sum(stop for _, stop in chunks) / num))
        return total + max(alone, least) * (over.interference if waits else 1.0)

    def token(self, r: Request) -> None:
        r.made += 1
        r.first_s = self.now_s if r.first_s < 0 else r.first_s
        if r.made == r.output:
            r.finish_s = self.now_s
            self.running.remove(r)
