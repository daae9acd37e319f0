"""Blocks of sequences that grow, counted without going through them: what going through them gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.software.engine_file import load_engine
from slipstick.cost.serving.batching.times import Curve, StepTimes, Surface
from slipstick.cost.serving.simulate.room import Room

LONGEST, TOKEN_BYTES, SEQUENCE_BYTES = 4096, 320.0, 81920.0
FLAT = Surface(np.array([1.0, 2.0]), np.array([1.0, 2.0]), np.ones((2, 2)))
LINE = Curve(np.array([1.0, 2.0]), np.array([1.0, 1.0]))


def room(once: float, each: float) -> Room:
    kv = Curve(np.array([0.0, 1e6]), np.array([once, once + each * 1e6]))
    times = StepTimes(LINE, FLAT, LINE, FLAT, kv, free_bytes=1e12)
    return Room(times, load_engine("vllm").scheduler, LONGEST)


def expected(holders: list[tuple[int, int]], clock: int, block: int, once: float, each: float) -> float:
    """Bytes of whole blocks, holder by holder; a table of them has 16 tokens each."""
    tokens = (held + clock - begun for held, begun in holders)
    return sum(once + each * block * -(-num // block) for num in tokens)


@given(
    joins=st.lists(st.tuples(st.integers(1, 900), st.integers(0, 40)), min_size=1, max_size=20),
    leaves=st.lists(st.integers(0, 19), max_size=10),
    ahead=st.integers(0, 200),
)
def test_growing_sequences_hold_the_blocks_that_their_tokens_fill(
    joins: list[tuple[int, int]], leaves: list[int], ahead: int
) -> None:
    cache, clock, holders = room(SEQUENCE_BYTES, TOKEN_BYTES), 0, dict[int, tuple[int, int]]()
    for tokens, later in joins:
        clock += later
        holders[cache.grow(tokens, 1.0, clock)] = (tokens, clock)
    for place in {list(holders)[k] for k in leaves if k < len(holders)}:
        cache.leave(place)
        del holders[place]
    block = load_engine("vllm").scheduler.block_tokens
    found = cache.used_bytes(clock + ahead)
    assert found == expected(list(holders.values()), clock + ahead, block, SEQUENCE_BYTES, TOKEN_BYTES)


def test_bytes_that_are_no_whole_numbers_are_added_up_one_by_one() -> None:
    cache = room(0.5, 0.1)
    places = [cache.grow(tokens, 1.0, 0) for tokens in (1, 16, 17)]
    assert cache.used_bytes(0) == pytest.approx(3 * 0.5 + 0.1 * 16 * (1 + 1 + 2))
    cache.leave(places[2])
    assert cache.used_bytes(16) == pytest.approx(2 * 0.5 + 0.1 * 16 * (2 + 2))
    cache.grow(8, 2.5, 16)
    assert cache.used_bytes(20) == pytest.approx(3 * 0.5 + 0.1 * 16 * (2 + 3 + 2))
