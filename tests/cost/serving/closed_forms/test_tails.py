"""Percentiles in closed form: laws that hold for any engine, queues that textbooks solve, and simulated requests."""

from __future__ import annotations

import math

import numpy as np
import pytest

from slipstick.backends.machine.software.engine import Engine, Overheads, Scheduler
from slipstick.cost.serving.batching.open_loop import at_rate
from slipstick.cost.serving.batching.tails import Flights, number_in_flight
from slipstick.cost.serving.batching.times import Curve, StepTimes, Surface
from slipstick.cost.serving.simulate.run import Pool, simulate
from slipstick.cost.serving.slo import SLO, tails_of
from slipstick.cost.serving.traffic.requests import Lengths
from slipstick.cost.serving.traffic.sizes import Fixed, LengthMix
from slipstick.cost.serving.traffic.traffic import poisson
from slipstick.ir.errors import UsageError

LENGTHS = Lengths(512.0, 64.0)


def times() -> StepTimes:
    """Steps of 10 ms and 50 us a sequence, prompts of 30 us a token: work that a hand can add up."""
    at = np.array([0.0, 1e6])
    flat = Surface(at, at, np.zeros((2, 2)))
    return StepTimes(
        decode_rest=Curve(at, 10e-3 + 50e-6 * at),
        decode_attention=flat,
        prompt_rest=Curve(at, 10e-3 + 30e-6 * at),
        prompt_attention=flat,
        kv_bytes=Curve(at, at),
        free_bytes=1e6,
    )


def engine(mixed: bool = True) -> Engine:
    over = Overheads(step_s=1e-4, sequence_s=1e-6, prompt_s=1e-3, prompt_token_s=0.0)
    return Engine(overheads=over, scheduler=Scheduler(mixed=mixed, max_num_seqs=128, max_batched_tokens=4096))


def test_requests_that_do_not_slow_each_other_are_as_many_as_poisson_says() -> None:
    # A life of two seconds whatever the number: servers without end, P(n) = exp(-a) a^n / n! with a = 3 x 2.
    law = number_in_flight(np.array([[3.0]]), np.arange(1.0, 201.0) / 2.0)
    poisson_law = [math.exp(-6.0) * 6.0**n / math.factorial(n) for n in range(20)]
    assert law[0, :20] == pytest.approx(poisson_law, rel=1e-9)


def test_requests_that_share_one_processor_are_as_many_as_a_geometric_law_says() -> None:
    # n requests take n times as long: one server, P(n) = (1 - rho) rho^n with rho = 0.8.
    law = number_in_flight(np.array([[0.8]]), np.ones(200))
    assert law[0, :50] == pytest.approx([0.2 * 0.8**n for n in range(50)], rel=1e-9)


@pytest.mark.parametrize("mixed", [True, False])
def test_percentiles_rise_with_the_share_and_the_rate(mixed: bool) -> None:
    flights = Flights.of(times(), engine(mixed), LENGTHS)
    rates = np.linspace(1.0, 40.0, 14)
    spread = flights.tails(rates)
    for share, higher in ((0.5, 0.9), (0.9, 0.99), (0.99, 0.999)):
        for one, more in zip(spread.at(share), spread.at(higher), strict=True):
            assert (more >= one).all()
    for values in spread.at(0.95):
        assert (values[1:] >= 0.98 * values[:-1]).all()


def test_more_requests_than_can_be_answered_wait_without_end() -> None:
    first, gap = Flights.of(times(), engine(), LENGTHS).tails(1e4).at(0.99)
    assert np.isinf(first).all()
    assert np.isinf(gap).all()


@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("rate", [5.0, 15.0, 25.0])
def test_percentiles_are_those_of_simulated_requests(mixed: bool, rate: float) -> None:
    found = Flights.of(times(), engine(mixed), LENGTHS).tails(rate)
    run = simulate(poisson(rate, LengthMix(Fixed(512), Fixed(64)), 4000), Pool(times(), engine(mixed))).middle(0.1)
    for share, most in ((0.5, 0.15), (0.95, 0.25), (0.99, 0.35)):
        first, gap = found.at(share)
        assert first[0] == pytest.approx(np.quantile(run.ttft_s, share), rel=most)
        assert gap[0] == pytest.approx(np.quantile(run.tpot_s, share), rel=most)


def test_an_slo_reads_percentiles_and_means() -> None:
    assert SLO.of("p99:500ms", "mean:30ms") == SLO(0.5, 0.03, 0.99, None)
    assert SLO.of("2s", None) == SLO(2.0)
    assert str(SLO.of("p99.9:2s", "p95:30ms")) == "p99.9 TTFT <= 2 s, p95 TPOT <= 30 ms"
    for wrong in ("q99:1s", "p99", "p20:1s", "p99.99:1s", "99:1s"):
        with pytest.raises(UsageError):
            SLO.of(wrong, None)


def test_a_percentile_that_nobody_worked_out_is_not_met() -> None:
    slo = SLO.of("p99:1h", None)
    static = Engine(scheduler=Scheduler(batching="static"))
    means = at_rate(times(), engine(), 5.0, LENGTHS)
    assert not bool(slo.met_by(tails_of(times(), static, LENGTHS, slo)(means)))
    assert bool(slo.met_by(tails_of(times(), engine(), LENGTHS, slo)(means)))
