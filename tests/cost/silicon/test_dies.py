"""Yields, dies on wafers, tests and machines against published formulas and figures, and numbers derived by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from slipstick.backends.machine.package import Die, Harvest
from slipstick.backends.prices.book import load_prices
from slipstick.backends.prices.silicon_schema import SiliconSection
from slipstick.cost.silicon.dies.die import good_die
from slipstick.cost.silicon.dies.tests_of_dies import passing
from slipstick.cost.silicon.dies.wafers import dies_per_wafer, field_use, fields, formula, placed, shape, stitches
from slipstick.cost.silicon.dies.yields import (
    bose_einstein,
    die_yield,
    harvested,
    murphy,
    negative_binomial,
    poisson,
    seeds,
)
from slipstick.cost.silicon.packages.machines import machine_usd, second_usd

# Chiplet Actuary has 0.11 defects a cm2 on N5.
N5 = 0.0011


def book(*overrides: str, profile: str = "chiplet-actuary") -> SiliconSection:
    return load_prices(profile, overrides).section


@pytest.fixture(scope="module")
def usual() -> SiliconSection:
    return book()


@pytest.mark.parametrize(("area_mm2", "expected"), [(814.0, 0.4242), (400.0, 0.6501), (200.0, 0.8044)])
def test_the_usual_yield_is_chiplet_actuarys(usual: SiliconSection, area_mm2: float, expected: float) -> None:
    assert round(float(die_yield(area_mm2, "N5", usual)), 4) == expected


def test_a100_on_n7(usual: SiliconSection) -> None:
    assert round(float(die_yield(826.0, "N7", usual)), 4) == 0.4882


@pytest.mark.parametrize(("model", "expected"), [("poisson", 0.4084), ("murphy", 0.4365), ("seeds", 0.5276)])
def test_other_models_of_the_same_die(model: str, expected: float) -> None:
    assert round(float(die_yield(814.0, "N5", book(f"models.yield={model}"))), 4) == expected


def test_catchs_defects_are_more_and_kill_less_often() -> None:
    assert round(float(die_yield(800.0, "N5", book(profile="catch"))), 4) == 0.1826
    mature = book("nodes.N3.defect_density=0.1 1/cm2", profile="catch")
    assert round(float(die_yield(800.0, "N3", mature)), 4) == 0.6104


def test_layers_with_defects_of_their_own_multiply() -> None:
    assert math.isclose(float(bose_einstein(500.0, N5, 7.0)), float(seeds(500.0, N5)) ** 7)
    assert math.isclose(
        float(die_yield(814.0, "N5", book("models.yield=bose_einstein"))),
        float(negative_binomial(814.0, N5, 10.0)),
    )


def test_clustering_goes_from_seeds_to_poisson() -> None:
    assert math.isclose(float(negative_binomial(814.0, N5, 1.0)), float(seeds(814.0, N5)))
    assert math.isclose(float(negative_binomial(814.0, N5, 1e9)), float(poisson(814.0, N5)), rel_tol=1e-6)


def test_no_area_is_always_good() -> None:
    assert [float(model(0.0, N5)) for model in (poisson, murphy, seeds)] == [1.0, 1.0, 1.0]


def test_gross_yield_is_a_factor() -> None:
    assert math.isclose(float(die_yield(814.0, "N5", book("wafer.process_yield=0.94"))), 0.94 * 0.4241976027)


@pytest.mark.parametrize(
    ("units", "spare", "good"), [(1001, 3, 0.999), (1500, 400, 0.75), (2000, 0, 0.9999), (1200, 1200, 0.1)]
)
def test_units_by_the_thousand_are_counted_as_few_are(units: int, spare: int, good: float) -> None:
    y = Fraction(good).limit_denominator(10_000)
    exact = sum(math.comb(units, j) * y ** (units - j) * (1 - y) ** j for j in range(spare + 1))
    assert float(harvested(good, 1.0, units, units - spare)) == pytest.approx(float(exact), rel=1e-9)


def test_a_wafer_of_a_million_units_has_a_yield() -> None:
    # 970,000 units of which each is bad with 1e-5: 9.7 bad ones on average, of which a Poisson law allows ten.
    mean = 970_000 * 1e-5
    allowed = sum(math.exp(-mean) * mean**j / math.factorial(j) for j in range(11))
    found = harvested(np.array([1 - 1e-5, 1.0, 0.5]), 1.0, 970_000, 970_000 - 10)
    assert np.asarray(found).tolist() == pytest.approx([allowed, 1.0, 0.0], rel=1e-4)


def test_harvesting_counts_the_units_that_may_be_bad() -> None:
    # Of three units two must be good: y^3 + 3 y^2 (1 - y).
    assert math.isclose(float(harvested(0.8, 0.5, 3, 2)), 0.5 * (0.512 + 3 * 0.64 * 0.2))


def test_h100_sells_dies_with_bad_multiprocessors(usual: SiliconSection) -> None:
    # Twelve of 144 may be bad on 58 % of the die, so the rest alone decides: (1 + 3.4188 x 0.11 / 10)^-10.
    sold = die_yield(814.0, "N4", usual, Harvest(144, 132, 0.58))
    assert math.isclose(float(sold), (1 + 0.42 * 8.14 * 0.011) ** -10, rel_tol=1e-6)
    assert float(sold) > 1.6 * float(die_yield(814.0, "N4", usual))


@pytest.mark.parametrize(("area_mm2", "expected"), [(814.0, 57.6), (800.0, 58.8), (400.0, 130.0), (200.0, 276.2)])
def test_dies_of_a_wafer_by_the_usual_formula(usual: SiliconSection, area_mm2: float, expected: float) -> None:
    assert round(float(dies_per_wafer(area_mm2, 1.0, usual)), 1) == expected


def test_the_plain_formula_has_no_edge_and_no_lanes() -> None:
    expected = math.pi * 150.0**2 / 100.0 - math.pi * 300.0 / math.sqrt(200.0)
    assert math.isclose(float(dies_per_wafer(100.0, 1.0, book("models.dies_per_wafer=plain_formula"))), expected)


# What the tests of CATCH expect of dies, lanes and usable radii in mm: on a grid, and row by row.
CATCHS_WAFERS = {
    (10.0, 1.0, 150.0): (540, 550),
    (1.0, 1.0, 150.0): (17470, 17590),
    (100.0, 1.0, 150.0): (4, 4),
    (10.0, 1.0, 50.0): (52, 52),
    (10.0, 0.1, 150.0): (639, 639),
    (10.0, 2.0, 150.0): (452, 452),
}


@pytest.mark.parametrize("wafer", CATCHS_WAFERS)
def test_placement_finds_what_catch_finds_and_no_more_than_fits(wafer: tuple[float, float, float]) -> None:
    side_mm, lane_mm, radius_mm = wafer
    grid, rows = (float(placed(side_mm, side_mm, lane_mm, radius_mm, shifted)) for shifted in (False, True))
    least_grid, least_rows = CATCHS_WAFERS[wafer]
    assert least_grid <= grid <= 1.01 * least_grid
    assert max(least_rows, grid) <= rows <= math.pi * (radius_mm + lane_mm) ** 2 / (side_mm + lane_mm) ** 2


def test_placement_of_many_is_that_of_each() -> None:
    sides = np.array([10.0, 20.0, 26.0, 10.0])
    together = np.asarray(placed(sides, sides, 0.1, 145.0, False))
    assert together.tolist() == [float(placed(side, side, 0.1, 145.0, False)) for side in sides.tolist()]


def test_no_die_larger_than_the_wafer() -> None:
    assert float(placed(220.0, 220.0, 0.1, 150.0, False)) == 0.0
    assert float(formula(80000.0, 300.0, 5.0, 0.2)) == 0.0


def test_a_die_is_drawn_as_square_as_the_field_allows(usual: SiliconSection) -> None:
    small, large = shape(400.0, 1.0, usual), shape(814.0, 1.0, usual)
    assert (float(small.width_mm), float(small.height_mm)) == (20.0, 20.0)
    assert float(large.width_mm) == 26.0
    assert math.isclose(float(large.height_mm), 814.0 / 26.0)


def test_stitches_are_lines_between_fields(usual: SiliconSection) -> None:
    # 46225 mm2 are 215 mm a side: nine columns of 26 mm and seven rows of 33 mm.
    assert float(stitches(shape(46225.0, 1.0, usual), usual)) == 8 + 6
    assert float(stitches(shape(858.0, 1.0, usual), usual)) == 0.0
    assert float(stitches(shape(858.0, 1.0, usual), book("models.field=half"))) == 1.0


def test_fields_are_columns_by_rows(usual: SiliconSection) -> None:
    assert float(fields(shape(46225.0, 1.0, usual), usual)) == 9 * 7
    assert float(fields(shape(858.0, 1.0, usual), usual)) == 1.0
    # Two columns by two rows of 26 mm x 33 mm hold 40 mm a side; 30 mm x 50 mm is two rows, laid either way.
    assert float(fields(shape(1600.0, 1.0, usual), usual)) == 4.0
    assert float(fields(shape(1500.0, 50 / 30, usual), usual)) == 2.0


def test_dies_leave_a_part_of_a_field_unused(usual: SiliconSection) -> None:
    assert math.isclose(float(field_use(500.0, usual)), 500.0 / 858.0)
    assert math.isclose(float(field_use(200.0, usual)), 800.0 / 858.0)
    assert math.isclose(float(field_use(1000.0, usual)), 1000.0 / 1716.0)


def test_catch_prices_area_with_the_lithography_left_unused() -> None:
    catch = book(profile="catch")
    one = good_die(Die("d", "N5", 500.0), catch)
    wafer = 0.25024 * math.pi * 147.0**2 * (0.7 + 0.3 * 858.0 / 500.0)
    assert math.isclose(float(one.wafer_usd), wafer)
    assert math.isclose(float(one.raw_usd), wafer / float(one.dies_per_wafer))


def test_a_known_good_die_pays_for_those_that_failed(usual: SiliconSection) -> None:
    one = good_die(Die("d", "N5", 800.0), usual)
    assert [round(float(v), 2) for v in (one.raw_usd, one.defects_usd, one.test_usd)] == [288.95, 382.65, 0.0]
    assert math.isclose(float(one.bill().usd), float(one.usd))


def test_a_test_that_misses_some_ships_more_of_less_quality() -> None:
    # Half are bad, of which a tenth passes: 0.55 are shipped, 10 of 11 of them good.
    found = passing(0.5, 0.9, 1.0)
    assert math.isclose(float(found.shipped), 0.55)
    assert math.isclose(float(found.quality), 10 / 11)


def test_the_test_of_a_die_takes_testers_time() -> None:
    # 201 patterns through 100000 flip-flops at 100 ns are 2.01 s of a tester of 0.006 USD/s.
    one = good_die(Die("d", "N5", 100.0), book("models.tests=coverage"))
    assert math.isclose(float(one.test.test_usd), 0.006 * 2.01)
    assert math.isclose(float(one.usd), float((one.raw_usd + one.test.test_usd) / one.test.shipped))


def test_idle_time_makes_seconds_of_a_machine_dearer(usual: SiliconSection) -> None:
    # 0.5 MUSD over five years and 0.1 MUSD a year are 0.00634 USD a second of the year, a ninth more a second in use.
    machines = usual.machines
    assert round(second_usd(5e5, machines) * machines.uptime.si, 5) == 0.00634
    process = usual.processes["silicon-45um"]
    assert math.isclose(float(machine_usd(3.0, process, machines)), 3 * 30 * second_usd(5e5, machines))
    together = usual.processes["organic-110um"]
    expected = 3 * 10 * second_usd(6e5, machines) + 20 * second_usd(2e5, machines)
    assert math.isclose(float(machine_usd(3.0, together, machines)), expected)


def test_each_line_of_stitching_is_a_factor_of_the_yield() -> None:
    """Sides of 34.6 mm are longer than both of a field, 26 mm x 33 mm: one line across and one along."""
    whole, lossy = (
        good_die(Die("d", "N5", 1200.0, stitched=True), book(f"wafer.stitch_yield={y}")).good for y in (1.0, 0.9)
    )
    assert float(lossy) == pytest.approx(0.9**2 * float(whole))


def test_a_share_of_the_die_is_added_to_the_time_on_testers() -> None:
    plain, dearer = (
        good_die(Die("d", "N5", 100.0), book("models.tests=coverage", f"tests.die_share={x}")) for x in (0.0, 0.1)
    )
    assert float(dearer.test.test_usd - plain.test.test_usd) == pytest.approx(0.1 * float(plain.raw_usd))
