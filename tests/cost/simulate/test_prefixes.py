"""Prefixes in tiers of memory: against counting by hand and a plain list, conserved, and monotone in size and speed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.cost.serving.traffic.prefixes import Tier, reused, with_reuse
from slipstick.cost.serving.traffic.sizes import Requests
from slipstick.cost.serving.traffic.trace_files import read_trace
from slipstick.cost.serving.traffic.traffic import Traffic
from slipstick.ir.errors import UsageError

BLOCK = 512


def traffic_of(*prompts: tuple[int, ...], over: int = 0) -> Traffic:
    """Prompts that fill their blocks but for `over` tokens less in the last."""
    sizes = np.array([BLOCK * len(p) - over for p in prompts])
    ones = np.ones_like(sizes)
    return Traffic(np.arange(len(prompts), dtype=np.float64), Requests(sizes, ones, 0 * ones), blocks=prompts)


def test_tokens_are_found_where_they_fell_to() -> None:
    """Two blocks in the first tier, three behind: what was used last is in front, the first block of a prompt first."""
    traffic = traffic_of((1, 2, 3), (7, 8), (1, 2, 3, 4), (9, 10, 11, 12, 13), (1, 2))
    tiers = (Tier("hbm", 2 * BLOCK), Tier("host", 3 * BLOCK, token_s=1e-6, latency_s=1e-3))
    found = reused(traffic, tiers)
    # The third finds 1 2 3 behind 7 8; the last nothing: five newer blocks fill both tiers.
    assert found.tokens.tolist() == [[0, 0], [0, 0], [0, 3 * BLOCK], [0, 0], [0, 0]]
    assert found.fetch_s.tolist() == pytest.approx([0, 0, 1e-3 + 3 * BLOCK * 1e-6, 0, 0])


def test_the_last_token_is_always_computed() -> None:
    found = reused(traffic_of((1, 2), (1, 2)), (Tier("host", 1e9),))
    assert found.cached.tolist() == [0, 2 * BLOCK - 1]
    found = reused(traffic_of((1, 2), (1, 2), over=100), (Tier("host", 1e9),))
    assert found.cached.tolist() == [0, 2 * BLOCK - 101]


def plain_hits(prompts: list[tuple[int, ...]], size: int) -> list[int]:
    """Blocks that are found, by a list in order of use."""
    order: list[int] = []
    hits = []
    for prompt in prompts:
        hits.append(next((i for i, b in enumerate(prompt) if b not in order), len(prompt)))
        for block in reversed(prompt):
            order = [block, *(b for b in order if b != block)]
        order = order[:size]
    return hits


PROMPTS = st.lists(
    st.lists(st.integers(0, 12), min_size=1, max_size=6, unique=True).map(tuple), min_size=1, max_size=25
)  # fmt: skip


@given(PROMPTS, st.integers(0, 8), st.integers(0, 8), st.integers(0, 8))
def test_tiers_hold_together_what_one_of_their_size_holds(
    prompts: list[tuple[int, ...]], first: int, then: int, more: int
) -> None:
    traffic = traffic_of(*prompts)
    found = reused(traffic, (Tier("a", first * BLOCK), Tier("b", then * BLOCK, token_s=1e-6)))
    blocks = -(-found.cached // BLOCK)
    assert blocks.tolist() == plain_hits(prompts, first + then)
    # More of either tier, or a third behind them, loses nothing; and no more is found than was asked for.
    wider = reused(traffic, (Tier("a", first * BLOCK), Tier("b", (then + more) * BLOCK, token_s=1e-6)))
    third = reused(traffic, (Tier("a", first * BLOCK), Tier("b", then * BLOCK), Tier("c", more * BLOCK)))
    assert (wider.cached >= found.cached).all()
    assert (third.cached >= found.cached).all()
    assert (wider.cached == third.cached).all()
    assert (wider.cached < traffic.requests.prompt).all()


@given(PROMPTS, st.floats(1e-9, 1e-3), st.floats(1.0, 100.0))
def test_a_faster_tier_never_takes_longer(prompts: list[tuple[int, ...]], token_s: float, faster: float) -> None:
    traffic = traffic_of(*prompts)
    slow, fast = (reused(traffic, (Tier("host", 4 * BLOCK, one),)) for one in (token_s, token_s / faster))
    assert (fast.fetch_s <= slow.fetch_s).all()
    assert (fast.cached == slow.cached).all()


def test_names_of_blocks_are_read_from_traces(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        '{"timestamp": 0, "input_length": 1000, "output_length": 4, "hash_ids": [5, 6]}\n'
        '{"timestamp": 10, "input_length": 700, "output_length": 4, "hash_ids": [5, 9]}\n'
    )
    traffic = read_trace(trace)
    assert traffic.blocks == [(5, 6), (5, 9)]
    assert with_reuse(traffic, reused(traffic, (Tier("host", 1e6),))).requests.cached.tolist() == [0, 512]
    assert traffic.first(1).blocks == [(5, 6)]


def test_requests_without_names_of_blocks_are_refused() -> None:
    ones = np.ones(2, dtype=np.int64)
    with pytest.raises(UsageError, match="trace with hash_ids"):
        reused(Traffic(np.zeros(2), Requests(ones, ones, 0 * ones)), (Tier("host", 1e6),))
