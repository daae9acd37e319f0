"""Assembly as a tree after CATCH: every factor by hand, its bug of the uptime not repeated."""

from __future__ import annotations

import math

import pytest

from slipstick.backends.machine.package import Assembly, D2d, Die, Package, Stack
from slipstick.backends.prices.book import load_prices
from slipstick.backends.prices.section import Prices
from slipstick.cost.silicon.dies.die import good_die
from slipstick.cost.silicon.dies.pads import pads_of, power_pads
from slipstick.cost.silicon.packages.assembly import process_of
from slipstick.cost.silicon.packages.package import package_bill
from slipstick.ir.errors import UnknownNameError

YEAR_S = 365 * 86400


@pytest.fixture(scope="module")
def catch() -> Prices:
    return load_prices("catch")


def of(die: Die, joint: str = "organic") -> Assembly:
    return Assembly("p", "organic" if joint == "organic" else "interposer", (die,))


def test_power_pads_carry_the_current_of_a_die(catch: Prices) -> None:
    # 0.86 W/mm2 at 0.8 V over pads of pi (0.11 / 4)^2 mm2 that take 100 A/mm2, power and ground.
    process = process_of(of(Die("d", "N5", 800.0)), catch.section)
    pads = 2 * math.ceil(0.86 * 800 / (0.8 * 100 * math.pi * 0.0275**2))
    assert float(power_pads(800.0, process, catch.section)) == pads
    joined = Die("d", "N5", 800.0, d2d=D2d("ucie-advanced", 1e12, 2.0))
    # 1 TB/s both ways over two edges are 1000 lanes of 4 GB/s; a scan chain has three pads.
    assert float(pads_of(joined, process, catch.section)) == pads + 1000 + 3
    assert float(pads_of(Stack("hbm3", 16e9), process, catch.section)) == 2048


def test_one_die_on_an_organic_substrate_by_hand(catch: Prices) -> None:
    book = catch.section
    die = Die("d", "N5", 400.0)
    one = good_die(die, book)
    area = (math.sqrt((20 + 1) ** 2) + 2 * 2) ** 2
    process = process_of(of(die), book)
    bonds = float(pads_of(die, process, book))
    second = [(machine / 5 + 1e5) / YEAR_S / 0.9 for machine in (6e5, 2e5)]
    joining = 10 * second[0] + 20 * second[1] + 0.1 * 400
    good = float(one.test.quality) * 0.999 * 0.999999**bonds
    shipped = 1 - (1 - good) * 0.95
    final = (4 + 1) * 100 * 1e-7 * 0.006
    expected = (float(one.usd) + 0.005 * area + joining + final) / shipped
    bill = package_bill(Package(of(die)), catch)
    assert float(bill.usd) == pytest.approx(expected, rel=1e-12)
    assert float(bill.line("raw package/p/joining").usd) == pytest.approx(joining)


def test_an_interposer_is_tested_before_it_is_set_down(catch: Prices) -> None:
    # Two dies of 200 mm2 with 0.1 mm between and around.
    bill = package_bill(Package(Assembly("p", "interposer", (Die("d", "N5", 200.0, 2.0),))), catch)
    area = (math.sqrt(2 * (math.sqrt(200) + 0.1) ** 2) + 0.2) ** 2
    made = (1 + 1e-5 * 0.3 * area / 2) ** -2
    raw = float(bill.line("raw package/p/interposer").usd)
    shipped = 1 - (1 - made) * 0.95
    assert float(bill.line("package defects/p/substrates").usd) == pytest.approx(raw * (1 / shipped - 1))
    assert [line.name for line in bill.line("raw package/p").parts] == [
        "interposer",
        "joining",
        "substrate below",
        "joining below",
    ]


def test_bridges_are_bought_embedded_and_lost_with_their_substrate() -> None:
    """On one process for both, three dies with two bridges cost these more, and good ones are 0.995^2 as many."""
    book = load_prices("catch", ("assembly_of.embedded_bridge=organic-110um",))
    dies = (Die("d", "N5", 200.0, 3.0),)
    plain, bridged = (package_bill(Package(Assembly("p", j, dies)), book) for j in ("organic", "embedded_bridge"))
    prices = book.section.packages.bridge
    bought = float(bridged.line("raw package/p/bridges").usd)
    assert bought > 2 * prices.embed_cost.si > 0.0
    assert bridged.line("raw package").usd == pytest.approx(float(plain.line("raw package").usd) + bought)
    # What is wasted of the dies is (1 - Y) / Y of them, where a test of coverage 0.95 passes 1 - 0.95 (1 - q).
    usd = 3 * float(good_die(dies[0], book.section).usd)
    passed = [1.0 / (1.0 + float(b.line("wasted dies").usd) / usd) for b in (plain, bridged)]
    good = [1.0 - (1.0 - y) / 0.95 for y in passed]
    assert good[1] / good[0] == pytest.approx(prices.embed_yield.si**2)
    assert prices.embed_yield.si == 0.995


def test_better_tests_cost_less_of_what_is_assembled(catch: Prices) -> None:
    package = Package(Assembly("p", "interposer", (Die("d", "N5", 600.0), Stack("hbm3", 16e9, 4.0))))
    poor = load_prices("catch", ("tests.coverage=0.5",))
    assert package_bill(package, poor).line("wasted dies").usd > package_bill(package, catch).line("wasted dies").usd


def test_a_process_that_there_is_not(catch: Prices) -> None:
    wrong = load_prices("catch", ("assembly_of.organic=organic-111um",))
    with pytest.raises(UnknownNameError, match="did you mean 'organic-110um'"):
        package_bill(Package(of(Die("d", "N5", 100.0))), wrong)
