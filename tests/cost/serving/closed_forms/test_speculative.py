"""Speculative decoding: published numbers of tokens a round, rounds by hand, and drafts that do nothing."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.software.engine import Engine
from slipstick.cost.serving.batching.continuous import steady
from slipstick.cost.serving.batching.speculative import Drafter, Speculation, speculate, tokens_per_round
from slipstick.cost.serving.batching.steps import decode_step_s
from slipstick.cost.serving.batching.times import StepTimes
from slipstick.cost.serving.capacity import max_batch
from slipstick.cost.serving.traffic.requests import Lengths
from slipstick.ir.errors import UsageError

Replica = Callable[..., StepTimes]
Engines = Callable[..., Engine]
LENGTHS = Lengths(512, 257)
FREE = Drafter()


@given(st.floats(0.0, 1.0), st.integers(0, 12))
def test_tokens_of_a_round_are_a_sum_of_powers(acceptance: float, length: int) -> None:
    expected = sum(acceptance**i for i in range(length + 1))
    assert float(tokens_per_round(acceptance, length)) == pytest.approx(expected, rel=1e-6)


def test_a_round_by_hand(replica: Replica, engine: Engines) -> None:
    # 8 sequences, 4 drafts: the model runs 40 tokens over 640.5 of context each, 6 ms + 8 x 640.5 x 0.1 us; the draft
    # model 4 steps of 0.5 + 0.1 ms and a tenth of the attention; the host 0.5 ms, 8 x 10 us, and 4 x 0.1 ms.
    small = replica(read=5e-4, token=2e-6, fixed=1e-4, look=1e-8, kv=1e4)
    drafter = Drafter(times=small, step_s=1e-4, weight_bytes=1e9)
    found = speculate(replica(), engine(5e-4, 1e-5), Speculation(drafter=drafter, length=4, acceptance=0.8))
    round_s = 6e-3 + 8 * 640.5e-7 + 4 * (6e-4 + 8 * 640.5e-8) + 5e-4 + 8e-5 + 4e-4
    token = decode_step_s(found.times, found.engine.overheads, 8, LENGTHS)
    assert float(token) == pytest.approx(round_s / 3.3616, rel=1e-6)
    seen = found.seen(steady(found.times, found.engine, 1, LENGTHS))
    assert float(seen.itl_s) == pytest.approx(3.3616 * float(seen.tpot_s))
    assert float(found.times.kv_bytes(100.0)) == pytest.approx(100 * (1.3e5 + 1e4))
    assert found.times.free_bytes == 4e10 - 1e9
    # The draft model reads prompts too: 512 tokens are 10.24 + 1 ms of the model, 1.024 + 0.1 ms of the other.
    assert float(found.times.prompt_rest(512.0)) == pytest.approx(11.24e-3 + 1.124e-3, rel=1e-6)


def test_a_head_of_the_model_takes_its_share(replica: Replica, engine: Engines) -> None:
    # One head, one layer of 50: 1 + 1 / 50 of a step makes 1.85 tokens.
    one = Speculation(drafter=Drafter(share=0.02), length=1, acceptance=0.85)
    found, plain = speculate(replica(), engine(), one), replica()
    assert float(decode_step_s(found.times, engine().overheads, 1, LENGTHS)) == pytest.approx(
        1.02 / 1.85 * float(decode_step_s(plain, engine().overheads, 1, LENGTHS))
    )
    assert max_batch(found.times, engine(max_num_seqs=9999).scheduler, LENGTHS) < max_batch(
        plain, engine(max_num_seqs=9999).scheduler, LENGTHS
    )


def test_a_draft_of_no_tokens_does_nothing(replica: Replica, engine: Engines) -> None:
    times, at = replica(), engine(5e-4)
    found = speculate(times, at, Speculation(drafter=Drafter(share=0.5), length=0, acceptance=0.9))
    assert (found.times, found.engine, found.tokens) == (times, at, 1.0)


@given(st.floats(0.0, 0.99), st.floats(0.0, 0.01), st.integers(1, 8), st.integers(1, 64))
def test_a_draft_that_is_right_more_often_never_slows(
    replica: Replica, engine: Engines, acceptance: float, more: float, length: int, batch: int
) -> None:
    both = [
        speculate(replica(), engine(5e-4), Speculation(drafter=FREE, length=length, acceptance=a))
        for a in (acceptance, acceptance + more)
    ]
    slow, fast = (decode_step_s(each.times, each.engine.overheads, batch, LENGTHS) for each in both)
    assert float(fast) <= float(slow) * (1 + 1e-9)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match=r"acceptance=1\.5; allowed: a probability"):
        Speculation(drafter=FREE, length=2, acceptance=1.5)
    with pytest.raises(UsageError, match="length=-1"):
        Speculation(drafter=FREE, length=-1, acceptance=0.5)
    with pytest.raises(UsageError, match="share=-1 of a drafter"):
        Drafter(share=-1)


def test_one_drafter_is_given(replica: Replica) -> None:
    with pytest.raises(UsageError, match="give one of them"):
        Drafter(times=replica(), share=0.1)
