"""What requests wait for at the ends of load, against arithmetic; what must hold at any load."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.software.engine import Engine, Overheads, Scheduler
from slipstick.cost.serving.batching.times import StepTimes
from slipstick.cost.serving.simulate.result import SimulatedServing
from slipstick.cost.serving.simulate.run import Pool, simulate
from slipstick.cost.serving.traffic.sizes import Fixed, LengthMix, Uniform
from slipstick.cost.serving.traffic.traffic import Traffic, burst, closed, poisson
from slipstick.ir.errors import InfeasibleError, UsageError

OVER = Overheads(step_s=4e-4, sequence_s=1e-5, prompt_s=3e-3, prompt_token_s=1e-6)
ENGINE = Engine(overheads=OVER)
SOME = LengthMix(Fixed(600), Fixed(40))


def laws(run: SimulatedServing, traffic: Traffic) -> None:
    """Every request is served in order of its moments, with all its tokens."""
    served = run.served
    assert len(served.output) == len(traffic)
    np.testing.assert_array_equal(served.output, traffic.requests.output)
    assert (served.arrived_s <= served.start_s).all()
    assert (served.start_s < served.first_s).all()
    assert (served.first_s <= served.finish_s).all()
    assert ((served.finish_s > served.first_s) == (served.output > 1)).all()
    # Each token behind a first one has one gap before it, and gaps add up to the decodes.
    assert run.gaps.sum() == (served.output - 1).sum()
    assert run.gap_s @ run.gaps == pytest.approx((served.finish_s - served.first_s).sum())
    assert 0 < run.fullness[0].kv_mean <= run.fullness[0].kv_peak <= 1 + 1e-9
    assert run.fullness[0].batch_mean <= run.fullness[0].batch_peak


def test_one_request_alone_takes_its_prompt_and_its_decodes(made: Callable[..., StepTimes]) -> None:
    times = made()
    run = simulate(poisson(1e-3, SOME, num=5), Pool(times, ENGINE))
    # On its way in, one step with its prompt, then 39 steps that look at 601 to 639 tokens.
    first_s = 3e-3 + 600e-6 + 4e-4 + float(times.prefill_s(600))
    steps_s = sum(float(times.decode_s(1, 600 + i)) + 4.1e-4 for i in range(1, 40))
    np.testing.assert_allclose(run.ttft_s, first_s)
    np.testing.assert_allclose(run.tpot_s, steps_s / 39)
    np.testing.assert_allclose(run.e2el_s, first_s + steps_s)
    np.testing.assert_allclose(run.queue_s, 3.6e-3)
    assert run.tpot.mean == pytest.approx(run.itl.mean)
    assert run.num_steps == 5 * 40


def test_a_burst_that_fits_is_one_batch(made: Callable[..., StepTimes]) -> None:
    times = made()
    run = simulate(burst(8, SOME), Pool(times, ENGINE))
    first_s = 3e-3 + 600e-6 + 4e-4 + float(times.prefill_s(600, num=8))
    steps_s = sum(float(times.decode_s(8, 600 + i)) + 4.8e-4 for i in range(1, 40))
    np.testing.assert_allclose(run.ttft_s, first_s)
    np.testing.assert_allclose(run.e2el_s, first_s + steps_s)
    assert run.output_tokens_per_s == pytest.approx(8 * 40 / (first_s + steps_s))
    assert run.fullness[0].batch_peak == 8


def test_a_static_batch_ends_before_the_next_begins(made: Callable[..., StepTimes]) -> None:
    times, engine = made(), Engine(scheduler=Scheduler(batching="static", max_num_seqs=4))
    run = simulate(burst(8, LengthMix(Fixed(600), Uniform(2, 60)), seed=1), Pool(times, engine))
    laws(run, burst(8, LengthMix(Fixed(600), Uniform(2, 60)), seed=1))
    longest = int(run.served.output[:4].max())
    # Those that are done keep their place: every step is one of four sequences, also the last.
    prefill_s = float(times.prefill_s(600, num=4))
    steps_s = sum(float(times.decode_s(4, 600 + i)) for i in range(1, longest))
    np.testing.assert_allclose(run.served.start_s[4:], prefill_s + steps_s)
    np.testing.assert_allclose(run.served.first_s[4:], 2 * prefill_s + steps_s)


@pytest.mark.parametrize("mixed", [True, False])
def test_a_prompt_stops_others_for_as_long_as_it_takes(made: Callable[..., StepTimes], mixed: bool) -> None:
    times = made()
    engine = Engine(scheduler=Scheduler(mixed=mixed, chunked_prefill=mixed))
    one = LengthMix(Fixed(600), Fixed(40))
    both = burst(2, one)
    late = Traffic(np.array([0.0, 0.1]), both.requests)
    run = simulate(late, Pool(times, engine))
    decode_s = float(times.decode_s(1, 620))
    grown_s = float(times.step_s(1, 1.0, 600, times.chunk_attention_s(0, 600)) - times.decode_s(1, 1.0))
    stall_s = grown_s if mixed else float(times.prefill_s(600))
    assert run.itl.longest == pytest.approx(decode_s + stall_s, rel=2e-3)
    assert run.ttft_s[1] >= stall_s


def test_more_clients_than_places_wait(made: Callable[..., StepTimes]) -> None:
    times, engine = made(), Engine(scheduler=Scheduler(max_num_seqs=4))
    run = simulate(closed(8, SOME, num=64), Pool(times, engine))
    assert run.fullness[0].batch_peak == 4
    # Half of every client's time is waiting for a place.
    middle = run.middle()
    assert middle.queue.mean / middle.e2el.mean == pytest.approx(0.5, abs=0.02)


def test_clients_think_before_they_ask_again(made: Callable[..., StepTimes]) -> None:
    alone = simulate(closed(1, SOME, num=10), Pool(made(), ENGINE))
    slow = simulate(closed(1, SOME, num=10, think_s=2.0), Pool(made(), ENGINE))
    np.testing.assert_allclose(slow.e2el_s, alone.e2el_s)
    assert slow.duration_s == pytest.approx(alone.duration_s + 9 * 2.0)


def test_a_turn_of_a_session_waits_for_the_one_before(made: Callable[..., StepTimes]) -> None:
    requests = burst(5, SOME).requests
    traffic = Traffic(np.zeros(5), requests, session=np.array([0, 1, 0, -1, -1]))
    run = simulate(traffic, Pool(made(), ENGINE))
    assert run.served.arrived_s[2] == run.served.finish_s[0]
    # -1 is no session: neither of the last two waits for the other.
    np.testing.assert_array_equal(run.served.arrived_s[[0, 1, 3, 4]], 0.0)


def test_tokens_in_the_cache_cost_no_prefill(made: Callable[..., StepTimes]) -> None:
    times = made()
    run = simulate(poisson(1e-3, LengthMix(Fixed(600), Fixed(2), cached=0.5), num=3), Pool(times, Engine()))
    np.testing.assert_allclose(run.ttft_s, float(times.prefill_s(600, 300)))


def test_a_shared_prefix_is_held_once(made: Callable[..., StepTimes]) -> None:
    # Of 640 tokens 512 are the same for all: 512 kB once and 128 kB each.
    sizes, times = LengthMix(Fixed(608), Fixed(32), cached=512 / 608), made(512e3 + 5 * 128e3)
    engine = Engine(scheduler=Scheduler(reserve_output=True))
    assert simulate(burst(20, sizes), Pool(times, engine, shared_prefix=True)).fullness[0].batch_peak == 5
    assert simulate(burst(20, sizes), Pool(times, engine)).fullness[0].batch_peak == 1


def test_a_request_that_no_cache_holds_is_refused(made: Callable[..., StepTimes]) -> None:
    with pytest.raises(InfeasibleError, match=r"request 1: 600 tokens of prompt and 40 of answer.* has 496 tokens"):
        simulate(burst(2, SOME), Pool(made(5e5), ENGINE))
    with pytest.raises(InfeasibleError, match="not even one block fits"):
        simulate(burst(2, SOME), Pool(made(-1.0), ENGINE))


def test_what_a_pool_cannot_be_is_refused(made: Callable[..., StepTimes]) -> None:
    with pytest.raises(UsageError, match="1 replica or more, not 0"):
        Pool(made(), ENGINE, replicas=0)
    with pytest.raises(UsageError, match="allowed: round-robin, least-loaded"):
        Pool(made(), ENGINE, route="random")


@given(
    st.integers(0, 1000), st.booleans(), st.booleans(), st.booleans(), st.sampled_from(["static", "continuous"]),
    st.sampled_from([1, 3]), st.sampled_from([1, 4]), st.sampled_from([200, 8192]), st.sampled_from([1e6, 1e9]),
)  # fmt: skip
def test_laws_hold_whatever_the_scheduler(
    made: Callable[..., StepTimes], few: Callable[..., Traffic], seed: int, mixed: bool, chunked: bool, reserve: bool,
    batching: str, replicas: int, groups: int, tokens: int, free_bytes: float,
) -> None:  # fmt: skip
    scheduler = Scheduler(batching, chunked, mixed, max_num_seqs=16, max_batched_tokens=tokens, reserve_output=reserve)
    traffic = few(num=40, seed=seed, cached=True)
    pool = Pool(made(free_bytes * groups, groups=groups, pace=0.3), Engine(scheduler=scheduler, overheads=OVER),
                replicas)  # fmt: skip
    laws(simulate(traffic, pool), traffic)


@settings(max_examples=15)
@given(st.integers(0, 1000), st.sampled_from([1.2e6, 2e6, 4e6]))
def test_more_room_is_never_later_on_average(
    made: Callable[..., StepTimes], few: Callable[..., Traffic], seed: int, free_bytes: float
) -> None:
    # Requests alike: with requests of all sizes, who is let in earlier can be in the way of shorter ones.
    engine = Engine(scheduler=Scheduler(reserve_output=True), overheads=OVER)
    traffic = poisson(30.0, SOME, num=40, seed=seed)
    less, more = (simulate(traffic, Pool(made(n), engine)) for n in (free_bytes, 2 * free_bytes))
    assert more.e2el.mean <= less.e2el.mean * (1 + 1e-9)


def test_the_same_seed_gives_the_same_run(made: Callable[..., StepTimes]) -> None:
    runs = [simulate(poisson(40.0, SOME, num=200, seed=3), Pool(made(3e6), ENGINE, 2)) for _ in range(2)]
    np.testing.assert_array_equal(runs[0].served.finish_s, runs[1].served.finish_s)
    other = simulate(poisson(40.0, SOME, num=200, seed=4), Pool(made(3e6), ENGINE, 2))
    assert (other.served.finish_s != runs[0].served.finish_s).any()


def test_steps_are_kept_up_to_a_number_and_fill_the_time(made: Callable[..., StepTimes]) -> None:
    traffic = poisson(20.0, SOME, num=50)
    run = simulate(traffic, Pool(made(), ENGINE), most_steps=10_000)
    busy = sum(step.length_s for step in run.steps)
    assert busy == pytest.approx(run.fullness[0].busy * run.duration_s)
    assert sum(step.num for step in run.steps) == run.num_steps
    assert sum(step.prompt_tokens for step in run.steps) == 50 * 600
    ends = [step.start_s + step.length_s for step in run.steps]
    assert all(start.start_s >= end - 1e-12 for start, end in zip(run.steps[1:], ends, strict=False))
    assert len(simulate(traffic, Pool(made(), ENGINE), most_steps=7).steps) == 7
