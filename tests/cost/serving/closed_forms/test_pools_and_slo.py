"""Two pools by hand and by trying all splits; the most load under an SLO by trying all loads."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.software.engine import Engine
from slipstick.cost.serving.batching.open_loop import at_rate
from slipstick.cost.serving.batching.times import StepTimes
from slipstick.cost.serving.disaggregated import (
    TransferLink,
    WorkerGroup,
    disaggregated,
    exposed_s,
    rates,
)
from slipstick.cost.serving.slo import SLO, rate_under
from slipstick.cost.serving.split import fewest_workers
from slipstick.cost.serving.traffic.requests import Lengths
from slipstick.cost.serving.workers import ManyLinks, ManyPools
from slipstick.ir.errors import InfeasibleError, UsageError

Replica = Callable[..., StepTimes]
Engines = Callable[..., Engine]
LENGTHS = Lengths(1000, 101)
LINK = TransferLink(bytes_per_s=13e9, latency_s=1e-3)
# A prompt of 1000 tokens: 20 + 1 ms, and 1e-10 x 1000^2; its cache of 130 MB takes 10 ms over the link.
PREFILL_S, TRANSFER_S = 21.1e-3, 11e-3


@pytest.fixture(scope="module")
def pools(replica: Replica, engine: Engines) -> Callable[[int, int], tuple[WorkerGroup, WorkerGroup]]:
    def build(prefill: int, decode: int) -> tuple[WorkerGroup, WorkerGroup]:
        return (
            WorkerGroup(times=replica(), engine=engine(), workers=prefill, gpus=2),
            WorkerGroup(times=replica(), engine=engine(), workers=decode, gpus=4),
        )

    return build


Pools = Callable[[int, int], tuple[WorkerGroup, WorkerGroup]]


def test_one_request_passes_prefill_link_and_decode(pools: Pools) -> None:
    found = disaggregated(*pools(2, 1), LINK, 1, LENGTHS)
    assert float(found.served.ttft_s) == pytest.approx(PREFILL_S + TRANSFER_S, rel=1e-3)
    assert float(found.served.ttft_low_s) == pytest.approx(float(found.served.ttft_s))
    # 6 ms, and 1050.5 tokens at 0.1 us.
    assert float(found.served.tpot_s) == pytest.approx(6e-3 + 1050.5e-7)
    assert float(found.transfer_s) == pytest.approx(TRANSFER_S)
    assert found.gpus == 2 * 2 + 4
    assert float(found.served.requests_per_s) == pytest.approx(1 / float(found.served.e2el_s))


def test_many_requests_are_as_fast_as_the_slower_pool(pools: Pools) -> None:
    prefill, decode = pools(1, 3)
    found = disaggregated(prefill, decode, LINK, 700, LENGTHS)
    assert float(found.served.requests_per_s) == pytest.approx(1 / PREFILL_S, rel=1e-3)
    assert found.limit == "prefill"
    assert float(found.prefill_busy) == pytest.approx(1.0, rel=1e-3)
    prefill, decode = pools(20, 1)
    found = disaggregated(prefill, decode, LINK, 700, LENGTHS)
    able = rates(prefill, decode, LENGTHS)
    assert found.limit == "decode"
    assert float(found.served.requests_per_s) == pytest.approx(float(able.decode_per_s), rel=1e-6)
    assert float(found.served.batch) == pytest.approx(float(able.batch), rel=1e-6)


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 4))
def test_laws_of_two_pools(pools: Pools, prefill: int, decode: int, batch: int) -> None:
    prompts, answers = pools(prefill, decode)
    clients = np.unique(np.rint(np.geomspace(1.0, 3000.0, 16)))
    found = disaggregated(replace(prompts, batch=batch), answers, LINK, clients, LENGTHS)
    served = found.served
    assert (np.diff(served.requests_per_s) >= -1e-6).all()
    assert (np.diff(served.tpot_s) >= -1e-9).all()
    assert served.requests_per_s * served.e2el_s == pytest.approx(served.concurrency, rel=1e-6)
    assert (np.maximum(found.prefill_busy, found.decode_busy) <= 1 + 1e-9).all()
    assert (served.ttft_low_s <= served.ttft_s * (1 + 1e-9)).all()
    assert (served.ttft_s <= served.ttft_high_s * (1 + 1e-9)).all()
    # Decode workers make all tokens but the first.
    made = served.requests_per_s * 100
    assert (made <= decode * np.maximum(served.batch, 1) / served.tpot_s * (1 + 1e-9)).all()


def test_what_is_sent_layer_by_layer_hides_beside_the_prompt() -> None:
    streamed = replace(LINK, layers=10)
    # 10 ms to send beside 21.1 ms of prefill: the last layer is left; beside 4 ms, 6 ms are left and that layer.
    assert float(exposed_s(streamed, 130e6, PREFILL_S)) == pytest.approx(2e-3)
    assert float(exposed_s(streamed, 130e6, 4e-3)) == pytest.approx(8e-3)
    assert float(exposed_s(streamed, 130e6, 1e-9)) == pytest.approx(TRANSFER_S)
    assert float(exposed_s(LINK, 130e6, PREFILL_S)) == pytest.approx(TRANSFER_S)


def test_the_fewest_workers_do_the_rate_and_one_fewer_does_not(pools: Pools) -> None:
    found = fewest_workers(200.0, *pools(1, 1), LINK, LENGTHS, SLO(ttft_s=0.05, tpot_s=9e-3))
    assert found.requests_per_s >= 200
    for fewer in ((found.prefill.workers - 1, found.decode.workers), (found.prefill.workers, found.decode.workers - 1)):
        able = rates(replace(found.prefill, workers=fewer[0]), replace(found.decode, workers=fewer[1]), LENGTHS)
        assert min(float(able.prefill_per_s), float(able.decode_per_s)) < 200


def test_pools_that_cannot_be_are_refused(pools: Pools) -> None:
    with pytest.raises(InfeasibleError, match=r"TTFT 20 ms asked; the least is 32\.1 ms with one request on idle"):
        fewest_workers(1.0, *pools(1, 1), LINK, LENGTHS, SLO(ttft_s=0.02))
    with pytest.raises(UsageError, match="output=1: the prefill makes the only token"):
        disaggregated(*pools(1, 1), LINK, 4, Lengths(1000, 1))
    with pytest.raises(UsageError, match="bytes_per_s=0"):
        TransferLink(bytes_per_s=0.0)
    with pytest.raises(UsageError, match="workers=0 of a pool"):
        pools(0, 1)
    with pytest.raises(UsageError, match=r"busiest=1\.2"):
        fewest_workers(1.0, *pools(1, 1), LINK, LENGTHS, busiest=1.2)


def test_the_greatest_rate_meets_the_slo_and_a_greater_one_does_not(replica: Replica, engine: Engines) -> None:
    times, at, slo = replica(), engine(5e-4), SLO(ttft_s=0.05, tpot_s=0.012)
    found = rate_under(times, at, LENGTHS, slo)
    assert slo.met_by(found)
    assert max(float(found.ttft_s) / 0.05, float(found.tpot_s) / 0.012) == pytest.approx(1.0, rel=1e-4)
    assert not slo.met_by(at_rate(times, at, 1.001 * float(found.requests_per_s), LENGTHS))


def test_what_nothing_meets_is_refused_with_the_best_there_is(replica: Replica, engine: Engines) -> None:
    slow = replica(read=0.3)
    with pytest.raises(
        InfeasibleError, match=r"TTFT 0\.2 s asked; .* with next to no load; TPOT 50 ms asked; .*0\.301"
    ):
        rate_under(slow, engine(), LENGTHS, SLO(ttft_s=0.2, tpot_s=0.05))
    with pytest.raises(UsageError, match="TTFT 0 s; allowed: more than 0 s"):
        SLO(ttft_s=0.0)


def test_many_pools_are_each_what_one_pair_of_them_is(pools: Pools) -> None:
    workers, batch, clients = (
        np.array([[1.0], [2.0], [7.0]]),
        np.array([[1.0], [4.0], [2.0]]),
        np.array([1.0, 9.0, 300.0]),
    )
    one, other = pools(1, 1)
    prefill = ManyPools(times=one.times, engine=one.engine, workers=workers, gpus=2, batch=batch)
    decode = ManyPools(times=other.times, engine=other.engine, workers=workers + 1.0, gpus=4)
    links = ManyLinks(bytes_per_s=workers * 13e9, latency_s=workers * 1e-3)
    many = disaggregated(prefill, decode, links, clients, LENGTHS)
    for i, num in enumerate((1, 2, 7)):
        first, then = pools(num, num + 1)
        link = TransferLink(bytes_per_s=num * 13e9, latency_s=num * 1e-3)
        each = disaggregated(replace(first, batch=int(batch[i, 0])), then, link, clients, LENGTHS)
        assert many.served.ttft_s[i].tolist() == each.served.ttft_s.tolist()
        assert many.served.requests_per_s[i].tolist() == each.served.requests_per_s.tolist()
        assert many.prefill_busy[i].tolist() == each.prefill_busy.tolist()
