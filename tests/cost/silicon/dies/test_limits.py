"""What cannot be made is refused with numbers when alone, and marked in a table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slipstick.backends.machine.package import Assembly, D2d, Die, Joint, Package, Stack
from slipstick.backends.prices.book import load_prices
from slipstick.backends.prices.section import Prices
from slipstick.cost.silicon.dies.limits import Obstacle, obstacles
from slipstick.cost.silicon.packages.package import package_bill
from slipstick.ir.errors import UnknownNameError, UsageError
from slipstick.ir.sizes.expr import Num


@pytest.fixture(scope="module")
def prices() -> Prices:
    return load_prices("chiplet-actuary")


def of(*contents: Die | Stack | Assembly, joint: Joint = "organic", substrate_mm2: Num | None = None) -> Package:
    return Package(Assembly("package", joint, contents, substrate_mm2=substrate_mm2))


HBM = Stack("hbm3", 16 * 2**30, 8.0, "hbm")
WIDE = D2d("ucie-standard", 4e12)
BAD = {
    r"package, d: a die of 900 mm2 is beyond the field of 858 mm2 \(26 mm x 33 mm\)": of(Die("d", "N5", 900.0)),
    "no die of 70000 mm2 fits a wafer of 300 mm": of(Die("d", "N5", 70000.0, stitched=True)),
    "a substrate of 1200 mm2 cannot hold 1680 mm2: 1 d, 8 hbm": of(
        Die("d", "N5", 800.0), HBM, joint="interposer", substrate_mm2=1200.0
    ),
    r"interposer of 3608 mm2 is beyond the largest of 2831.4 mm2 \(prices.packages.interposer.limit\)": of(
        Die("d", "N5", 800.0, 3.0), HBM, joint="interposer"
    ),
    "organic substrate of 16000 mm2 is beyond the largest of 14400 mm2": of(Die("d", "N5", 800.0, 5.0)),
    "package, stack: a base of 100 mm2 cannot hold 120 mm2: 1 below, 2 above": of(
        Assembly("stack", "hybrid_bond", (Die("below", "N6", 100.0), Die("above", "N5", 60.0, 2.0)))
    ),
    "no shoreline for 4 TB/s of ucie-standard over one edge: 63 modules take 36 mm of 20 mm; at most 2.18 TB/s": of(
        Die("d", "N5", 400.0, 2.0, d2d=WIDE)
    ),
    "an area of 0 mm2 must be more than zero": of(Die("d", "N5", 0.0)),
    "a count of -2 must be more than zero": of(Die("d", "N5", 100.0, -2.0)),
    "d: a die has 4 edges, not 5": of(Die("d", "N5", 100.0, d2d=D2d("ucie-standard", 64e9, 5.0))),
    "package, hbm: hbm3 needs finer wires than an organic substrate has: join it by interposer, fan_out,": of(
        Die("d", "N5", 100.0), HBM
    ),
    "holds nothing": of(),
    "the first content carries the others; memory cannot": of(HBM, joint="hybrid_bond"),
}


@pytest.mark.parametrize("message", BAD)
def test_one_design_that_cannot_be_made_is_refused(prices: Prices, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        package_bill(BAD[message], prices)


def test_a_large_die_may_be_stitched(prices: Prices) -> None:
    large = of(Die("d", "N5", 900.0, stitched=True))
    assert package_bill(large, prices).usd > package_bill(of(Die("d", "N5", 858.0)), prices).usd


def test_high_na_halves_the_field() -> None:
    half = load_prices("chiplet-actuary", overrides=("models.field=half",))
    with pytest.raises(UsageError, match=r"beyond the field of 429 mm2 \(16.5 mm x 26 mm\)"):
        package_bill(of(Die("d", "A14", 500.0)), half)


def test_names_that_there_are_not(prices: Prices) -> None:
    with pytest.raises(UnknownNameError, match="unknown technology node of package, d: 'N55x'; did you mean 'N55'"):
        package_bill(of(Die("d", "N55x", 100.0)), prices)
    with pytest.raises(UnknownNameError, match="unknown memory of package, memory: 'hbm33'"):
        package_bill(of(Die("d", "N5", 100.0), Stack("hbm33", 1e9)), prices)
    with pytest.raises(UnknownNameError, match="ucie-advanced"):
        package_bill(of(Die("d", "N5", 100.0, d2d=D2d("ucie-advance", 1e9))), prices)


def test_a_table_marks_what_cannot_be_made(prices: Prices) -> None:
    table = of(Die("d", "N5", np.array([0.0, 400.0, 858.0, 900.0, 1e5])))
    assert (obstacles(table, prices) == Obstacle.NONE).tolist() == [False, True, True, False, False]
    alone = [package_bill(of(Die("d", "N5", area)), prices).usd for area in (400.0, 858.0)]
    assert np.asarray(package_bill(table, prices).usd)[1:3].tolist() == pytest.approx(alone, rel=1e-12)


def test_a_table_of_interfaces_is_marked_by_its_edges(prices: Prices) -> None:
    table = of(Die("d", "N5", 400.0, 2.0, d2d=D2d("ucie-standard", np.array([2.1e12, 4e12]))))
    assert (obstacles(table, prices) == Obstacle.NONE).tolist() == [True, False]


def test_memory_with_fine_wires_is_marked_where_an_organic_substrate_carries_it(prices: Prices) -> None:
    logic = Die("d", "N5", np.array([100.0, 900.0]))
    assert obstacles(of(logic, HBM), prices).tolist() == [Obstacle.FINE_WIRES, Obstacle.FIELD]
    assert (obstacles(of(logic, HBM, joint="embedded_bridge"), prices) == Obstacle.NONE).tolist() == [True, False]
    assert (obstacles(of(logic, Stack("gddr6", 2.0**31)), prices) == Obstacle.NONE).tolist() == [True, False]
    wired = Assembly("wired", "interposer", (Die("d", "N5", 100.0), replace(HBM, count=2.0)))
    assert (obstacles(of(wired), prices) == Obstacle.NONE).all()
    coarse = load_prices("chiplet-actuary", overrides=("memories.hbm3.density=40 1/mm",))
    assert (obstacles(of(logic, HBM), coarse) == Obstacle.NONE).tolist() == [True, False]


@pytest.mark.parametrize(
    ("kind", "fine"), [("ucie-advanced", True), ("ucie-standard", False), ("bow", False), ("nvlink-c2c", False)]
)
def test_an_interface_of_fine_wires_needs_more_than_an_organic_substrate(prices: Prices, kind: str, fine: bool) -> None:
    # UCIe: 128 wires of an advanced module on 0.39 mm, 32 of a standard one on 0.57 mm; organic has 100 a mm.
    dies = Die("d", "N5", np.array([100.0, 900.0]), 2.0, d2d=D2d(kind, 64e9))
    assert obstacles(of(dies), prices).tolist() == [Obstacle.FINE_WIRES if fine else Obstacle.NONE, Obstacle.FIELD]
    assert (obstacles(of(dies, joint="embedded_bridge"), prices) == Obstacle.NONE).tolist() == [True, False]
    if fine:
        with pytest.raises(UsageError, match="ucie-advanced needs finer wires than an organic substrate has"):
            package_bill(of(replace(dies, area_mm2=100.0)), prices)
