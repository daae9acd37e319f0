"""Replicas that fail: laws of what is answered, and the share of the time that renewal theory says."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.software.engine import Engine, Overheads, Scheduler
from slipstick.cost.serving.batching.times import StepTimes
from slipstick.cost.serving.simulate.failures import Outages, ReplicaFailures
from slipstick.cost.serving.simulate.run import Pool, Transfer, simulate, simulate_apart
from slipstick.cost.serving.traffic.sizes import Fixed, LengthMix
from slipstick.cost.serving.traffic.traffic import Traffic, burst, closed, poisson
from slipstick.ir.errors import InfeasibleError, UsageError

OVER = Overheads(step_s=4e-4, sequence_s=1e-5, prompt_s=3e-3, prompt_token_s=1e-6)
SOME = LengthMix(Fixed(600), Fixed(40))
SCHEDULERS = {
    "beside": Scheduler(),
    "apart": Scheduler(mixed=False, chunked_prefill=False),
    "reserved": Scheduler(reserve_output=True),
    "static": Scheduler(batching="static", mixed=False, chunked_prefill=False, max_num_seqs=4),
}


@pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS.keys())
@given(
    seed=st.integers(0, 1000),
    replicas=st.integers(1, 3),
    mtbf_s=st.sampled_from([0.4, 1.0, 5.0]),
    restart_s=st.sampled_from([0.0, 0.1, 2.0]),
    groups=st.sampled_from([1, 2]),
    tight=st.booleans(),
)
@settings(max_examples=15, deadline=None)
def test_each_request_is_answered_once_and_no_token_is_lost_or_made_twice(
    made: Callable[..., StepTimes],
    few: Callable[..., Traffic],
    scheduler: Scheduler,
    seed: int,
    replicas: int,
    mtbf_s: float,
    restart_s: float,
    groups: int,
    tight: bool,
) -> None:
    # A cache of a few requests, so that some are put back as well.
    times = made(3e6 * groups if tight else 1e9, groups)
    pool = Pool(times, Engine(scheduler=scheduler, overheads=OVER), replicas)
    traffic = few(40, seed)
    run = simulate(traffic, replace(pool, failures=ReplicaFailures(mtbf_s, restart_s, seed)))
    served = run.served
    assert (served.arrived_s < served.start_s).all()
    assert (served.start_s < served.first_s).all()
    assert (served.first_s <= served.finish_s).all()
    # Every token behind the first of a request is waited for once, whatever was computed anew.
    assert run.gaps.sum() == (traffic.requests.output - 1).sum()
    assert (run.gap_s > 0).all()
    assert run.gap_s @ run.gaps == pytest.approx((served.finish_s - served.first_s).sum())
    assert run.failed is not None
    assert run.failed.restarted <= min(run.failed.restarts, len(traffic))
    assert 0.0 <= run.failed.up_share <= 1.0


def test_a_request_that_starts_again_computes_its_prompt_and_its_tokens_anew(made: Callable[..., StepTimes]) -> None:
    one = LengthMix(Fixed(600), Fixed(200))
    alone = simulate(burst(1, one), Pool(made(), Engine()), most_steps=100)
    span_s = alone.e2el.mean
    # The first seed in whose run the only replica fails once, at half of the answer or so.
    for seed in range(1000):
        failures = ReplicaFailures(3 * span_s, 0.5, seed)
        moment, _, fails = Outages(failures, 1).step()
        run = simulate(burst(1, one), Pool(made(), Engine(), failures=failures), most_steps=100)
        assert run.failed is not None
        if fails and 0.3 < moment / span_s < 0.9 and run.failed.restarts == 1:
            break
    prompts = [s for s in run.steps if s.prompts]
    made_before = round(run.gaps[run.gap_at_s <= moment].sum()) + 1
    assert [s.prompt_tokens for s in prompts] == [600, 600 + made_before]
    assert prompts[1].start_s == pytest.approx(moment + 0.5)
    assert sum(s.num for s in run.steps if not s.prompts) == 199 - 1
    assert run.ttft.mean == pytest.approx(alone.ttft.mean)
    assert run.itl.longest > 0.5


def test_replicas_are_up_as_long_and_fail_as_often_as_renewal_theory_says() -> None:
    failures, num, span_s = ReplicaFailures(mtbf_s=900.0, restart_s=300.0, seed=3), 50, 200_000.0
    outages = Outages(failures, num)
    while outages.next_s < span_s:
        outages.step()
    found, up_share = outages.between(0.0, span_s)
    # 8,333 failures expected: four standard deviations of a Poisson count, which renewals are narrower than.
    assert found == pytest.approx(failures.expected(num, span_s), rel=4 / np.sqrt(8333))
    assert up_share == pytest.approx(0.75, abs=0.01)


def test_short_runs_begin_in_the_steady_state() -> None:
    # Runs of a tenth of the time between failures: unbiased over seeds, which runs that begin all up are not (0.95).
    failures, shares = ReplicaFailures(mtbf_s=900.0, restart_s=300.0), []
    for seed in range(300):
        outages = Outages(replace(failures, seed=seed), 10)
        while outages.next_s < 90.0:
            outages.step()
        shares.append(outages.between(0.0, 90.0)[1])
    assert np.mean(shares) == pytest.approx(0.75, abs=4 * np.std(shares) / np.sqrt(len(shares)))


def test_a_closed_loop_answers_less_by_the_share_that_is_away(made: Callable[..., StepTimes]) -> None:
    pool = Pool(made(), Engine(scheduler=Scheduler(max_num_seqs=1)), 4)
    traffic = closed(64, SOME, num=6_000)
    failures = ReplicaFailures(mtbf_s=20.0, restart_s=5.0)
    whole, less = simulate(traffic, pool), simulate(traffic, replace(pool, failures=failures))
    assert less.failed is not None
    assert less.failed.failures > 20
    # One request at a time, so that no prompt hides beside others: lost is what is away, and the prompt computed anew.
    ratio = less.requests_per_s / whole.requests_per_s
    assert 0.97 * less.failed.up_share <= ratio <= less.failed.up_share * 1.005


def test_rare_failures_change_nothing(made: Callable[..., StepTimes]) -> None:
    traffic, pool = poisson(20.0, SOME, num=300), Pool(made(), Engine(overheads=OVER), 2)
    run = simulate(traffic, replace(pool, failures=ReplicaFailures(1e9, 600.0)))
    assert run.failed is not None
    assert (run.failed.failures, run.failed.restarted, run.failed.up_share) == (0, 0, 1.0)
    np.testing.assert_array_equal(run.served.finish_s, simulate(traffic, pool).served.finish_s)


def test_what_cannot_be_is_refused(made: Callable[..., StepTimes]) -> None:
    failing = Pool(made(), Engine(), failures=ReplicaFailures(1e-3, 0.0))
    with pytest.raises(InfeasibleError, match="fail faster than they answer"):
        simulate(burst(1, SOME), failing)
    with pytest.raises(UsageError, match="above 0"):
        ReplicaFailures(0.0, 1.0)
    with pytest.raises(UsageError, match="one pool"):
        simulate_apart(burst(1, SOME), failing, Pool(made(), Engine()), Transfer(1e9))
