"""The simulation against queueing theory, and against the steady state of a full engine."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.engine import Engine, Overheads, Scheduler
from slipstick.cost.serving.simulate.run import Pool, simulate
from slipstick.cost.serving.sizes import Fixed, Mix
from slipstick.cost.serving.times import StepTimes
from slipstick.cost.serving.traffic import closed, poisson

# One prompt a step, whole, and no tokens behind the first: one server whose service is one prefill.
ONE_BY_ONE = Engine(scheduler=Scheduler(mixed=False, chunked_prefill=False, max_num_seqs=1))
PROMPTS = Mix(Fixed(2000), Fixed(1))


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_prompts_wait_as_pollaczek_and_khinchine_say(made: Callable[..., StepTimes], load: float) -> None:
    service_s = float(made().prefill_s(2000))
    run = simulate(poisson(load / service_s, PROMPTS, num=40_000, seed=1), Pool(made(), ONE_BY_ONE)).middle(0.02)
    # M/D/1: the mean wait is load / (2 (1 - load)) services.
    assert run.queue.mean == pytest.approx(service_s * load / (2 * (1 - load)), rel=0.05)
    assert run.ttft.mean == pytest.approx(run.queue.mean + service_s)
    assert run.fullness[0].busy == pytest.approx(load, rel=0.02)


@settings(max_examples=10)
@given(st.integers(0, 100), st.floats(0.05, 0.9), st.floats(1.05, 1.5))
def test_a_higher_rate_is_never_faster(made: Callable[..., StepTimes], seed: int, load: float, more: float) -> None:
    rate = load / float(made().prefill_s(2000))
    low, high = (
        simulate(poisson(r, PROMPTS, num=300, seed=seed), Pool(made(), ONE_BY_ONE)) for r in (rate, rate * more)
    )
    assert high.ttft.mean >= low.ttft.mean * (1 - 1e-9)
    assert (high.ttft_s >= low.ttft_s - 1e-9).all()


def test_two_replicas_wait_less_than_one_of_half_the_load(made: Callable[..., StepTimes]) -> None:
    service_s = float(made().prefill_s(2000))
    one = simulate(poisson(0.7 / service_s, PROMPTS, num=20_000), Pool(made(), ONE_BY_ONE))
    for route, better in (("round-robin", 0.8), ("least-loaded", 0.5)):
        two = simulate(poisson(1.4 / service_s, PROMPTS, num=20_000), Pool(made(), ONE_BY_ONE, 2, route=route))
        # Every second arrival is more even than all of them; the free one of two is better still.
        assert two.queue.mean < better * one.queue.mean


@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("clients", [4, 32])
def test_a_full_engine_is_in_its_steady_state(made: Callable[..., StepTimes], clients: int, mixed: bool) -> None:
    """With B requests of equal lengths always under way every request sees B - 1 prompts of others in its o steps."""
    times, prompt, output, step_s = made(), 600, 200, 4e-4
    engine = Engine(scheduler=Scheduler(mixed=mixed), overheads=Overheads(step_s=step_s))
    run = simulate(closed(clients, Mix(Fixed(prompt), Fixed(output)), num=60 * clients), Pool(times, engine)).middle()
    decode_s = float(np.mean([times.decode_s(clients, prompt + i) for i in range(1, output)])) + step_s
    if mixed:
        prompt_s = float(
            times.step_s(clients, 1.0, prompt, times.chunk_attention_s(0, prompt)) - times.decode_s(clients, 1.0)
        )
    else:
        prompt_s = float(times.prefill_s(prompt)) + step_s
    tpot_s = decode_s + (clients - 1) / output * prompt_s
    assert run.tpot.mean == pytest.approx(tpot_s, rel=0.03)
    assert run.requests_per_s == pytest.approx(clients / (output * tpot_s + prompt_s * mixed), rel=0.04)
    assert run.output_tokens_per_s <= clients / run.tpot.mean * (1 + 1e-9)
