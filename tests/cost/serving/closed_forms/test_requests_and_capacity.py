"""Lengths that are refused, and how many sequences a cache holds, by hand."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.software.engine import Scheduler
from slipstick.cost.serving.batching.times import StepTimes
from slipstick.cost.serving.capacity import held_bytes, longest_request, max_batch, room
from slipstick.cost.serving.traffic.requests import Lengths
from slipstick.ir.errors import InfeasibleError, UsageError

Replica = Callable[..., StepTimes]
RESERVED = Scheduler(reserve_output=True, max_num_seqs=10_000)
MEAN = Scheduler(max_num_seqs=10_000)


@pytest.mark.parametrize(
    ("prompt", "output", "cached", "said"),
    [
        (0, 5, 0, "prompt=0; allowed: whole numbers of tokens, 1 or more"),
        (7.5, 5, 0, "prompt=7.5"),
        (10, 0, 0, "output=0"),
        (10, 5, 10, "cached=10; allowed: tokens of the prompt that are cached: 0 up to 9"),
        (10, 5, -1, "cached=-1"),
        (np.array([10.0, -2.0]), 5, 0, "prompt=-2"),
        (float("nan"), 5, 0, "prompt=nan"),
    ],
)
def test_lengths_that_make_no_sense_are_refused(prompt: float, output: float, cached: float, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Lengths(prompt, output, cached)


def test_a_sequence_holds_whole_blocks(replica: Replica) -> None:
    times = replica(kv=1000.0)
    assert held_bytes(times, Scheduler(block_tokens=16), np.array([1, 16, 17, 64])).tolist() == [16e3, 16e3, 32e3, 64e3]
    assert float(held_bytes(times, Scheduler(block_tokens=1), 17)) == 17e3


def test_reserved_room_is_all_tokens_and_the_mean_is_half_of_the_answer(replica: Replica) -> None:
    # 1 MB at 1 kB a token: 1000 tokens. A request ends with 96 + 64 = 160, ten blocks of 16: six fit. While it decodes
    # it looks at 97 .. 159 tokens, 128 on average, and holds half a block more, 135.5: seven fit.
    times = replica(kv=1000.0, free=1e6)
    lengths = Lengths(96, 64)
    assert float(max_batch(times, RESERVED, lengths)) == 6
    assert float(max_batch(times, MEAN, lengths)) == 7
    assert float(max_batch(times, MEAN, lengths, whole=True)) == 6


def test_a_prefix_that_all_share_is_held_once(replica: Replica) -> None:
    # 80 of 160 tokens are shared: (1000 - 80) / 80 = 11.5 sequences instead of 6.25.
    times = replica(kv=1000.0, free=1e6)
    assert float(max_batch(times, RESERVED, Lengths(96, 64, cached=80))) == 6
    assert float(max_batch(times, RESERVED, Lengths(96, 64, cached=80, shared=True))) == 11


def test_the_scheduler_limits_the_batch_too(replica: Replica) -> None:
    times = replica()
    assert float(max_batch(times, Scheduler(max_num_seqs=3), Lengths(96, 64))) == 3
    assert float(max_batch(times, Scheduler(max_num_seqs=512, max_batched_tokens=100), Lengths(96, 64))) == 100


def test_a_request_too_long_for_the_cache_is_refused_with_the_longest_that_fits(replica: Replica) -> None:
    times = replica(kv=1e6, free=2.0**30)
    assert longest_request(times, MEAN) == 1073 // 16 * 16
    said = r"2,000 tokens of prompt and answer need 1.86 GiB, and 1.00 GiB are free; .* has 1,072 tokens"
    with pytest.raises(InfeasibleError, match=said):
        max_batch(times, MEAN, Lengths(1000, 1000))
    assert room(times, MEAN, Lengths(np.array([1000.0, 500.0]), 100)).tolist() == [0.0, 1.0]


def test_no_memory_at_all_says_so(replica: Replica) -> None:
    with pytest.raises(InfeasibleError, match=r"no memory is left for a KV cache: .* take 2\.00 GiB more"):
        max_batch(replica(free=-2 * 2.0**30), MEAN, Lengths(10, 10))


@given(st.floats(1e8, 1e11), st.floats(1.0, 4.0), st.integers(1, 4000), st.integers(1, 4000), st.booleans())
def test_more_room_never_holds_fewer(
    replica: Replica, free: float, more: float, prompt: int, output: int, reserve: bool
) -> None:
    at, lengths = Scheduler(reserve_output=reserve, max_num_seqs=10_000), Lengths(prompt, output)
    assert room(replica(free=free * more), at, lengths) >= room(replica(free=free), at, lengths)
    assert room(replica(free=free), at, Lengths(prompt + 1, output)) <= room(replica(free=free), at, lengths)
