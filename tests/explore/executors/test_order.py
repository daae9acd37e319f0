from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slipstick.explore.executors.order import Untouched


@given(st.integers(0, 60), st.lists(st.integers(0, 5), max_size=200))
def test_every_place_is_taken_once(num: int, turns: list[int]) -> None:
    left, where, taken = Untouched(num), dict[int, int](), list[int]()
    for worker in [*turns, *[0] * num]:
        place = left.take(where.get(worker))
        if place is not None:
            where[worker] = place
            taken.append(place)
    assert sorted(taken) == list(range(num))
    assert left.take(None) is None


def test_one_worker_goes_from_the_first_to_the_last() -> None:
    left, place, taken = Untouched(50), None, list[int]()
    while (place := left.take(place)) is not None:
        taken.append(place)
    assert taken == list(range(50))


@given(st.integers(1, 12))
def test_workers_of_one_pace_seldom_leave_their_neighbourhood(num_workers: int) -> None:
    left, where, jumps = Untouched(1000), dict[int, int](), 0
    for turn in range(1000):
        worker = turn % num_workers
        place = left.take(where.get(worker))
        assert place is not None
        jumps += place != where.get(worker, -1) + 1
        where[worker] = place
    # The width of all gaps is halved each time around: at most ten rounds of jumps for a thousand places.
    assert jumps <= 10 * num_workers
