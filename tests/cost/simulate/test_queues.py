"""The simulation against queueing theory, and against the steady state of a full engine."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.software.engine import Engine, Overheads, Scheduler
from slipstick.cost.serving.batching.continuous import most_throughput, steady
from slipstick.cost.serving.batching.open_loop import at_rate
from slipstick.cost.serving.batching.times import StepTimes
from slipstick.cost.serving.simulate.run import Pool, simulate
from slipstick.cost.serving.traffic.requests import Lengths
from slipstick.cost.serving.traffic.sizes import Fixed, LengthMix
from slipstick.cost.serving.traffic.traffic import closed, poisson

# One prompt a step, whole, and no tokens behind the first: one server whose service is one prefill.
ONE_BY_ONE = Engine(scheduler=Scheduler(mixed=False, chunked_prefill=False, max_num_seqs=1))
PROMPTS = LengthMix(Fixed(2000), Fixed(1))


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_prompts_wait_as_pollaczek_and_khinchine_say(made: Callable[..., StepTimes], load: float) -> None:
    service_s = float(made().prefill_s(2000))
    run = simulate(poisson(load / service_s, PROMPTS, num=20_000, seed=1), Pool(made(), ONE_BY_ONE)).middle(0.02)
    # M/D/1: the mean wait is load / (2 (1 - load)) services.
    assert run.queue.mean == pytest.approx(service_s * load / (2 * (1 - load)), rel=0.06)
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
    one = simulate(poisson(0.7 / service_s, PROMPTS, num=8_000), Pool(made(), ONE_BY_ONE))
    for route, better in (("round-robin", 0.8), ("least-loaded", 0.5)):
        two = simulate(poisson(1.4 / service_s, PROMPTS, num=8_000), Pool(made(), ONE_BY_ONE, 2, route=route))
        # Every second arrival is more even than all of them; the free one of two is better still.
        assert two.queue.mean < better * one.queue.mean


OVER = Overheads(step_s=4e-4, sequence_s=1e-5, prompt_s=3e-3, prompt_token_s=1e-6)
POLICIES = {
    "beside": Scheduler(),
    "chunks": Scheduler(max_batched_tokens=512),
    "apart": Scheduler(mixed=False, chunked_prefill=False),
}


@pytest.mark.parametrize("scheduler", POLICIES.values(), ids=POLICIES.keys())
@pytest.mark.parametrize(("clients", "within"), [(1, 1e-3), (4, 0.005), (32, 0.015)])
def test_clients_spread_out_are_the_steady_state(
    made: Callable[..., StepTimes], clients: int, within: float, scheduler: Scheduler
) -> None:
    times, engine = made(), Engine(scheduler=scheduler, overheads=OVER)
    form = steady(times, engine, clients, Lengths(600, 200))
    traffic = closed(clients, LengthMix(Fixed(600), Fixed(200)), num=25 * clients, ramp_s=float(form.e2el_s))
    run = simulate(traffic, Pool(times, engine)).middle(0.15)
    assert run.tpot.mean == pytest.approx(float(form.tpot_s), rel=within)
    assert run.requests_per_s == pytest.approx(float(form.requests_per_s), rel=within)
    assert form.ttft_low_s * (1 - 1e-9) <= run.ttft.mean <= form.ttft_high_s * (1 + 1e-9)
    assert run.output_tokens_per_s <= clients / run.tpot.mean * (1 + 1e-9)


def test_clients_that_begin_together_go_in_step(made: Callable[..., StepTimes]) -> None:
    # All prompts fall together, and no decode waits for them: TPOT is that of decodes alone, TTFT that of a queue.
    times, engine = made(), Engine(scheduler=POLICIES["apart"])
    run = simulate(closed(32, LengthMix(Fixed(600), Fixed(200)), num=800), Pool(times, engine)).middle()
    # Prompts of 600 run 13 a step: the first 13 wait for two steps more, the next for one, the last six for none.
    first, full, last = (float(times.prefill_s(600, num=n)) for n in (13, 13, 6))
    decode_s = sum(float(times.decode_s(32, 600 + i)) for i in range(1, 200))
    assert run.tpot.mean == pytest.approx((decode_s + (13 * (full + last) + 13 * last) / 32) / 199)
    assert run.ttft.mean == pytest.approx((13 * first + 13 * (first + full) + 6 * (first + full + last)) / 32)


@pytest.mark.parametrize("scheduler", POLICIES.values(), ids=POLICIES.keys())
@pytest.mark.parametrize(("load", "within"), [(0.1, 0.01), (0.5, 0.03)])
def test_random_arrivals_are_what_the_open_loop_says(
    made: Callable[..., StepTimes], load: float, within: float, scheduler: Scheduler
) -> None:
    times, engine, lengths = made(2e8), Engine(scheduler=scheduler, overheads=OVER), Lengths(600, 200)
    rate = load * float(most_throughput(times, engine, lengths).requests_per_s)
    form = at_rate(times, engine, rate, lengths)
    run = simulate(poisson(rate, LengthMix(Fixed(600), Fixed(200)), num=3000), Pool(times, engine)).middle()
    assert run.tpot.mean == pytest.approx(float(form.tpot_s), rel=within)
    assert run.ttft.mean == pytest.approx(float(form.ttft_s), rel=0.15 if scheduler.mixed else 0.05)


@pytest.mark.parametrize(("prompt", "output", "load"), [(200, 100, 0.7), (4000, 60, 0.5), (1500, 400, 0.8)])
def test_mean_waits_where_prompts_run_by_themselves(
    made: Callable[..., StepTimes], prompt: int, output: int, load: float
) -> None:
    # Room for all: the queue for it is a form of its own.
    times, engine = made(2e9), Engine(scheduler=POLICIES["apart"], overheads=OVER)
    lengths = Lengths(prompt, output)
    rate = load * float(most_throughput(times, engine, lengths).requests_per_s)
    run = simulate(poisson(rate, LengthMix(Fixed(prompt), Fixed(output)), num=4000), Pool(times, engine)).middle()
    assert run.ttft.mean == pytest.approx(float(at_rate(times, engine, rate, lengths).ttft_s), rel=0.1)
