"""Schedules run task by task: order, dependencies, work, and bubbles worked out by hand."""

import numpy as np
import pytest

from slipstick.cost.schedules.simulate import simulate
from slipstick.cost.schedules.tasks import StageTimes


def equal(p: int, v: int = 1, forward_s: float = 1.0, dgrad_s: float = 1.0, wgrad_s: float = 1.0) -> StageTimes:
    """Stages of these times in all, shared out evenly among chunks."""
    ones = np.ones((p, v)) / v
    return StageTimes.of(ones * forward_s, ones * dgrad_s, ones * wgrad_s)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(1, 4), (2, 2), (4, 8), (8, 3), (16, 64)])
def test_filling_and_draining_takes_p_minus_one_micro_batches(name: str, p: int, m: int) -> None:
    assert simulate(name, equal(p), m).step_s == pytest.approx((m + p - 1) * 3.0, rel=1e-12)


@pytest.mark.parametrize(("p", "v", "m"), [(2, 2, 4), (4, 3, 4), (8, 3, 64)])
def test_interleaving_divides_the_bubble_by_the_chunks(p: int, v: int, m: int) -> None:
    assert simulate("1f1b", equal(p, v), m).step_s == pytest.approx((m + (p - 1) / v) * 3.0, rel=1e-9)
