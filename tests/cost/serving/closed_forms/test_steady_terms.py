"""Each term of a steady state, worked out by hand on a replica whose steps take so long a token and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from slipstick.backends.machine.software.engine import Engine
from slipstick.cost.serving.batching.continuous import busiest, life, steady
from slipstick.cost.serving.batching.times import StepTimes
from slipstick.cost.serving.traffic.requests import Lengths

Replica = Callable[..., StepTimes]
Engines = Callable[..., Engine]

# Prompts of 100 tokens, ten decode steps behind the first token, five requests in flight.
FRESH, GAPS, BATCH, TOKEN = 100.0, 10.0, 5.0, 1e-5
LENGTHS = Lengths(100, 11)
# With room for all prompts a life is o + 1 = 11 steps: 4 / 11 prefill interference and 1 + 40 / 11 decodes in each.
STEPS = GAPS + 1.0
PROMPTS = (BATCH - 1.0) / STEPS
DECODES = 1.0 + PROMPTS * GAPS


@pytest.fixture
def linear(replica: Replica) -> StepTimes:
    """A step of n tokens takes n times ten microseconds; attention is free."""
    return replica(read=1e-12, token=TOKEN, fixed=0.0, look=0.0, square=0.0)


def test_a_token_waits_for_its_step_the_host_and_the_prompts_of_others(linear: StepTimes, engine: Engines) -> None:
    found = life(linear, engine(5e-4, 1e-5), BATCH, LENGTHS)
    step = TOKEN * DECODES + 5e-4 + 1e-5 * DECODES
    assert float(found.decodes) == pytest.approx(DECODES)
    assert float(found.tpot_s) == pytest.approx(step + PROMPTS * TOKEN * FRESH, rel=1e-6)
    # The longest gap has a whole prompt in it.
    assert float(found.stall_s) == pytest.approx(step + TOKEN * FRESH, rel=1e-6)
    assert float(found.total_s) == pytest.approx(float(found.first_s) + GAPS * float(found.tpot_s))


def test_the_first_token_waits_for_its_prompt_for_decodes_and_for_prompts_beside_it(
    linear: StepTimes, engine: Engines
) -> None:
    found = life(linear, engine(), BATCH, LENGTHS)
    alone, beside, joined = TOKEN * FRESH, TOKEN * DECODES, PROMPTS * TOKEN * FRESH
    assert float(found.alone_s) == pytest.approx(alone, rel=1e-6)
    assert float(found.first_s) == pytest.approx(alone + beside + joined, rel=1e-6)


def test_what_prompts_do_not_add_to_tokens_comes_before_the_first(linear: StepTimes, engine: Engines) -> None:
    all_wait, some = (life(linear, engine(0.0, 0.0, 0.0, 0.0, x), BATCH, LENGTHS) for x in (1.0, 0.4))
    others = PROMPTS * TOKEN * FRESH
    assert float(all_wait.tpot_s - some.tpot_s) == pytest.approx(0.6 * others, rel=1e-6)
    assert float(some.first_s - all_wait.first_s) == pytest.approx(GAPS * 0.6 * others, rel=1e-6)


def test_a_small_budget_makes_prompts_wait_for_whole_steps(linear: StepTimes, engine: Engines) -> None:
    # 55 requests of 110 tokens in steps of 64: 94.5 steps a life, 100 / 64 of them with the own prompt.
    most, batch = 64.0, 55.0
    chunks, steps = FRESH / most, batch * (FRESH + GAPS) / most
    prompts = (batch - 1.0) / steps
    decodes = 1.0 + prompts * GAPS
    found = life(linear, engine(max_batched_tokens=64), batch, LENGTHS)
    step, others = TOKEN * decodes, prompts * TOKEN * FRESH
    # Nothing fits beside the own chunks: prefill interference take steps before it, all of their time.
    own = TOKEN * FRESH + chunks * TOKEN * decodes + chunks * others
    assert float(found.first_s) == pytest.approx(own + (steps - GAPS - chunks) * (step + others), rel=1e-6)
    # Had all come at once: 55 prompts one behind the other, beside decodes in 100 / 64 steps each.
    burst = TOKEN * FRESH * batch + (batch - 1.0) * FRESH / most * step
    assert float(found.burst_s) == pytest.approx(max(burst, float(found.first_s)), rel=1e-6)


@pytest.mark.parametrize("ranks", [2, 8])
def test_ranks_that_wait_for_one_another_meet_a_prompt_that_is_none_of_their_own(
    linear: StepTimes, engine: Engines, ranks: int
) -> None:
    # Of a rank's own requests one is the one asked for: (B - 1) / N; of the other ranks' none is: B / N each. The mean
    # over ranks is (B - 1 / ranks) / N = (B - 1) / N + (1 - 1 / ranks) / N.
    mean = (BATCH - 1.0 / ranks) / STEPS
    shared = life(replace(linear, coupled=ranks, shared=1.0), engine(), BATCH, LENGTHS)
    assert float(shared.tpot_s) == pytest.approx(TOKEN * DECODES + mean * TOKEN * FRESH, rel=1e-6)
    # What is not shared takes as long as on the rank with most prompts.
    apart = life(replace(linear, coupled=ranks, shared=0.0), engine(), BATCH, LENGTHS)
    most = float(busiest(np.array([mean]), ranks, np.array([1e9]))[0])
    assert most > mean
    assert float(apart.tpot_s) == pytest.approx(TOKEN * DECODES + most * TOKEN * FRESH, rel=1e-6)


@pytest.mark.parametrize(("clients", "lives"), [(4.0, 1.0 / 4.0), (6.0, 1.0), (8.0, 1.0), (9.0, 2.0), (3.0, 0.0)])
def test_requests_beyond_the_batch_come_in_waves(
    linear: StepTimes, engine: Engines, clients: float, lives: float
) -> None:
    """Of four places: a sixth client may wait for a whole life, a ninth for two, the fourth for the next answer."""
    limited = engine(0.0, 0.0, 2e-3, 1e-6, max_num_seqs=4)
    found, alone = steady(linear, limited, clients, LENGTHS), life(linear, limited, min(clients, 4.0), LENGTHS)
    way_in = 2e-3 + 1e-6 * 100
    assert float(found.batch) == min(clients, 4.0)
    wanted = way_in + float(alone.burst_s) + lives * float(alone.total_s)
    assert float(found.ttft_high_s) == pytest.approx(max(wanted, float(found.ttft_s)), rel=1e-9)
    assert wanted > float(found.ttft_s) or clients == 8.0
    assert float(found.ttft_low_s) == pytest.approx(way_in + float(alone.alone_s), rel=1e-9)
    if clients > 4:
        rate = 4.0 / float(alone.total_s)
        assert float(found.requests_per_s) == pytest.approx(rate, rel=1e-9)
        waits = clients / rate - float(alone.total_s) - way_in
        assert float(found.ttft_s) == pytest.approx(way_in + waits + float(alone.first_s), rel=1e-9)


def test_prompts_in_steps_of_their_own_stop_all_decodes(linear: StepTimes, engine: Engines) -> None:
    found = life(linear, engine(5e-4, mixed=False), BATCH, LENGTHS)
    # Five decode in each step; a step of prompts has the host's time too.
    step, prompt = TOKEN * BATCH + 5e-4, TOKEN * FRESH + 5e-4
    assert float(found.tpot_s) == pytest.approx(step + PROMPTS * prompt, rel=1e-6)
    # No prompt of others is beside the own one that decodes: only other prompts are.
    assert float(found.first_s) == pytest.approx(float(found.alone_s) + PROMPTS * prompt, rel=1e-6)
