"""Steps of ranks that share experts, against arithmetic and draws."""

import numpy as np
import pytest

from slipstick.cost.serving.batching.continuous import busiest, met


def test_one_rank_has_its_own_prompts_and_many_have_those_of_the_busiest() -> None:
    mean, room = np.array([0.02, 0.5, 4.0, 50.0]), np.full(4, 1e9)
    assert (busiest(mean, 1, room) == mean).all()
    drawn = np.random.default_rng(0).poisson(mean, (200_000, 8, 4)).max(axis=1).mean(axis=0)
    # Beyond thirty the greatest of eight is an upper estimate of the normal law.
    assert busiest(mean, 8, room)[:3] == pytest.approx(drawn[:3], rel=0.02)
    assert drawn[3] < busiest(mean, 8, room)[3] < 1.1 * drawn[3]


def test_no_rank_takes_more_prompts_than_its_steps_have_room_for() -> None:
    assert busiest(np.array([0.4]), 64, np.array([1.0])) == pytest.approx([1.0])
    assert busiest(np.array([2.0]), 64, np.array([1.0])) == pytest.approx([2.0])


def test_what_all_ranks_share_goes_by_their_mean() -> None:
    mean, room = np.array([0.5]), np.array([1e9])
    assert met(mean, 8, 1.0, room) == pytest.approx(mean)
    assert met(mean, 8, 0.0, room) == pytest.approx(busiest(mean, 8, room))
    assert met(mean, 8, 0.25, room) == pytest.approx(0.25 * mean + 0.75 * busiest(mean, 8, room))
