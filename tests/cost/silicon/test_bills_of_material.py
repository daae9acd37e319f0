"""What analysts say three accelerators cost their makers, against the catalogue's packages under the profile `market`.

The targets are those of the book's `bills`: siliconanalysts.com, February 2026, citing Epoch AI and Raymond James.
"""

from __future__ import annotations

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.backends.prices.book import load_prices
from slipstick.cost.bill import Bill
from slipstick.cost.silicon.packages.package import package_bill

SYSTEMS = {"h100": "dgx-h100", "b200": "dgx-b200", "mi300x": "mi300x-platform"}


def bill_of(chip: str) -> Bill:
    package = load_system(SYSTEMS[chip]).package
    assert package is not None
    return package_bill(package, load_prices("market"))


def usd(bill: Bill, *names: str) -> float:
    return sum(float(bill.line(name).usd) for name in names)


MADE = ("raw chips", "chip defects", "raw package", "package defects", "wasted dies", "memory", "test and assembly")


@pytest.mark.parametrize("chip", SYSTEMS)
def test_totals_are_within_fifteen_percent(chip: str) -> None:
    quoted = load_prices().section.bills[chip].total
    assert quoted is not None
    assert usd(bill_of(chip), *MADE) == pytest.approx(quoted.si, rel=0.15)


@pytest.mark.parametrize("chip", SYSTEMS)
def test_logic_is_within_ten_percent_and_memory_within_twelve(chip: str) -> None:
    quoted = load_prices().section.bills[chip]
    assert quoted.logic is not None
    assert quoted.memory is not None
    bill = bill_of(chip)
    assert usd(bill, "raw chips", "chip defects") == pytest.approx(quoted.logic.si, rel=0.10)
    assert usd(bill, "memory") == pytest.approx(quoted.memory.si, rel=0.12)


def test_chiplet_actuary_asks_more_for_logic_and_less_for_packages() -> None:
    package = load_system("dgx-h100").package
    assert package is not None
    usual, market = package_bill(package, load_prices("chiplet-actuary")), bill_of("h100")
    assert usd(usual, "raw chips", "chip defects") > 1.4 * usd(market, "raw chips", "chip defects")
    assert usd(usual, "raw package") < 0.3 * usd(market, "raw package")
