"""Latencies over load are the answers at those loads."""

from __future__ import annotations

from functools import cache

import pytest

from slipstick.cost.serving.slo import SLO
from slipstick.driver.serve.load import Load
from slipstick.driver.serve.pools import Pools, link_of
from slipstick.driver.serve.serve import serve
from slipstick.driver.serve.serve_pools import serve_pools
from slipstick.report.serving.load_curve import load_curve
from tests.driver.serve.test_server import LENGTHS, server

SPREAD = SLO(1.0, 1.0, 0.99, 0.99)


@cache
def pools() -> Pools:
    return Pools(server(dp=1), server(dp=2), link_of(server().system, 3))


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_curve_of_a_server_is_its_answers_at_other_rates(engine: str) -> None:
    asked = server(engine, dp=2)
    curve = load_curve(serve(asked, LENGTHS, Load()))
    for k in (0, 5, 12):
        one = serve(asked, LENGTHS, Load(requests_per_s=float(curve["requests_per_s"][k])), SPREAD).metrics
        for name in ("ttft_s", "tpot_s", "concurrency", "tokens_per_s_per_gpu"):
            assert curve[name][k] == pytest.approx(one[name], rel=1e-9), name
        assert curve["ttft_p99_s"][k] == pytest.approx(one["ttft_tail_s"], rel=1e-9)
        assert curve["tpot_p99_s"][k] == pytest.approx(one["tpot_tail_s"], rel=1e-9)


def test_the_curve_of_pools_is_their_answers_at_other_loads() -> None:
    curve = load_curve(serve_pools(pools(), LENGTHS, Load()))
    for k in (0, 6):
        one = serve_pools(pools(), LENGTHS, Load(concurrency=float(curve["concurrency"][k])), SPREAD).metrics
        for name in ("ttft_s", "tpot_s", "requests_per_s"):
            assert curve[name][k] == pytest.approx(one[name], rel=1e-9), name
        assert curve["ttft_p99_s"][k] == pytest.approx(one["ttft_tail_s"], rel=1e-9)


def test_static_batches_have_no_curve() -> None:
    assert load_curve(serve(server("tensorrt-llm-2023"), LENGTHS, Load(batch=4))) == {}
