"""A year of owning, by hand: the vector of Chiplet Cloud, the other method, and laws that both keep."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.prices.book import load_prices
from slipstick.cost.bill import Bill
from slipstick.cost.ownership.loans import YEAR_S, total_interest_usd
from slipstick.cost.ownership.tco import Estate, facility_bill, yearly_bill
from slipstick.ir.sizes.expr import Num

NODE = Estate(it_usd=310_000.0, network_usd=0.0, power_w=10_200.0, num_servers=1.0)
METHODS = ["chiplet-cloud", "annual"]


def year(estate: Estate, *settings: str) -> Bill:
    return yearly_bill(estate, load_prices(overrides=settings))


def test_a_node_of_eight_h100_as_chiplet_cloud_owns_it() -> None:
    """Node of 310,000 USD and 10.2 kW over four years: 486,773 USD, 1.74 USD an accelerator-hour before network.

    They pay energy for twelve months of thirty days; a year of 8760 hours has 120 more.
    """
    bill = year(NODE)
    four_years = {path: line.usd * 4 for path, line in bill.walk() if not line.parts}
    # Loans by annuity, month by month.
    m = 0.08 / 12
    server_loan = 310_000 * (48 * m / (1 - (1 + m) ** -48) - 1)
    building_loan = 10 * 10_200 * 4 / 12 * (144 * m / (1 - (1 + m) ** -144) - 1)
    energy = 0.067 * 10.2 * 8760 * 4
    by_hand = {
        "year/capital/servers": 310_000,
        "year/capital/network": 0,
        "year/capital/facility": 10 * 10_200 * 4 / 12,
        "year/interest/servers": server_loan,
        "year/interest/network": 0,
        "year/interest/facility": building_loan,
        "year/operations/servers": 0.05 * 310_000,
        "year/operations/facility": 0.04 * 10_200 * 48,
        "year/energy/machines": energy,
        "year/energy/building": 0.5 * energy,
    }
    assert four_years == pytest.approx(by_hand)
    published = float(bill.usd) * 4 - 1.5 * 0.067 * 10.2 * (8760 - 24 * 30 * 12) * 4
    assert round(published) == 486_773
    assert round(float(bill.usd) / 8 / 8760, 2) == 1.74


def test_a_node_by_the_method_annual() -> None:
    bill = year(NODE, "tco.method=annual")
    m = 0.08 / 12
    lines = {
        "capital/servers": 310_000 / 4,
        "capital/facility": 9.5 * 10_200 / 20,
        "interest/servers": 310_000 * (48 * m / (1 - (1 + m) ** -48) - 1) / 4,
        "interest/facility": 9.5 * 10_200 * (240 * m / (1 - (1 + m) ** -240) - 1) / 20,
        "operations": 5000 + 600 + 200,
        "energy/machines": 0.067 * 10.2 * 8760,
        "energy/building": 0.5 * 0.067 * 10.2 * 8760,
    }
    assert {path: bill.line(path).usd for path in lines} == pytest.approx(lines)
    assert bill.usd == pytest.approx(sum(lines.values()))


def test_each_class_has_its_own_life_in_the_method_annual() -> None:
    estate = Estate(0.0, 8500.0, 0.0, 0.0)
    assert year(estate, "tco.method=annual").line("capital/network").usd == pytest.approx(1000)
    assert year(estate).line("capital/network").usd == pytest.approx(8500 / 4)


def test_a_server_that_pays_a_sum_for_its_building_pays_no_loan_of_it() -> None:
    bill = year(NODE, "facility.charged=per_server")
    assert bill.line("capital/facility").usd == pytest.approx(50_000 / 4)
    assert bill.line("interest/facility").usd == 0
    assert [line.name for line in bill.line("operations").parts] == ["servers"]


def test_liquid_cooling_has_a_pue_and_a_price_of_its_own() -> None:
    liquid = Estate(NODE.it_usd, 0.0, NODE.power_w, 1.0, cooling="liquid")
    energy = year(liquid).line("energy")
    assert energy.line("building").usd == pytest.approx(0.1 * energy.line("machines").usd)
    annual = load_prices(overrides=("tco.method=annual",))
    assert facility_bill(liquid, annual).usd == pytest.approx((7 + 3) * 10_200)


def test_energy_goes_by_what_is_drawn_on_average_where_that_is_known() -> None:
    half = Estate(NODE.it_usd, 0.0, NODE.power_w, 1.0, average_w=5_100.0)
    assert year(half).line("energy").usd == pytest.approx(year(NODE).line("energy").usd / 2)
    assert year(half).line("capital").usd == year(NODE).line("capital").usd


def test_a_loan_without_interest_costs_nothing() -> None:
    assert total_interest_usd(1000.0, 0.0, 4 * YEAR_S) == 0.0


@given(rate=st.floats(1e-9, 0.5), years=st.floats(0.5, 30))
def test_interest_is_that_of_a_balance_that_is_paid_off(rate: float, years: float) -> None:
    months = round(years * 12)
    payment = (1.0 + total_interest_usd(1.0, rate, months / 12 * YEAR_S)) / months
    balance: Num = 1.0
    for _ in range(months):
        balance = balance * (1 + rate / 12) - payment
    assert balance == pytest.approx(0.0, abs=1e-6 * (1 + rate / 12) ** months)


@settings(max_examples=20)
@given(
    method=st.sampled_from(METHODS),
    number=st.sampled_from(
        ["energy.electricity", "facility.pue.air", "tco.interest_rate", "facility.capex", "facility.power_delivery",
         "facility.cooling.air", "facility.opex", "tco.maintenance", "tco.server_opex", "energy.average_load"]
    ),
    factor=st.floats(0.5, 0.99),
)  # fmt: skip
def test_nothing_gets_cheaper_when_a_price_rises(method: str, number: str, factor: float) -> None:
    usual = load_prices()
    record = next(r for r in usual.records if r.path == f"prices.{number}")
    lower = max(record.value_si * factor, 1.0) if "pue" in number else record.value_si * factor
    cheap, dear = (f"{number}={v!r} {record.dimension}" for v in (lower, record.value_si))
    assert year(NODE, f"tco.method={method}", cheap).usd <= year(NODE, f"tco.method={method}", dear).usd * (1 + 1e-12)


@given(method=st.sampled_from(METHODS), it=st.floats(0, 1e6), net=st.floats(0, 1e6), power_w=st.floats(0, 1e5))
def test_parts_add_up(method: str, it: float, net: float, power_w: float) -> None:
    bill = year(Estate(it, net, power_w, 1.0), f"tco.method={method}")
    for _, line in bill.walk():
        if line.parts:
            assert line.usd == pytest.approx(sum(part.usd for part in line.parts))
    leaves = [line.usd for _, line in bill.walk() if not line.parts]
    assert bill.usd == pytest.approx(sum(leaves))
    assert min(leaves) >= 0


@pytest.mark.parametrize("method", METHODS)
def test_many_estates_at_once_are_as_each_alone(method: str) -> None:
    prices = np.array([1e5, 2e5, 3e5])
    powers = np.array([5e3, 1e4, 2e4])
    at_once = year(Estate(prices, prices / 10, powers, 1.0), f"tco.method={method}").usd
    alone = [year(Estate(p, p / 10, w, 1.0), f"tco.method={method}").usd for p, w in zip(prices, powers, strict=True)]
    assert at_once == pytest.approx(alone)


def test_energy_is_of_the_load_that_the_book_assumes_or_of_the_power_that_is_known() -> None:
    half = year(NODE, "energy.average_load=0.5").line("energy").usd
    assert half == pytest.approx(year(NODE).line("energy").usd / 2)
    known = Estate(NODE.it_usd, 0.0, NODE.power_w, 1.0, average_w=2_550.0)
    assert year(known, "energy.average_load=0.5").line("energy").usd == pytest.approx(half / 2)
