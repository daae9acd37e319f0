"""The front against brute force."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from slipstick.explore.pareto import pareto

# Few values, so that many are equal, and some that are no numbers.
VALUES = st.sampled_from([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, float("inf"), float("nan")])


def tables(num_objectives: st.SearchStrategy[int]) -> st.SearchStrategy[NDArray[np.float64]]:
    return num_objectives.flatmap(
        lambda k: st.lists(st.lists(VALUES, min_size=k, max_size=k), min_size=1, max_size=24).map(np.array)
    )


def beats(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    return bool((one <= other).all() and (one < other).any())


@settings(max_examples=300)
@given(tables(st.integers(1, 4)))
def test_the_front_is_what_nothing_beats(points: NDArray[np.float64]) -> None:
    finite = [row for row in points if np.isfinite(row).all()]
    expected = [bool(np.isfinite(row).all()) and not any(beats(other, row) for other in finite) for row in points]
    assert pareto(list(points.T)).tolist() == expected


@given(tables(st.integers(1, 3)))
def test_the_front_does_not_know_the_order(points: NDArray[np.float64]) -> None:
    order = np.random.default_rng(len(points)).permutation(len(points))
    assert pareto(list(points[order].T)).tolist() == pareto(list(points.T))[order].tolist()


def test_a_front_of_everything_takes_no_square_of_time() -> None:
    falling = np.arange(300_000, dtype=np.float64)
    assert pareto([falling, -falling]).all()


def test_nothing_finite_has_no_front() -> None:
    assert pareto([np.array([np.nan, np.inf]), np.array([1.0, 1.0])]).tolist() == [False, False]
