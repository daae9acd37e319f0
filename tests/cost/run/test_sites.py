"""Several sites: what they send, laws of waits, and a simulation exchange by exchange."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.cost.run.sites import SiteExchange, Sites
from slipstick.cost.run.training_run import TrainingJob, TrainingRun
from slipstick.ir.errors import PlanError, UsageError

PARAMETERS = 10.2e9
JOB = TrainingJob(step_time_s=22.8, samples=128, tokens=128 * 8192, num_gpus=8, num_nodes=1, state_bytes=0.0)


def exchange(**said: object) -> SiteExchange:
    asked = {"num": 14, "every": 100, "bytes_per_s": 1.5e9 / 8, "dtype": "int8"} | said
    return Sites(**asked).over(JOB.step_time_s, JOB.num_gpus, PARAMETERS)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_an_exchange_by_hand() -> None:
    # A ring of 14: 26/14 of 10.2 GB at 187.5 MB/s, and 26 messages of 0.1 s.
    found = exchange(latency_s=0.1)
    assert found.sent_bytes == pytest.approx(10.2e9 * 26 / 14)
    assert found.exposed_s == pytest.approx(10.2e9 * 26 / 14 / 187.5e6 + 2.6)
    assert found.utilisation == pytest.approx(2280 / (2280 + found.exposed_s))
    # fp32 weights of the last exchange and a momentum, over eight GPUs.
    assert found.outer_bytes == pytest.approx(8 * 10.2e9 / 8)


@pytest.mark.parametrize(("wait_s", "published"), [(103, 0.957), (382, 0.856), (469, 0.830)])
def test_utilisation_of_intellect_1(wait_s: float, published: float) -> None:
    """Inside the USA, to Europe, around the globe: 38 min of steps and an exchange (arXiv 2412.01152, section 3)."""
    rate = 10.2e9 * 26 / 14 / wait_s
    assert exchange(bytes_per_s=rate).utilisation == pytest.approx(published, abs=0.002)


def test_a_run_is_that_of_all_sites() -> None:
    sites = Sites(num=4, every=50, bytes_per_s=1e9)
    job = replace(JOB, num_parameters=PARAMETERS)
    one, four = (TrainingRun(amount=1e12, sites=s).over(job) for s in (replace(sites, num=1), sites))
    assert one.metrics["num_steps"] == pytest.approx(4 * four.metrics["num_steps"], abs=4)
    assert one.metrics["site_wait_s"] == 0
    waits = four.metrics["num_steps"] * four.metrics["site_wait_s"] / 50
    assert four.metrics["train_time_s"] == pytest.approx(four.metrics["num_steps"] * JOB.step_time_s + waits)
    assert four.metrics["gpu_hours"] == pytest.approx(four.metrics["train_time_s"] / 3600 * 32)


SPEEDS = st.floats(1e6, 1e11)


@given(SPEEDS, SPEEDS, st.integers(1, 16), st.sampled_from([1, 2, 4]), st.integers(0, 5), st.floats(0, 1))
def test_waits_never_rise_with_bandwidth_overlap_or_fewer_bytes(
    slow: float, fast: float, num: int, fragments: int, overlap: int, latency_s: float
) -> None:
    slow, fast = sorted((slow, fast))
    said: dict[str, object] = {
        "num": num, "every": 20, "fragments": fragments, "overlap": overlap, "latency_s": latency_s,
    }  # fmt: skip
    waits = exchange(bytes_per_s=slow, **said)
    assert exchange(bytes_per_s=fast, **said).exposed_s <= waits.exposed_s
    assert exchange(bytes_per_s=slow, **said | {"overlap": 0}).exposed_s >= waits.exposed_s
    assert exchange(bytes_per_s=slow, **said | {"dtype": "fp32"}).exposed_s >= waits.exposed_s
    assert exchange(bytes_per_s=slow, **said | {"every": 40}).utilisation >= waits.utilisation - 1e-12
    # All bytes of all fragments, whatever their number.
    assert waits.sent_bytes == exchange(bytes_per_s=fast, **said | {"fragments": 1}).sent_bytes


@given(SPEEDS, st.sampled_from([1, 2, 4, 5]), st.integers(0, 4))
def test_a_simulation_step_by_step(rate: float, fragments: int, overlap: int) -> None:
    found = exchange(bytes_per_s=rate, every=20, fragments=fragments, overlap=overlap)
    now, arrives, apart = 0.0, dict[int, float](), 20 // fragments
    for step in range(1, 20 * 50 + 1):
        now += JOB.step_time_s
        # What is due now must be there before the next exchange and the next step.
        now = max(now, arrives.pop(step, now))
        if step % apart == 0:
            there = now + found.fragment_s
            arrives[step + overlap] = there
            now = now if overlap else arrives.pop(step)
    left = sum(max(0.0, at - now) for at in arrives.values())
    # The last exchange may still be on its way.
    assert now == pytest.approx(1000 * found.step_s, abs=found.exposed_s + left + 1e-6)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"bytes_per_s": 0.0}, UsageError), ({"dtype": "fp64"}, UsageError), ({"num": 0}, UsageError),
        ({"fragments": 3}, PlanError), ({"fragments": 10, "overlap": 11}, PlanError),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(said: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        exchange(**said)
