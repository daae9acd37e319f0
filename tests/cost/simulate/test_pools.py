"""Several groups: replicas, pipeline stages, disaggregated prefill and decode; rounds that make several tokens."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.software.engine import Engine, Overheads, Scheduler
from slipstick.cost.serving.batching.times import Curve, StepTimes
from slipstick.cost.serving.simulate.room import Room
from slipstick.cost.serving.simulate.rounds import Rounds
from slipstick.cost.serving.simulate.run import Pool, Transfer, simulate, simulate_apart
from slipstick.cost.serving.traffic.sizes import Fixed, LengthMix, Uniform
from slipstick.cost.serving.traffic.traffic import Traffic, burst, closed, poisson
from slipstick.ir.errors import UsageError

OVER = Overheads(step_s=4e-4, sequence_s=1e-5, prompt_s=3e-3, prompt_token_s=1e-6)
ENGINE = Engine(overheads=OVER)
SOME = LengthMix(Fixed(600), Fixed(40))
SENT = Transfer(bytes_per_s=10e9, latency_s=1e-5)


def test_a_second_replica_serves_every_second_request(made: Callable[..., StepTimes]) -> None:
    one = simulate(burst(4, SOME), Pool(made(), ENGINE))
    two = simulate(burst(8, SOME), Pool(made(), ENGINE, 2, route="round-robin"))
    np.testing.assert_allclose(two.e2el_s[::2], one.e2el_s)
    np.testing.assert_allclose(two.e2el_s[1::2], one.e2el_s)
    assert two.requests_per_s == pytest.approx(2 * one.requests_per_s)
    assert two.fullness[0].batch_mean == pytest.approx(one.fullness[0].batch_mean)


def test_one_request_passes_all_stages_and_many_share_them(made: Callable[..., StepTimes]) -> None:
    # Four stages of which the slowest takes 0.3 of a pass: four groups at once are 1.2 passes apart each.
    alone = simulate(burst(1, SOME), Pool(made(), Engine()))
    piped = simulate(burst(1, SOME), Pool(made(groups=4, pace=0.3), Engine()))
    np.testing.assert_allclose(piped.e2el_s, alone.e2el_s)
    full = simulate(closed(4, SOME, num=80), Pool(made(groups=4, pace=0.3), Engine()))
    # Each first step begins before the others are there: all later ones are 1.2 times as long.
    np.testing.assert_allclose(full.tpot_s[8:72], 1.2 * alone.tpot_s[0])
    assert full.fullness[0].batch_peak == 4


def test_groups_have_their_part_of_the_places_and_of_the_cache(made: Callable[..., StepTimes]) -> None:
    engine = Engine(scheduler=Scheduler(max_num_seqs=8, reserve_output=True))
    assert simulate(burst(30, SOME), Pool(made(groups=4, pace=0.25), engine)).fullness[0].batch_peak == 8
    assert simulate(burst(30, SOME), Pool(made(4 * 640e3, 4, 0.25), engine)).fullness[0].batch_peak == 4


def test_prompts_and_answers_apart_one_request(made: Callable[..., StepTimes]) -> None:
    times, alone = made(), simulate(burst(1, SOME), Pool(made(), ENGINE))
    run = simulate_apart(burst(1, SOME), Pool(times, ENGINE), Pool(times, ENGINE), SENT)
    # 600 tokens of 1 kB over 10 GB/s.
    sent_s = 1e-5 + 600e3 / 10e9
    assert run.ttft.mean == pytest.approx(alone.ttft.mean + sent_s)
    assert run.tpot.mean == pytest.approx(alone.tpot.mean)
    assert Transfer(10e9, 1e-5, streamed=True, layers=6).time_s(np.array([600e3])) == pytest.approx(1e-5 + 1e-5)


def test_no_decode_waits_for_a_prompt_where_they_are_apart(made: Callable[..., StepTimes]) -> None:
    times, traffic = made(), poisson(40.0, LengthMix(Fixed(2000), Fixed(100)), num=400)
    together = simulate(traffic, Pool(times, ENGINE, 2))
    apart = simulate_apart(traffic, Pool(times, ENGINE), Pool(times, ENGINE), SENT)
    longest = float(times.decode_s(apart.fullness[1].batch_peak, 2100)) + 4e-4 + 1e-5 * apart.fullness[1].batch_peak
    # A request may come while a step runs: its first gap is up to two steps.
    assert apart.itl.longest <= 2 * longest
    assert apart.itl.p99 < together.itl.p99
    assert len(apart.fullness) == 2
    assert apart.gaps.sum() == 400 * 99
    assert (apart.served.finish_s > apart.served.first_s).all()


def test_clients_of_separate_pools_wait_for_their_answers(made: Callable[..., StepTimes]) -> None:
    run = simulate_apart(closed(4, SOME, num=40), Pool(made(), ENGINE), Pool(made(), ENGINE), SENT)
    assert run.fullness[0].batch_peak + run.fullness[1].batch_peak >= 4
    in_flight = run.requests_per_s * run.e2el.mean
    assert in_flight == pytest.approx(4.0, rel=0.05)


def test_a_full_cache_of_answers_puts_back_and_still_serves_all(made: Callable[..., StepTimes]) -> None:
    sizes = LengthMix(Uniform(100, 600), Uniform(1, 200))
    run = simulate_apart(burst(60, sizes), Pool(made(), ENGINE), Pool(made(2.4e6), ENGINE), SENT)
    assert run.preemptions > 0
    assert run.fullness[1].kv_peak <= 1.0 + 1e-9
    assert run.gaps.sum() == (run.served.output - 1).sum()


def test_a_round_costs_its_drafts_and_all_tokens_through_the_weights(made: Callable[..., StepTimes]) -> None:
    times = made()
    draft_s = Curve(np.array([1.0, 64.0]), np.array([1e-3, 2e-3]))
    # All drafts are kept: five tokens a round; 40 tokens behind the first are eight rounds.
    rounds = Rounds(4, 1.0, draft_s)
    run = simulate(burst(1, LengthMix(Fixed(600), Fixed(41))), Pool(times, Engine(), rounds=rounds))
    context = 600 + 5 * (1 + 8) / 2
    round_s = 1e-3 + float(times.decode_rest(5) + times.decode_attention(1, context))
    assert run.e2el.mean - run.ttft.mean == pytest.approx(8 * round_s)
    assert run.tpot.mean == pytest.approx(round_s / 5)
    assert run.itl.mean == pytest.approx(round_s)


@pytest.mark.parametrize("drawn", [False, True])
def test_rounds_make_the_mean_that_leviathan_gives(made: Callable[..., StepTimes], drawn: bool) -> None:
    rounds = Rounds(4, 0.8, drawn=drawn)
    needed = rounds.needed(np.full(200, 1000, dtype=np.int64))
    # (1 - 0.8^5) / (1 - 0.8) = 3.3616 a round; the last one may make more than is left.
    assert needed.mean() == pytest.approx(1000 / 3.3616, rel=0.01)
    assert (rounds.needed(np.array([0, 1])) == [0, 1]).all()
    assert (Rounds(4, 0.0, drawn=drawn).needed(np.array([7])) == 7).all()


@settings(max_examples=20)
@given(st.integers(0, 100), st.booleans(), st.sampled_from([1.2e6, 1e9]))
def test_rounds_lose_no_request(
    made: Callable[..., StepTimes], few: Callable[..., Traffic], seed: int, drawn: bool, free_bytes: float
) -> None:
    traffic = few(num=30, seed=seed)
    run = simulate(traffic, Pool(made(free_bytes), ENGINE, rounds=Rounds(3, 0.6, drawn=drawn)))
    assert (run.served.finish_s >= run.served.first_s).all()
    assert run.fullness[0].kv_peak <= 1.0 + 1e-9
    plain = simulate(traffic, Pool(made(free_bytes), ENGINE))
    assert run.num_steps <= plain.num_steps or run.preemptions + plain.preemptions > 0


def test_drafts_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match=r"draft of 0 tokens with acceptance 0\.5"):
        Rounds(0, 0.5)
    with pytest.raises(UsageError, match=r"acceptance 1\.5"):
        Rounds(2, 1.5)


def test_a_step_that_lacks_half_a_byte_does_not_fit(made: Callable[..., StepTimes]) -> None:
    # 1 kB a token in blocks of 16: three blocks are half a byte too many, and a second is full after 16 steps.
    room = Room(made(48_000.0 - 0.5), Scheduler(block_tokens=16), 1000)
    room.grow(16.0, 1.0, 0)
    assert room.steps(0, 100) == 16
    assert room.fits(15_999.0, 0)
    assert Room(made(48_000.0), Scheduler(block_tokens=16), 1000).fits(48_000.0, 0)


def test_who_started_last_in_the_first_step_is_put_back(
    made: Callable[..., StepTimes], naive: Callable[..., tuple[np.ndarray, np.ndarray]]
) -> None:
    # Four prompts of 64 tokens grow to 164 each; there is room for 400 tokens.
    times, engine, traffic = made(400_000.0), Engine(scheduler=Scheduler()), burst(4, LengthMix(Fixed(64), Fixed(100)))
    run = simulate(traffic, Pool(times, engine))
    assert run.preemptions > 0
    first_s, finish_s = naive(times, engine, traffic)
    np.testing.assert_allclose(run.served.first_s, first_s, rtol=1e-9)
    np.testing.assert_allclose(run.served.finish_s, finish_s, rtol=1e-9)
