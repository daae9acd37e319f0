"""Several systems priced side by side: the same sums as one at a time, what is missing, and dates."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.cost.money import Terms, system_money
from slipstick.report.cost.systems import BASES, costs_of, costs_result, costs_text


@pytest.mark.parametrize("basis", list(BASES))
def test_each_basis_is_that_of_the_system_alone(basis: str) -> None:
    system = load_system("dgx-h100")
    alone = system_money(system, 256, BASES[basis])
    together = costs_of(system, 256).money[basis]
    assert float(together.owned.usd_per_gpu_hour) == float(alone.owned.usd_per_gpu_hour)


def test_the_cheapest_gpu_hour_at_market_prices_is_first() -> None:
    names = ("dgx-b200", "dgx-a100-80gb", "dgx-h100")
    document = json.loads(costs_result([[costs_of(load_system(name), 256) for name in names]]).json())
    hours = [one["bases"]["market"]["usd_per_gpu_hour"] for one in document["systems"]]
    assert hours == sorted(hours)
    assert {one["system"] for one in document["systems"]} == set(names)


def test_what_nobody_rents_out_is_said_and_the_other_bases_stand() -> None:
    found = costs_of(load_system("gb200-nvl72"), 72)
    assert set(found.money) == {"market", "build"}
    text = costs_text([found])
    assert "gb200-nvl72, rent: prices.cloud has no GB200-186GB" in text
    assert text.splitlines()[2].split()[7] == "-"


def test_a_machine_without_some_prices_costs_at_least_so_much() -> None:
    system = replace(load_system("dgx-h100"), server=None, rack=None)
    text = costs_text([costs_of(system, 1024)])
    assert "at least $" in text
    assert "not priced: " in text


def test_dates_are_those_of_prices_in_the_bills() -> None:
    found = costs_of(load_system("dgx-h100"), 1024)
    oldest, newest, dated, count = found.dates
    # The price of a rented H100, and that of its wafers.
    assert found.money["rent"].prices.section.cloud["H100-SXM5-80GB"].price.as_of == newest == "2026-05"
    records = {one.path: one.as_of for one in found.money["build"].prices.records}
    assert oldest == records["prices.nodes.N4.wafer_price"]
    assert 0 < dated < count
    assert Terms() == BASES["market"]
