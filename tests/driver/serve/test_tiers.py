"""Tiers of keys and values in a simulation: beside the closed form, faster with each tier, and what is refused."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.software.engine_file import load_engine
from slipstick.cost.serving.slo import ANYTHING
from slipstick.cost.serving.traffic.requests import Lengths
from slipstick.cost.serving.traffic.sizes import Requests
from slipstick.cost.serving.traffic.traffic import Traffic
from slipstick.driver.estimate import lower
from slipstick.driver.serve.load import Load
from slipstick.driver.serve.serve import serve
from slipstick.driver.serve.server import Server
from slipstick.driver.serve.tables import ServedModel
from slipstick.driver.serve.traffic.simulated import serve_traffic
from slipstick.driver.serve.traffic.tiers import tiers_of, with_tiers
from slipstick.frontend import GraphCache, load
from slipstick.ir.errors import InfeasibleError, SlipstickError, UsageError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family, make_plan

BLOCKS, TOKENS = 8, 8 * 512


@cache
def server() -> Server:
    lowered = [
        lower(load("llama-3.1-8b", str(kind), cache=GraphCache.default()), Family(workload=kind, kernels="fused"))
        for kind in (Workload.PREFILL, Workload.DECODE)
    ]
    plan = make_plan(num_gpus=1, seq_len=8192, family=Family(workload=Workload.DECODE, kernels="fused"))
    return Server.of(ServedModel(*lowered), load_system("dgx-h100"), plan, load_engine("vllm"), 8192)


def conversations(num: int, gap_s: float) -> Traffic:
    """Two turns each, the second with the first as its prefix; all first turns come before all second ones."""
    first = [tuple(range(100 * i, 100 * i + BLOCKS // 2)) for i in range(num)]
    then = [tuple(range(100 * i, 100 * i + BLOCKS)) for i in range(num)]
    prompts = (*first, *then)
    sizes = np.array([512 * len(p) for p in prompts])
    answers = np.full(len(prompts), 16)
    return Traffic(
        gap_s * np.arange(len(prompts), dtype=np.float64), Requests(sizes, answers, 0 * sizes), blocks=prompts
    )


def ttft_s(traffic: Traffic, text: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    given, lent, _, _ = with_tiers(traffic, server(), text)
    answer = serve_traffic(lent, given, Load(traffic="trace"), ANYTHING)
    assert answer.simulated is not None
    return answer.simulated.ttft_s


def test_a_request_alone_waits_for_its_load_and_for_what_is_left() -> None:
    traffic = conversations(1, 1000.0)
    given, _, found, tiers = with_tiers(traffic, server(), "host=1TB@10GB/s")
    closed = serve(server(), Lengths(TOKENS, 16, cached=TOKENS // 2), Load(concurrency=1.0))
    bytes_found = float(server().times.kv_bytes(np.asarray(TOKENS / 2.0)))
    assert found.fetch_s[1] == pytest.approx(bytes_found / 10e9, rel=0.01)
    assert given.requests.cached.tolist() == [0, TOKENS // 2]
    assert ttft_s(traffic, "host=1TB@10GB/s")[1] == pytest.approx(
        closed.metrics["ttft_s"] + float(found.fetch_s[1]), rel=0.02
    )
    assert [tier.name for tier in tiers] == ["host"]


def test_more_tiers_and_faster_ones_shorten_the_wait() -> None:
    traffic = conversations(12, 0.02)
    texts = ("host=1B@20GB/s", "host=2GB@20GB/s", "host=2GB@20GB/s,ssd=1TB@5GB/s", "host=2GB@20GB/s,ssd=1TB@20GB/s")
    means = [float(ttft_s(traffic, text).mean()) for text in texts]
    assert means == sorted(means, reverse=True)
    assert means[-1] < 0.9 * means[0]


def test_a_tier_that_is_slower_than_computing_is_left_alone() -> None:
    _, _, found, tiers = with_tiers(conversations(2, 1.0), server(), "host=1B,ssd=1TB@1MB/s")
    assert [tier.name for tier in tiers] == ["host"]
    assert not found.cached.any()


def test_memory_that_is_lent_is_not_there_for_requests() -> None:
    _, lent, _, _ = with_tiers(conversations(2, 1.0), server(), "hbm=10GB")
    assert server().times.free_bytes - lent.times.free_bytes == pytest.approx(10e9)
    with pytest.raises(InfeasibleError, match="are free"):
        with_tiers(conversations(2, 1.0), server(), "hbm=100GB")


@pytest.mark.parametrize(
    "text", ["", "host", "host=1TB,host=1TB", "host=1TB,hbm=1GB", "hbm=1GB@2GB/s", "ssd=1TB", "host=1TB@x", "a b=1TB"]
)
def test_tiers_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises((UsageError, SlipstickError)):
        tiers_of(text, server())
