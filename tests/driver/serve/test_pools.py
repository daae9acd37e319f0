"""The most requests of pools within a target is where their answers stop meeting it."""

from __future__ import annotations

from functools import cache

import pytest

from slipstick.cost.serving.slo import SLO
from slipstick.driver.serve.load import Load
from slipstick.driver.serve.pools import Pools, link_of, most_of
from slipstick.driver.serve.serve_pools import serve_pools
from tests.driver.serve.test_server import LENGTHS, server

SPREAD = SLO(1.0, 1.0, 0.99, 0.99)


@cache
def pools() -> Pools:
    return Pools(server(dp=1), server(dp=2), link_of(server().system, 3))


@pytest.mark.parametrize("share", [None, 0.99])
def test_the_most_of_pools_within_a_target_is_where_their_answer_stops_meeting_it(share: float | None) -> None:
    most = most_of(pools(), LENGTHS)
    half = serve_pools(pools(), LENGTHS, Load(requests_per_s=most / 2), SPREAD).metrics
    target = SLO(ttft_s=half["ttft_s" if share is None else "ttft_tail_s"], ttft_share=share)
    assert most_of(pools(), LENGTHS, target) == pytest.approx(most / 2, rel=0.01)
    below, above = (serve_pools(pools(), LENGTHS, Load(requests_per_s=most * x), target).found for x in (0.45, 0.55))
    assert target.met_by(below)
    assert not target.met_by(above)


def test_pools_that_one_request_overtaxes_have_no_rate_within_a_target() -> None:
    assert most_of(pools(), LENGTHS, SLO(ttft_s=1e-6)) == 0.0
