"""Exchanges of tokens: copies by routing, bytes by level, and the rates they go at."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.kernels.exchange import (
    FP8_BYTES,
    ExchangeConstants,
    ExchangeRates,
    ExchangeSizes,
    balanced_ranks,
    distinct_ranks,
    each_expert,
    exchange_times,
    reached_places,
)
from slipstick.backends.kernels.terms import Array
from slipstick.backends.machine.load import load_system

H100 = load_system("dgx-h100").chip
RATES = ExchangeRates(450e9, 50e9)
ONE = ExchangeConstants(overhead_s=20e-6, link=0.6, copy=1000.0, pace=1.0, nic=0.8)


def array(x: float) -> Array:
    return np.array(float(x))


def test_reached_places_are_those_of_all_choices() -> None:
    # Three tries over four places, all 64 ways.
    ways = [len(set(way)) for way in itertools.product(range(4), repeat=3)]
    assert float(reached_places(array(4), array(3))) == pytest.approx(np.mean(ways))


def test_across_nodes_a_token_goes_once_to_each() -> None:
    # 32 ranks in 4 nodes of 8: 3.6 nodes are reached, three quarters of them are not its own.
    copies = distinct_ranks(array(8), array(32), array(8), array(4))
    assert float(copies.nic) == pytest.approx(4 * (1 - 0.75**8) * 0.75)
    assert float(copies.link) == pytest.approx(32 * (1 - (31 / 32) ** 8) * 31 / 32)


def test_routing_kept_to_few_nodes_reaches_no_more() -> None:
    free, kept = (distinct_ranks(array(8), array(64), array(8), array(g)) for g in (8, 4))
    assert float(kept.nic) == pytest.approx(4 * (1 - 0.75**8) * 7 / 8)
    assert float(kept.nic) < float(free.nic)


def test_pure_rdma_sends_everything_over_the_network() -> None:
    copies = each_expert(array(8), array(32), array(1))
    assert (float(copies.link), float(copies.nic)) == (0.0, 8 * 31 / 32)


def test_bytes_and_the_slowest_part() -> None:
    # 128 tokens of 7168 in fp8, six of eight copies to other nodes of 50 GB/s.
    sizes = each_expert(array(8), array(32), array(8)).sizes(array(128), array(7168), array(FP8_BYTES))
    assert float(sizes.nic_bytes) == 128 * 7168 * 1.03125 * 6
    times = exchange_times(sizes, RATES, H100, ONE)
    assert float(times.time_s) == pytest.approx(20e-6 + 128 * 7168 * 1.03125 * 6 / (0.8 * 50e9))
    assert times.bound() == "nic"


def test_sms_bind_where_the_link_is_faster_than_they_copy() -> None:
    few = replace(ONE, copy=100.0)
    times = exchange_times(ExchangeSizes(array(1e9), array(0)), RATES, H100, few)
    assert float(times.time_s) == pytest.approx(20e-6 + 1e9 / (100 * 1.83e9))


def test_the_pace_of_a_chip_scales_link_and_copies_but_not_the_network() -> None:
    # 1 GB inside and 1 GB between nodes at half the pace.
    times = exchange_times(ExchangeSizes(array(1e9), array(1e9)), RATES, H100, replace(ONE, pace=0.5, overhead_s=3e-6))
    terms = {name: float(term) for name, term in times.terms.items()}
    assert terms["link"] == pytest.approx(1e9 / (0.5 * 0.6 * 450e9))
    assert terms["copy"] == pytest.approx(1e9 / (0.5 * 1000 * H100.clock_hz))
    assert terms["nic"] == pytest.approx(1e9 / (0.8 * 50e9))
    assert float(times.time_s) == pytest.approx(3e-6 + max(terms["link"], terms["copy"], terms["nic"]))


@given(st.integers(1, 16), st.integers(1, 64))
def test_one_rank_sends_nothing_and_none_sends_more_than_k_copies(top_k: int, ranks: int) -> None:
    k, n = array(top_k), array(ranks)
    for copies in (distinct_ranks(k, n, n, array(4)), each_expert(k, n, n), balanced_ranks(k, n, n)):
        assert float(copies.nic) == 0.0
        assert 0.0 <= float(copies.link) <= top_k + 1e-9
        assert ranks > 1 or float(copies.link) == 0.0


@given(st.floats(0, 1e9), st.floats(0, 1e9), st.floats(1, 3))
def test_time_never_rises_with_the_link_or_with_fewer_bytes(link: float, nic: float, factor: float) -> None:
    here = exchange_times(ExchangeSizes(array(link), array(nic)), RATES, H100, ONE).time_s
    faster = ExchangeRates(450e9 * factor, 50e9 * factor)
    assert exchange_times(ExchangeSizes(array(link), array(nic)), faster, H100, ONE).time_s <= here
    assert exchange_times(ExchangeSizes(array(link * factor), array(nic * factor)), RATES, H100, ONE).time_s >= here
    assert here >= max(link / 450e9, nic / 50e9)
