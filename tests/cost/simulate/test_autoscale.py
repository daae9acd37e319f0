"""Replicas that come and go with the load: laws of what is answered, limits, closed forms, and the published rule."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.software.engine import Engine, Overheads, Scheduler
from slipstick.cost.serving.batching.times import StepTimes
from slipstick.cost.serving.simulate.autoscale import Autoscaling, Scaler
from slipstick.cost.serving.simulate.failures import ReplicaFailures
from slipstick.cost.serving.simulate.run import Pool, Transfer, simulate, simulate_apart
from slipstick.cost.serving.traffic.sizes import Fixed, LengthMix
from slipstick.cost.serving.traffic.traffic import Traffic, burst, closed, poisson
from slipstick.cost.serving.traffic.varying import diurnal_traffic, stepped_traffic
from slipstick.ir.errors import UsageError

OVER = Overheads(step_s=4e-4, sequence_s=1e-5, prompt_s=3e-3, prompt_token_s=1e-6)
SOME = LengthMix(Fixed(600), Fixed(40))
# Looks often, and acts at once.
QUICK = Autoscaling(least=1, most=4, target=4.0, interval_s=0.2, down_s=0.0, startup_s=0.0, tolerance=0.0)


def scaled(pool: Pool, rule: Autoscaling) -> Pool:
    return replace(pool, replicas=rule.most, autoscaling=rule)


@given(
    seed=st.integers(0, 1000),
    least=st.integers(0, 2),
    more=st.integers(0, 3),
    startup_s=st.sampled_from([0.0, 0.3, 2.0]),
    windows=st.tuples(st.sampled_from([0.0, 0.5]), st.sampled_from([0.0, 1.0])),
    of=st.sampled_from(["concurrency", "rps"]),
    groups=st.sampled_from([1, 2]),
    tight=st.booleans(),
    apart=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_each_request_is_answered_once_and_no_token_is_lost_or_made_twice(
    made: Callable[..., StepTimes],
    few: Callable[..., Traffic],
    seed: int,
    least: int,
    more: int,
    startup_s: float,
    windows: tuple[float, float],
    of: str,
    groups: int,
    tight: bool,
    apart: bool,
) -> None:
    rule = Autoscaling(
        least=least,
        most=max(least + more, 1),
        target=3.0,
        of=of,
        interval_s=0.2,
        up_s=windows[0],
        down_s=windows[1],
        startup_s=startup_s,
    )
    pool = scaled(Pool(made(3e6 * groups if tight else 1e9, groups), Engine(overheads=OVER)), rule)
    traffic = few(40, seed, 0.05)
    run = simulate_apart(traffic, pool, pool, Transfer(1e9)) if apart else simulate(traffic, pool)
    served = run.served
    assert (served.arrived_s < served.start_s).all()
    assert (served.start_s < served.first_s).all()
    assert (served.first_s <= served.finish_s).all()
    assert run.gaps.sum() == (traffic.requests.output - 1).sum()
    assert run.gap_s @ run.gaps == pytest.approx((served.finish_s - served.first_s).sum())
    assert len(run.scaled) == (2 if apart else 1)
    for one in run.scaled:
        assert all(least <= num <= rule.most for num in one.held)
        assert all(now <= held for now, held in zip(one.serving, one.held, strict=True))
        assert one.mean_serving <= one.mean <= one.most


@given(seed=st.integers(0, 1000), num=st.integers(1, 3), of=st.sampled_from(["concurrency", "rps"]))
@settings(max_examples=20, deadline=None)
def test_as_many_at_least_as_at_most_is_a_fixed_fleet_to_the_last_bit(
    made: Callable[..., StepTimes], few: Callable[..., Traffic], seed: int, num: int, of: str
) -> None:
    traffic, pool = few(60, seed), Pool(made(1e8), Engine(overheads=OVER), num)
    fixed = simulate(traffic, pool)
    run = simulate(traffic, scaled(pool, Autoscaling(least=num, most=num, target=2.0, of=of, interval_s=0.1)))
    for name in ("arrived_s", "start_s", "first_s", "finish_s", "preemptions"):
        np.testing.assert_array_equal(getattr(run.served, name), getattr(fixed.served, name))
    assert run.fullness == fixed.fullness
    assert (run.scaled[0].mean, run.scaled[0].mean_serving, run.scaled[0].starts) == (num, num, 0)


@pytest.mark.parametrize("rate", [3.0, 11.0, 27.0])
def test_a_steady_rate_holds_its_requests_over_those_of_a_replica(made: Callable[..., StepTimes], rate: float) -> None:
    # Requests a second that are alike: the count in an interval is that of a Poisson process, far from the next step.
    rule = Autoscaling(least=1, most=6, target=6.0, of="rps", interval_s=30.0, down_s=0.0, startup_s=0.0, initial=3)
    traffic = poisson(rate, LengthMix(Fixed(64), Fixed(4)), num=int(rate * 3000))
    run = simulate(traffic, scaled(Pool(made(), Engine()), rule))
    assert run.scaled[0].mean == pytest.approx(math.ceil(rate / 6.0), rel=0.03)


def test_a_rate_that_changes_takes_the_integral_of_its_replicas(made: Callable[..., StepTimes]) -> None:
    steps = [(4.0, 600.0), (16.0, 300.0), (10.0, 600.0), (4.0, 500.0)]
    rule = Autoscaling(least=1, most=4, target=6.0, of="rps", interval_s=20.0, down_s=0.0, startup_s=0.0, tolerance=0.0)
    traffic = stepped_traffic(steps, LengthMix(Fixed(64), Fixed(4)), seed=2)
    run = simulate(traffic, scaled(Pool(made(), Engine()), rule))
    expected = sum(math.ceil(rate / 6.0) * length_s for rate, length_s in steps)
    assert run.scaled[0].mean * run.scaled[0].span_s == pytest.approx(expected, rel=0.03)


def test_without_delays_all_that_come_find_replicas_at_once(made: Callable[..., StepTimes]) -> None:
    traffic = diurnal_traffic(40.0, 4.0, 120.0, 120.0, SOME)
    pool, most = Pool(made(), Engine(overheads=OVER)), 6
    quick = replace(QUICK, most=most, interval_s=0.01)
    fixed, limit = simulate(traffic, replace(pool, replicas=most)), simulate(traffic, scaled(pool, quick))
    late = [simulate(traffic, scaled(pool, replace(quick, startup_s=s))).ttft.p99 for s in (1.0, 8.0)]
    assert limit.scaled[0].mean < 0.8 * most
    # TTFT of a fleet that is always there, nearly, and worse with every second that a replica takes to start.
    assert limit.ttft.p99 < 2.0 * fixed.ttft.p99
    assert limit.ttft.p99 < late[0] < late[1]


@given(seed=st.integers(0, 300), most=st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_more_replicas_at_most_answer_as_many_and_a_closed_loop_no_fewer_a_second(
    made: Callable[..., StepTimes], seed: int, most: int
) -> None:
    # All requests are answered whatever the most; with clients who wait, the run is no longer for one more replica.
    traffic = closed(24, SOME, num=240, seed=seed, ramp_s=1.0)
    pool = Pool(made(), Engine(scheduler=Scheduler(max_num_seqs=4)))
    less, more = (simulate(traffic, scaled(pool, replace(QUICK, most=most + k))) for k in (0, 1))
    assert len(less.served.output) == len(more.served.output) == 240
    assert more.duration_s <= less.duration_s * 1.01


def test_a_replica_starts_late_is_paid_from_then_on_and_is_emptied_before_it_goes(
    made: Callable[..., StepTimes],
) -> None:
    # 40 at once: at the first look, 1 s, three more are asked for; they serve from 4 s on and go once all is answered.
    traffic = burst(40, LengthMix(Fixed(600), Fixed(2000)))
    rule = replace(QUICK, interval_s=1.0, startup_s=3.0, target=10.0)
    run = simulate(traffic, scaled(Pool(made(), Engine()), rule))
    one = run.scaled[0]
    assert one.at_s[:3] == (0.0, 1.0, 4.0)
    assert (one.held[:3], one.serving[:3], one.starts) == ((1, 4, 4), (1, 1, 4), 3)
    # They came when all had gone to the first: they are idle, and the last ones go at the next look that wants fewer.
    assert one.mean * one.span_s == pytest.approx(1.0 + 4.0 * (one.span_s - 1.0), rel=1e-9)


def test_with_none_at_least_requests_wait_for_the_first(made: Callable[..., StepTimes]) -> None:
    rule = replace(QUICK, least=0, interval_s=1.0, startup_s=2.5)
    run = simulate(burst(1, SOME), scaled(Pool(made(), Engine()), rule))
    alone = simulate(burst(1, SOME), Pool(made(), Engine()))
    assert run.ttft.mean == pytest.approx(1.0 + 2.5 + alone.ttft.mean)
    assert run.scaled[0].held[:2] == (0, 1)


def test_windows_choose_as_the_controller_does() -> None:
    # Kubernetes' KEP-853: with a window of ten looks to scale down, [10, 9, 8, 9, 9, 8, 9, 8, 9] and then 8 leave 10
    # replicas, and 7 after it makes them 9. A target of 1 makes requests in flight the recommendation itself.
    rule = Autoscaling(
        least=1, most=10, target=1.0, interval_s=60.0, down_s=600.0, startup_s=0.0, tolerance=0.0, initial=10
    )
    scaler, found = Scaler(rule), list[int]()
    for asked in (9, 8, 9, 9, 8, 9, 8, 9, 8, 7):
        scaler.step(asked)
        found.append(len(scaler.up))
    assert found == [10] * 9 + [9]


@pytest.mark.parametrize(
    ("load", "replicas", "wanted"),
    # Its page: ceil(current replicas x metric / target); 200m over 100m doubles, 50m halves; 0.1 is left alone.
    [(4 * 200.0, 4, 8), (4 * 50.0, 4, 2), (4 * 109.0, 4, 4), (4 * 111.0, 4, 5), (0.0, 4, 1), (99 * 100.0, 4, 16)],
)
def test_the_wanted_number_is_that_of_the_published_formula(load: float, replicas: int, wanted: int) -> None:
    assert Autoscaling(least=1, most=16, target=100.0).wanted(load, replicas) == wanted


def test_what_cannot_be_is_refused(made: Callable[..., StepTimes]) -> None:
    pool = Pool(made(), Engine(), 4)
    with pytest.raises(UsageError, match="both at once"):
        replace(pool, autoscaling=QUICK, failures=ReplicaFailures(1e3, 1.0))
    with pytest.raises(UsageError, match="up to 4 replicas of a pool of 2"):
        replace(pool, replicas=2, autoscaling=QUICK)
    for wrong in (
        {"least": 5},
        {"most": 0, "least": 0},
        {"of": "queue"},
        {"target": 0.0},
        {"interval_s": 0.0},
        {"startup_s": -1.0},
        {"initial": 9},
        {"down_s": math.inf},
    ):
        with pytest.raises(UsageError, match="autoscaling"):
            replace(QUICK, **wrong)
