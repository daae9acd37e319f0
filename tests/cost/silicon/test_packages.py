"""Whole packages: published vectors of Chiplet Actuary with bumps on every die, and how bills add up."""

from __future__ import annotations

import pytest

from slipstick.backends.package import Assembly, Die, Joint, Package
from slipstick.backends.prices.book import load_prices
from slipstick.backends.prices.section import Prices
from slipstick.cost.bill import Bill
from slipstick.cost.silicon.package import package_bill

FIVE = ("raw chips", "chip defects", "raw package", "package defects", "wasted dies")


@pytest.fixture(scope="module")
def prices() -> Prices:
    return load_prices()


def of_dies(count: float, area_mm2: float, joint: Joint = "organic") -> Package:
    return Package(Assembly("package", joint, (Die("logic", "N5", area_mm2, count),)))


def five(bill: Bill) -> list[float]:
    return [round(float(bill.line(name).usd), 2) for name in FIVE]


@pytest.mark.parametrize(
    ("package", "total"),
    [
        (of_dies(1, 800.0), 698.58),
        (of_dies(2, 400.0), 446.95),
        (of_dies(4, 200.0), 355.86),
        (of_dies(2, 400.0, "interposer"), 553.41),
    ],
)
def test_packages_on_n5_cost_what_the_formulas_of_chiplet_actuary_give(
    prices: Prices, package: Package, total: float
) -> None:
    assert round(float(package_bill(package, prices).usd), 2) == total


def test_the_five_parts_of_one_die_on_an_organic_substrate(prices: Prices) -> None:
    assert five(package_bill(of_dies(1, 800.0), prices)) == [292.95, 382.65, 16.0, 0.16, 6.82]
