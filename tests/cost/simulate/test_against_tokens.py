"""The simulation against the same scheduler run one token at a time."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.software.engine import Engine, Overheads, Scheduler
from slipstick.cost.serving.batching.times import Array, StepTimes
from slipstick.cost.serving.simulate.run import Pool, simulate
from slipstick.cost.serving.traffic.traffic import Traffic

Naive = Callable[[StepTimes, Engine, Traffic], tuple[Array, Array]]
OVER = Overheads(step_s=4e-4, sequence_s=1e-5, prompt_s=3e-3, prompt_token_s=1e-6, interference=0.7)
SCHEDULERS = {
    "chunks beside decodes": Scheduler(max_batched_tokens=256),
    "whole prompts beside decodes": Scheduler(chunked_prefill=False, max_batched_tokens=1024),
    "whole prompts first": Scheduler(chunked_prefill=False, mixed=False, max_batched_tokens=1024),
    "chunks first": Scheduler(mixed=False, max_batched_tokens=256),
    "reserved": Scheduler(reserve_output=True, max_batched_tokens=256),
    "few places": Scheduler(max_num_seqs=3, max_batched_tokens=512),
}


@pytest.mark.parametrize("free_bytes", [1e9, 2.2e6], ids=["plenty", "scarce"])
@pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS.keys())
def test_each_token_comes_when_a_scheduler_by_steps_says(
    made: Callable[..., StepTimes], few: Callable[..., Traffic],
    naive: Naive, scheduler: Scheduler, free_bytes: float,
) -> None:  # fmt: skip
    times, engine, traffic = made(free_bytes), Engine(scheduler=scheduler, overheads=OVER), few(cached=True)
    run = simulate(traffic, Pool(times, engine))
    first_s, finish_s = naive(times, engine, traffic)
    np.testing.assert_allclose(run.served.first_s, first_s, rtol=1e-9)
    np.testing.assert_allclose(run.served.finish_s, finish_s, rtol=1e-9)
    if free_bytes < 1e9 and not scheduler.reserve_output and scheduler.max_num_seqs > 3:
        assert run.preemptions > 0


def test_a_cache_whose_bytes_are_no_line_is_counted_as_it_is(
    made: Callable[..., StepTimes], few: Callable[..., Traffic],
    naive: Naive,
) -> None:  # fmt: skip
    # Behind 300 tokens a token takes a tenth, as where most layers look at a window.
    times, engine = made(1.2e6, knee=300.0), Engine(scheduler=Scheduler(max_batched_tokens=512), overheads=OVER)
    traffic = few(most=200)
    run = simulate(traffic, Pool(times, engine))
    np.testing.assert_allclose(run.served.finish_s, naive(times, engine, traffic)[1], rtol=1e-9)
    assert run.preemptions > 0
    assert run.fullness[0].kv_peak <= 1.0
    assert simulate(traffic, Pool(replace(times, free_bytes=1e9), engine)).preemptions == 0


@settings(max_examples=20)
@given(st.integers(0, 999), st.booleans(), st.booleans(), st.booleans(), st.sampled_from([100, 700]),
       st.sampled_from([5e-3, 5e-2]), st.sampled_from([1, 16, 64]))  # fmt: skip
def test_each_token_comes_when_it_should_whatever_is_chosen(
    made: Callable[..., StepTimes], few: Callable[..., Traffic], naive: Naive, seed: int, mixed: bool, chunked: bool,
    reserve: bool, tokens: int, gap_s: float, block: int,
) -> None:  # fmt: skip
    scheduler = Scheduler("continuous", chunked, mixed, 12, tokens, block_tokens=block, reserve_output=reserve)
    times, engine, traffic = made(1.3e6), Engine(scheduler=scheduler, overheads=OVER), few(30, seed, gap_s)
    run = simulate(traffic, Pool(times, engine))
    np.testing.assert_allclose(run.served.finish_s, naive(times, engine, traffic)[1], rtol=1e-9)
