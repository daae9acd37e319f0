"""Brackets find what halvings find, the same bits, whatever rises and however."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from slipstick.cost.serving.batching.times import Array
from slipstick.cost.serving.search import first_reaching, first_reaching_each

# Smooth ones, one with corners, one with a wall at its end, one that jumps, and one that stands still.
RISING: dict[str, Callable[[Array], Array]] = {
    "line": lambda x: 3.0 * x,
    "square": np.square,
    "corners": lambda x: np.maximum(x, 5.0 * x - 8.0) + np.minimum(x, 1.0),
    "wall": lambda x: x / (1.0 - np.minimum(x / 10.0, 1.0 - 1e-9)),
    "steps": np.floor,
    "stairs": lambda x: np.where(x > 4.0, 40.0 + x, 0.0 * x),
}


@pytest.mark.parametrize("name", RISING)
@given(levels=st.lists(st.floats(1e-3, 120.0), min_size=1, max_size=12), high=st.floats(0.5, 60.0))
def test_brackets_change_no_bit(name: str, levels: list[float], high: float) -> None:
    # Few are found another way.
    level = np.tile(levels, 40)
    most = np.full(len(level), high)
    slow = first_reaching(RISING[name], level, np.zeros_like(most), most)
    fast = first_reaching_each(lambda _: RISING[name], level, most)
    assert fast.tobytes() == slow.tobytes()


def test_quantities_of_their_own_are_asked_for_by_place() -> None:
    slope = np.array([[1.0, 2.0], [4.0, 8.0]])

    def parts(places: NDArray[np.intp]) -> Callable[[Array], Array]:
        return lambda x: slope.ravel()[places] * x

    found = first_reaching_each(parts, np.full((2, 2), 8.0), np.full((2, 2), 3.0))
    # 8 / slope, and the end where that lies behind it.
    assert found == pytest.approx(np.array([[3.0, 3.0], [2.0, 1.0]]), abs=1e-11)


def test_brackets_spare_most_of_the_work() -> None:
    asked: list[int] = []

    def parts(places: NDArray[np.intp]) -> Callable[[Array], Array]:
        asked.append(len(places))
        return np.square

    num = 1000
    first_reaching_each(parts, np.linspace(1.0, 90.0, num), np.full(num, 10.0))
    # 40 halvings without them.
    assert sum(asked) < 15 * num
