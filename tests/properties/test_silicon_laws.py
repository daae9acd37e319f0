"""Laws of dies and packages: what more area, defects, prices, volume and pieces can and cannot do to a cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.package import Assembly, Die, Harvest, Joint, Package, Stack
from slipstick.backends.prices.book import load_prices, profile_names
from slipstick.backends.prices.section import Prices
from slipstick.backends.prices.silicon_schema import CHOICES
from slipstick.cost.bill import Bill
from slipstick.cost.silicon.dies.wafers import dies_per_wafer
from slipstick.cost.silicon.dies.yields import die_yield
from slipstick.cost.silicon.packages.package import package_bill

AREAS = st.floats(10.0, 600.0)
FACTORS = st.floats(1.01, 1.4)
NODES = st.sampled_from(["N12", "N7", "N6", "N5", "N4P", "N3", "N2"])
JOINTS: st.SearchStrategy[Joint] = st.sampled_from([j for j in get_args(Joint) if j != "hybrid_bond"])
PROFILES = st.sampled_from(["chiplet-actuary", "catch", "market"])
FORMULAS = ("formula", "plain_formula")


@st.composite
def packages(draw: st.DrawFn) -> Package:
    """One or two kinds of dies, perhaps one of them a stack of two, and some memory."""
    dies: list[Die | Stack | Assembly] = [
        Die("first", draw(NODES), draw(AREAS) / 2, float(draw(st.integers(1, 2))), harvest=draw(harvests()))
    ]
    if draw(st.booleans()):
        dies.append(Die("second", draw(NODES), draw(AREAS) / 4))
    if draw(st.booleans()):
        on_top = (Die("base", "N6", 200.0), Die("top", draw(NODES), 60.0, 2.0))
        dies.append(Assembly("stack", "hybrid_bond", on_top))
    joint = draw(JOINTS)
    kind = "gddr6" if joint == "organic" else "hbm3"
    memory = [Stack(kind, 16 * 2.0**30, float(draw(st.integers(1, 4))))] if draw(st.booleans()) else []
    return Package(Assembly("package", joint, (*dies, *memory)))


def harvests() -> st.SearchStrategy[Harvest | None]:
    return st.sampled_from([None, Harvest(8, 8, 0.5), Harvest(8, 7, 0.5), Harvest(144, 132, 0.58)])


def total(package: Package, prices: Prices) -> float:
    return float(package_bill(package, prices).usd)


def with_first(package: Package, area_mm2: float) -> Package:
    first, *rest = package.assembly.contents
    assert isinstance(first, Die)
    larger = Die(first.name, first.node, area_mm2, first.count, harvest=first.harvest)
    return Package(Assembly("package", package.assembly.joint, (larger, *rest)))


@settings(max_examples=40)
@given(package=packages(), assembly=st.sampled_from(CHOICES["assembly"]), coverage=st.floats(0.05, 0.95))
def test_tests_that_let_more_through_never_make_a_package_cheaper(
    package: Package, assembly: str, coverage: float
) -> None:
    def usd(part: float) -> float:
        chosen = (f"models.assembly={assembly}", "models.tests=coverage", "tests.assembly_coverage=1")
        return total(package, load_prices(overrides=(*chosen, f"tests.coverage={part}")))

    assert usd(coverage) >= usd(min(coverage * 1.05, 1.0)) * (1 - 1e-9)


@settings(max_examples=40)
@given(package=packages(), profile=PROFILES)
def test_lines_add_up_to_the_whole_and_none_is_negative(package: Package, profile: str) -> None:
    bill = package_bill(package, load_prices(profile))
    for path, line in bill.walk():
        assert float(line.usd) >= 0.0, path
        if line.parts:
            assert _sum(line.parts) == pytest.approx(float(line.usd), rel=1e-12), path


def _sum(parts: Sequence[Bill]) -> float:
    return float(sum(float(part.usd) for part in parts))


@settings(max_examples=60)
@given(package=packages(), more=FACTORS)
def test_a_larger_die_never_costs_less(package: Package, more: float) -> None:
    first = package.assembly.contents[0]
    assert isinstance(first, Die)
    prices = load_prices()
    larger = with_first(package, float(first.area_mm2) * more)
    # A package of several dies has dearer layers from 289 and from 900 mm2 on, never cheaper ones.
    assert total(larger, prices) >= total(package, prices)


@settings(max_examples=25)
@given(package=packages(), more=FACTORS, key=st.sampled_from(["defect_density", "wafer_price"]), profile=PROFILES)
def test_defects_and_dear_wafers_never_make_it_cheaper(package: Package, more: float, key: str, profile: str) -> None:
    usual = load_prices(profile)
    nodes = {die.node for die in package.assembly.dies}
    unit = "USD" if key == "wafer_price" else "1/mm2"
    worse = tuple(f"nodes.{n}.{key}={getattr(usual.section.nodes[n], key).si * more!r} {unit}" for n in sorted(nodes))
    assert total(package, load_prices(profile, worse)) >= total(package, usual) * (1 - 1e-12)


@settings(max_examples=80)
@given(
    area=st.floats(1.0, 800.0),
    more=FACTORS,
    node=NODES,
    model=st.sampled_from(CHOICES["yield"]),
    harvest=harvests(),
)
def test_yield_falls_with_area_and_lies_between_none_and_all(
    area: float, more: float, node: str, model: str, harvest: Harvest | None
) -> None:
    book = load_prices(overrides=(f"models.yield={model}",)).section
    smaller, larger = (float(die_yield(a, node, book, harvest)) for a in (area, area * more))
    assert 0.0 < larger <= smaller <= 1.0


@given(area=AREAS, units=st.integers(2, 40), node=NODES)
def test_harvesting_never_lowers_the_yield(area: float, units: int, node: str) -> None:
    book = load_prices().section
    yields = [float(die_yield(area, node, book, Harvest(units, needed, 0.6))) for needed in range(units, 0, -1)]
    assert yields == sorted(yields)


@settings(max_examples=60)
@given(area=st.floats(1.0, 800.0), more=FACTORS, how=st.sampled_from(FORMULAS))
def test_formulas_have_fewer_of_larger_dies(area: float, more: float, how: str) -> None:
    book = load_prices(overrides=(f"models.dies_per_wafer={how}",)).section
    assert float(dies_per_wafer(area * more, 1.0, book)) < float(dies_per_wafer(area, 1.0, book))


@settings(max_examples=40)
@given(area=st.floats(20.0, 800.0), more=st.floats(1.2, 1.4))
def test_rows_hold_no_fewer_dies_than_a_grid_and_no_more_than_their_area(area: float, more: float) -> None:
    grid, rows = (load_prices(overrides=(f"models.dies_per_wafer=placed_{how}",)).section for how in ("grid", "rows"))
    most = np.pi * 145.2**2 / area
    assert float(dies_per_wafer(area, 1.0, grid)) <= float(dies_per_wafer(area, 1.0, rows)) <= most
    assert float(dies_per_wafer(area * more, 1.0, rows)) <= float(dies_per_wafer(area, 1.0, rows))


@given(area=AREAS, node=NODES, joint=JOINTS, profile=PROFILES)
def test_one_chiplet_is_the_monolithic_chip(area: float, node: str, joint: Joint, profile: str) -> None:
    counts = np.array([1.0, 2.0, 4.0])
    prices = load_prices(profile)
    cut = package_bill(Package(Assembly("p", joint, (Die("d", node, area / counts, counts),))), prices)
    whole = package_bill(Package(Assembly("p", joint, (Die("d", node, area),))), prices)
    assert np.asarray(cut.usd)[0] == pytest.approx(float(whole.usd), rel=1e-12)


@given(volume=st.floats(1e3, 1e7), more=FACTORS, area=AREAS)
def test_more_volume_never_raises_the_design_of_one(volume: float, more: float, area: float) -> None:
    def design(number: float, others: Sequence[Package] = ()) -> float:
        product = Package(Assembly("p", "organic", (Die("d", "N5", area),)), volume=number)
        return float(package_bill(product, load_prices(), others).line("design").usd)

    sibling = Package(Assembly("q", "organic", (Die("d", "N5", area, 2.0),)), volume=volume)
    assert design(volume * more) < design(volume)
    assert design(volume, [sibling]) < design(volume)


@settings(max_examples=30)
@given(package=packages(), count=st.integers(2, 4))
def test_so_many_inner_assemblies_are_so_many_times_their_lines(package: Package, count: int) -> None:
    inner = package.assembly.contents[-1]
    if not isinstance(inner, Assembly):
        return
    prices = load_prices()
    several = Assembly(inner.name, inner.joint, inner.contents, float(count))
    one, many = (
        package_bill(Package(Assembly("p", "organic", (part,))), prices).line("raw chips/top").usd
        for part in (inner, several)
    )
    assert float(many) == pytest.approx(count * float(one))


def test_profiles_are_those_of_the_laws() -> None:
    assert set(profile_names()) >= {"chiplet-actuary", "catch", "market"}
