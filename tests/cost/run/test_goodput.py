"""Goodput against Daly's published optima, a simulation of failures, and the laws that it must obey."""

import math
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slipstick.cost.run.goodput import best_interval_s, expected_s, shares

MIN, HOUR = 60.0, 3600.0
STALL = st.floats(0.1, 600.0)
MTBF = st.floats(600.0, 1e7)
EVERY = st.floats(60.0, 1e5)
RESTART = st.floats(0.0, 3600.0)


def young_interval_s(stall_s: float, mtbf_s: float) -> float:
    """Young's first-order optimum."""
    return math.sqrt(2.0 * stall_s * mtbf_s)


# The captions of figures 3 to 5 of Daly 2006: a checkpoint takes 5 min, a restart 10 min.
@pytest.mark.parametrize(("mtbf_h", "best_min"), [(24.0, 117.0), (6.0, 57.0), (0.25, 9.1)])
def test_the_optimum_is_the_one_that_daly_printed(mtbf_h: float, best_min: float) -> None:
    assert best_interval_s(5 * MIN, mtbf_h * HOUR) / MIN == pytest.approx(best_min, rel=0.015)


def test_the_optimum_is_young_s_where_checkpoints_are_short() -> None:
    # sqrt(2 x 1 s x 1e8 s), less a third of a second of the next order.
    assert young_interval_s(1.0, 1e8) == pytest.approx(14142.1356, rel=1e-8)
    assert best_interval_s(1.0, 1e8) == pytest.approx(young_interval_s(1.0, 1e8), rel=1e-4)


def test_the_optimum_at_its_ends() -> None:
    assert best_interval_s(0.0, 100.0) == 0.0
    assert best_interval_s(10.0, math.inf) == math.inf
    # A checkpoint of ten failures' length: the next failure comes first, whatever is done.
    assert best_interval_s(1000.0, 100.0) == pytest.approx(100.0, rel=1e-4)


@given(STALL, MTBF, RESTART)
def test_the_optimum_beats_its_neighbours_and_young_s(stall_s: float, mtbf_s: float, restart_s: float) -> None:
    best = best_interval_s(stall_s, mtbf_s)
    others = [best * 0.98, best * 1.02, young_interval_s(stall_s, mtbf_s)]
    top = shares(best, stall_s, mtbf_s, restart_s).steps
    assert all(top >= shares(other, stall_s, mtbf_s, restart_s).steps * (1 - 1e-12) for other in others)


@given(EVERY, RESTART)
def test_without_failures_and_checkpoints_every_step_counts(every_s: float, restart_s: float) -> None:
    found = shares(every_s, 0.0, math.inf, restart_s)
    assert (found.steps, found.checkpoints, found.restarts, found.lost) == (1.0, 0.0, 0.0, 0.0)


@given(EVERY, STALL)
def test_without_failures_only_checkpoints_are_waited_for(every_s: float, stall_s: float) -> None:
    assert shares(every_s, stall_s, math.inf).steps == pytest.approx(every_s / (every_s + stall_s), rel=1e-12)


@given(EVERY, STALL, MTBF, RESTART, st.floats(0.0, 600.0))
def test_the_shares_add_up(every_s: float, stall_s: float, mtbf_s: float, restart_s: float, late_s: float) -> None:
    found = shares(every_s, stall_s, mtbf_s, restart_s, late_s)
    parts = (found.steps, found.checkpoints, found.restarts, found.lost)
    assert all(0.0 <= part <= 1.0 for part in parts)
    assert sum(parts) == pytest.approx(1.0, abs=1e-9)


@given(EVERY, STALL, MTBF, RESTART)
def test_goodput_falls_with_failures_stalls_and_restarts(
    every_s: float, stall_s: float, mtbf_s: float, restart_s: float
) -> None:
    here = shares(every_s, stall_s, mtbf_s, restart_s).steps
    assume(here > 0.0)
    assert shares(every_s, stall_s, mtbf_s * 1.1, restart_s).steps > here
    assert shares(every_s, stall_s * 1.1, mtbf_s, restart_s).steps < here
    assert shares(every_s, stall_s, mtbf_s, restart_s + 60.0).steps < here
    assert shares(every_s, stall_s, mtbf_s, restart_s, 60.0).steps < here


def test_what_takes_longer_than_any_failure_is_never_done() -> None:
    assert expected_s(1e6, 1.0, 0.0) == math.inf
    assert shares(1e6, 0.0, 1.0).steps == 0.0


def simulated(every_s: float, stall_s: float, mtbf_s: float, restart_s: float, late_s: float, num: int) -> float:
    """Goodput of a run of so many checkpoints that fails at random; one is safe `late_s` behind its stall.

    A restart can fail, too; then it begins again. Work between checkpoints is safe once the one behind it is.
    """
    rng = random.Random(7)
    clock, failure = 0.0, rng.expovariate(1.0 / mtbf_s)
    done, safe, pending = 0, 0, math.inf
    while safe < num:
        end = clock + every_s + stall_s
        if failure >= min(end, pending) and pending <= end:
            safe, pending = done, math.inf
        if failure > end:
            clock, done = end, done + 1
            pending = end + late_s
            if not late_s:
                safe, pending = done, math.inf
            continue
        while failure <= end:
            clock, end = failure, failure + restart_s
            failure = clock + rng.expovariate(1.0 / mtbf_s)
        clock, done, pending = end, safe, math.inf
    return safe * every_s / clock


@pytest.mark.parametrize(
    ("every_s", "stall_s", "mtbf_s", "restart_s", "late_s"),
    [
        (3420.0, 300.0, 6 * HOUR, 600.0, 0.0),
        (546.0, 300.0, 900.0, 600.0, 0.0),
        (1800.0, 5.0, 3 * HOUR, 300.0, 0.0),
        (1800.0, 5.0, 3 * HOUR, 300.0, 600.0),
    ],
)
def test_a_simulation_of_failures_agrees(
    every_s: float, stall_s: float, mtbf_s: float, restart_s: float, late_s: float
) -> None:
    found = shares(every_s, stall_s, mtbf_s, restart_s, late_s).steps
    assert simulated(every_s, stall_s, mtbf_s, restart_s, late_s, 60_000) == pytest.approx(found, rel=0.01)
