"""Whole packages: vectors of Chiplet Actuary with bumps on every die, other joints by hand, nesting, shared designs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slipstick.backends.machine.package import Assembly, Bonding, D2d, Die, Harvest, Joint, Order, Package, Stack
from slipstick.backends.prices.book import load_prices
from slipstick.backends.prices.section import Prices
from slipstick.backends.technology.data import load_technology
from slipstick.cost.bill import Bill
from slipstick.cost.silicon.dies.die import good_die
from slipstick.cost.silicon.dies.wafers import dies_per_wafer
from slipstick.cost.silicon.nre import chip_usd
from slipstick.cost.silicon.packages.built import memory_line
from slipstick.cost.silicon.packages.hybrid import bond_yield
from slipstick.cost.silicon.packages.level import GoodAssembly
from slipstick.cost.silicon.packages.package import good_yield, package_bill
from slipstick.ir.errors import UsageError
from slipstick.ir.sizes.expr import Num

FIVE = ("raw chips", "chip defects", "raw package", "package defects", "wasted dies")
# Shares of Chiplet Actuary's 542 MUSD for a chip of 300 mm2 on N5.
N5_DESIGN = 542e6


@pytest.fixture(scope="module")
def prices() -> Prices:
    return load_prices("chiplet-actuary")


def of_dies(count: float, area_mm2: float, joint: Joint = "organic", order: Order = "chip_last") -> Package:
    return Package(Assembly("package", joint, (Die("logic", "N5", area_mm2, count),), order=order))


def part(bill: Bill, path: str) -> float:
    return float(bill.line(path).usd)


def five(bill: Bill) -> list[float]:
    return [round(part(bill, name), 2) for name in FIVE]


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


def test_the_parts_of_two_dies_on_an_interposer(prices: Prices) -> None:
    bill = package_bill(of_dies(2, 400.0, "interposer"), prices)
    assert five(bill)[:2] == [269.39, 140.67]
    assert round(part(bill, "raw package/package/interposer"), 2) == 41.31
    assert round(part(bill, "raw package/package/substrate"), 2) == 17.6
    assert part(bill, "package defects") == pytest.approx(35.56, abs=0.01)
    assert round(part(bill, "wasted dies"), 2) == 48.89
    assert round((1 + 0.06 * 8.8 / 6) ** -6, 3) == 0.603


def test_chips_first_are_lost_with_bad_wires(prices: Prices) -> None:
    # Wires of 960 mm2: y1 = (1 + 0.05 x 9.6 / 3)^-3, y3 = 0.99.
    first = package_bill(of_dies(2, 400.0, "fan_out", "chip_first"), prices)
    last = package_bill(of_dies(2, 400.0, "fan_out"), prices)
    y1, y2, y3 = (1 + 0.48 / 3) ** -3, 0.98**2, 0.99
    chips = part(last, "raw chips") + part(last, "chip defects")
    wires = part(last, "raw package/package/fan_out")
    assert part(first, "wasted dies") == pytest.approx(chips * (1 / (y1 * y3) - 1))
    assert part(last, "wasted dies") == pytest.approx(chips * (1 / (y2 * y3) - 1))
    assert part(first, "package defects") == pytest.approx(
        wires * (1 / (y1 * y3) - 1) + part(first, "raw package/package/substrate") * (1 / y3 - 1)
    )
    assert part(last, "package defects") == pytest.approx(
        wires * (1 / (y1 * y2 * y3) - 1) + part(last, "raw package/package/substrate") * (1 / y3 - 1)
    )


def test_bridges_in_a_substrate_are_lost_with_it(prices: Prices) -> None:
    # Three dies have two bridges: 5 mm2 of a 55 nm wafer each, 5 USD to embed, 0.995 that it works.
    plain = package_bill(of_dies(3, 200.0), prices)
    bridged = package_bill(of_dies(3, 200.0, "embedded_bridge"), prices)
    dies = part(bridged, "raw package/package/bridges") / 2 - 5.0
    assert dies == pytest.approx(1937 / float(dies_per_wafer(5.0, 1.0, prices.section)) * (1 + 0.003 / 6) ** 6)
    raw = part(bridged, "raw package")
    assert raw == pytest.approx(part(plain, "raw package") + 2 * (dies + 5.0))
    assert part(bridged, "package defects") == pytest.approx(raw * (1 / (0.99**3 * 0.995**2) - 1))
    assert part(bridged, "wasted dies") == pytest.approx(part(plain, "wasted dies"))


def test_bridges_in_wires_are_tested_with_them(prices: Prices) -> None:
    bridged = package_bill(of_dies(2, 400.0, "fan_out_bridge"), prices)
    wires = part(bridged, "raw package/package/fan_out_bridge") + part(bridged, "raw package/package/bridges")
    good = (1 + 0.05 * 8.8 / 3) ** -3 * 0.995 * 0.95**2 * 0.99
    lost = wires * (1 / good - 1) + part(bridged, "raw package/package/substrate") * (1 / 0.99 - 1)
    assert part(bridged, "package defects") == pytest.approx(lost)


@pytest.mark.parametrize("bonding", ["die_to_wafer", "wafer_to_wafer"])
def test_a_hybrid_bond_by_hand(prices: Prices, bonding: Bonding) -> None:
    book = prices.section
    lower, upper = Die("lower", "N6", 100.0), Die("upper", "N5", 100.0)
    stack = Package(Assembly("stack", "hybrid_bond", (lower, upper), bonding=bonding))
    bill = package_bill(stack, prices)
    good = float(bond_yield(100.0, 1.0, book))
    bond = part(bill, "raw package/stack/bonds")
    a, b = good_die(lower, book), good_die(upper, book)
    if bonding == "die_to_wafer":
        assert float(bill.usd) == pytest.approx((float(a.usd) + float(b.usd) + bond) / good)
    else:
        both = float(a.good) * float(b.good)
        of_wafers = (12000 + 16988) / float(dies_per_wafer(100.0, 1.0, book))
        assert part(bill, "package defects") == pytest.approx(bond * (1 / good - 1))
        assert float(bill.usd) == pytest.approx(of_wafers / both / good + bond / good)


def of_wafers(*contents: Die) -> Package:
    return Package(Assembly("stack", "hybrid_bond", contents, bonding="wafer_to_wafer"))


def test_dies_of_one_kind_lie_side_by_side_on_a_wafer_that_is_paid_once(prices: Prices) -> None:
    # Two of 40 mm2 over 100 mm2: two wafers, one bond between them, and three dies that must all be good.
    book = prices.section
    lower, upper = Die("lower", "N6", 100.0), Die("upper", "N5", 40.0, 2.0)
    bill = package_bill(of_wafers(lower, upper), prices)
    all_good = float(good_die(lower, book).good) * float(good_die(upper, book).good) ** 2
    wafers = (12000 + 16988) / float(dies_per_wafer(100.0, 1.0, book))
    bond = part(bill, "raw package/stack/bonds")
    assert float(bill.usd) == pytest.approx((wafers / all_good + bond) / float(bond_yield(80.0, 1.0, book)))


def test_dies_of_two_names_have_wafers_of_their_own(prices: Prices) -> None:
    book = prices.section
    lower, upper = Die("lower", "N5", 100.0), Die("upper", "N5", 40.0)
    bill = package_bill(of_wafers(lower, upper, replace(upper, name="other")), prices)
    all_good = float(good_die(lower, book).good) * float(good_die(upper, book).good) ** 2
    wafers = 3 * 16988 / float(dies_per_wafer(100.0, 1.0, book))
    bond = part(bill, "raw package/stack/bonds")
    assert float(bill.usd) == pytest.approx((wafers / all_good + bond) / float(bond_yield(80.0, 2.0, book)))
    assert round(float(bill.usd), 2) == 118.68


@pytest.mark.parametrize(
    ("joint", "order", "lost"),
    [
        ("organic", "chip_last", 0.99**2),
        ("interposer", "chip_last", 0.95**2 * 0.99),
        ("fan_out", "chip_first", (1 + 0.48 / 3) ** -3 * 0.99),
    ],
)
def test_bad_dies_that_tests_let_through_are_lost_with_their_package(joint: Joint, order: Order, lost: float) -> None:
    # Of what passes Y / (1 - 0.5 (1 - Y)) is good; what was put down is lost as often as one of both dies is bad.
    poor = load_prices("chiplet-actuary", overrides=("models.tests=coverage", "tests.coverage=0.5"))
    bill = package_bill(of_dies(2, 400.0, joint, order), poor)
    good = float(good_die(Die("d", "N5", 400.0), poor.section).good)
    quality = good / (1 - 0.5 * (1 - good))
    chips = sum(part(bill, name) for name in ("raw chips", "chip defects"))
    tests = part(bill, "test and assembly")
    assert part(bill, "wasted dies") == pytest.approx((chips + tests) * (1 / (lost * quality**2) - 1))


def test_hybrid_bonds_fail_by_area_and_connections(prices: Prices) -> None:
    # 100 mm2 at 9 um: 1.23 million connections of 1 - 1e-8, and 1e-4 defects a mm2 of the dielectric.
    expected = 0.99999 * 0.99999999 ** (100 / 0.009**2) / 1.01
    assert float(bond_yield(100.0, 1.0, prices.section)) == pytest.approx(expected)


def test_what_stands_on_a_base_is_one_piece_of_the_package(prices: Prices) -> None:
    stack = Assembly("stack", "hybrid_bond", (Die("base", "N6", 370.0), Die("top", "N5", 115.0, 2.0)), count=2.0)
    inner = package_bill(Package(Assembly("stack", "hybrid_bond", stack.contents)), prices)
    whole = package_bill(Package(Assembly("package", "interposer", (stack,))), prices)
    good = 0.95**2 * 0.99
    delivered = 2 * float(inner.usd) + part(whole, "raw chips/package bumps")
    assert part(whole, "wasted dies/package") == pytest.approx(delivered * (1 / good - 1))
    assert part(whole, "raw chips/top") == pytest.approx(2 * part(inner, "raw chips/top"))
    assert float(good_yield(Package(Assembly("package", "interposer", (stack,))), prices)) == pytest.approx(good)


def test_memory_is_bonded_and_lost_with_the_rest(prices: Prices) -> None:
    hbm = Stack("hbm3", 16 * 2**30, 5.0, "hbm")
    bill = package_bill(Package(Assembly("package", "interposer", (Die("logic", "N5", 800.0), hbm))), prices)
    assert part(bill, "memory/hbm") == pytest.approx(5 * 16 * 15)
    chips = sum(part(bill, name) for name in ("raw chips", "chip defects", "memory"))
    assert part(bill, "wasted dies") == pytest.approx(chips * (1 / (0.95**6 * 0.99) - 1))


def test_memory_beside_the_package_is_bought_and_not_bonded(prices: Prices) -> None:
    alone = of_dies(1, 600.0)
    with_memory = Package(alone.assembly, beside=(Stack("gddr6", 2 * 2**30, 12.0, "gddr"),))
    added = float(package_bill(with_memory, prices).usd) - float(package_bill(alone, prices).usd)
    assert added == pytest.approx(24 * 3.4)


def test_every_line_is_its_formula(prices: Prices) -> None:
    stack = Assembly("stack", "hybrid_bond", (Die("base", "N6", 370.0), Die("top", "N5", 115.0, 2.0)), count=2.0)
    hbm = Stack("hbm3", 16 * 2**30, 5.0, "hbm")
    bill = package_bill(Package(Assembly("package", "interposer", (stack, hbm)), volume=1e6), prices)
    known = {number.path for number in prices.records}
    for path, line in bill.walk():
        assert set(line.numbers) <= known, path
        if line.formula:
            assert _evaluated(line) == pytest.approx(float(line.usd)), path
        if line.parts:
            assert sum(float(p.usd) for p in line.parts) == pytest.approx(float(line.usd)), path


def _evaluated(line: Bill) -> float:
    """Work a formula out: a space between two factors is a product."""
    words = line.formula.replace("(", " ( ").replace(")", " ) ").split()
    text = ""
    for word in words:
        factor = word[0].isalnum() or word == "("
        text += "*" if factor and text and (text[-1].isalnum() or text[-1] == ")") else ""
        text += word
    return float(eval(text, {name: float(value) for name, value in line.values.items()}))


def test_the_design_of_a_chip_after_chiplet_actuary(prices: Prices) -> None:
    product = Package(of_dies(1, 400.0).assembly, volume=1e5)
    bill = package_bill(product, prices).line("design")
    assert part(bill, "chip logic") == pytest.approx(N5_DESIGN * (0.8 * 400 / 300 + 0.2) / 1e5)
    assert part(bill, "package") == pytest.approx((400 * 4 * 3000 + 3e5) / 1e5)


def test_masks_of_a_stitched_chip_are_a_set_for_each_field() -> None:
    # 40 mm a side are two by two fields.
    book = load_prices("chiplet-actuary", overrides=("models.design=per_area",)).section
    masks = book.node("N5").mask_set
    assert masks is not None
    stitched = Die("d", "N5", 1600.0, stitched=True)
    assert float(chip_usd(stitched, book)) == pytest.approx(1600 * book.design.per_area.si + 4 * masks.si)


def test_an_interface_is_not_designed_twice(prices: Prices) -> None:
    # 1 TB/s of ucie-advanced are 4 modules of 256 GB/s on each of two edges.
    plain = Die("d", "N5", 200.0, 2.0)
    joined = replace(plain, d2d=D2d("ucie-advanced", 1e12, 2.0))
    phy = 8 * load_technology().d2d("ucie-advanced").module_mm2
    less = 0.5 * N5_DESIGN * phy / 300
    assert phy > 0
    assert float(chip_usd(joined, prices.section)) == pytest.approx(float(chip_usd(plain, prices.section)) - less)
    described = replace(joined, design_mm2=180.0)
    assert float(chip_usd(described, prices.section)) == pytest.approx(N5_DESIGN * (0.5 * 180 / 300 + 0.2 + 0.2))


def test_chips_in_several_products_share_their_design(prices: Prices) -> None:
    chiplet = Die("chiplet", "N5", 200.0, 2.0, d2d=D2d("ucie-advanced", 1e12), design_mm2=180.0)
    small = Package(Assembly("small", "embedded_bridge", (chiplet,)), volume=1e5)
    large = Package(
        Assembly("large", "embedded_bridge", (Die("chiplet", "N5", 200.0, 4.0, d2d=chiplet.d2d),)), volume=2e5
    )
    alone = package_bill(small, prices).line("design")
    shared = package_bill(small, prices, [large]).line("design")
    chip = N5_DESIGN * (0.5 * 180 / 300 + 0.3 * 200 / 300 + 0.2)
    assert part(alone, "chip chiplet") == pytest.approx(chip * 2 / (2 * 1e5))
    assert part(shared, "chip chiplet") == pytest.approx(chip * 2 / (2 * 1e5 + 4 * 2e5))
    assert part(shared, "interface ucie-advanced N5") == pytest.approx(0.5 * N5_DESIGN * 20 / 300 * 2 / 1e6)
    assert part(shared, "package small") == part(alone, "package small")


def test_packages_of_one_design_share_it(prices: Prices) -> None:
    def product(dies: float, volume: float) -> Package:
        parts = (Die("d", "N5", 100.0, dies),)
        return Package(Assembly("p", "organic", parts, substrate_mm2=2000.0, design="common"), volume=volume)

    design = 2000 * 3000 * 2.0 + 3e5
    bill = package_bill(product(2, 1e5), prices, [product(4, 3e5)]).line("design")
    assert part(bill, "package common") == pytest.approx(design / 4e5)


def test_designs_of_wires_by_hand(prices: Prices) -> None:
    # Interposer of 880 mm2: 1.2 times the shares of a chip on 55 nm. Fan-out of 960 mm2: half fixed, half by 300 mm2.
    substrate = 3e5 + 3000 * 4 * 880
    design = package_bill(Package(of_dies(2, 400.0, "interposer").assembly, volume=1.0), prices).line("design")
    assert part(design, "package") == pytest.approx(1.2 * 28e6 * (0.3 * 880 / 300 + 0.2) + substrate)
    design = package_bill(Package(of_dies(2, 400.0, "fan_out").assembly, volume=1.0), prices).line("design")
    assert part(design, "package") == pytest.approx(7.5e6 * (960 / 300 + 1) + 3e5 + 3000 * 4 * 960)


@pytest.mark.parametrize(
    ("choice", "node", "usd"),
    [
        ("per_area", "N5", 300 * 1e5 + 18.1e6),
        ("gates", "N5", 2644200 + 300 * 138.2e6 / 6 * 0.35 + 18.1e6),
    ],
)
def test_other_ways_to_price_a_design(choice: str, node: str, usd: float) -> None:
    prices = load_prices("chiplet-actuary", overrides=(f"models.design={choice}",))
    product = Package(Assembly("p", "organic", (Die("d", node, 300.0),)), volume=1.0)
    assert part(package_bill(product, prices), "design/chip d") == pytest.approx(usd)


def test_what_nobody_has_priced_is_refused_and_not_zero(prices: Prices) -> None:
    old = Package(Assembly("p", "organic", (Die("d", "N90", 100.0),)), volume=1e6)
    with pytest.raises(UsageError, match=r"prices\.nodes\.N90\.design is not known"):
        package_bill(old, prices)
    shared = Package(Assembly("p", "organic", (Die("d", "N5", 100.0),)), volume=1e6)
    with pytest.raises(UsageError, match="package 'package' shares designs: give it a volume"):
        package_bill(shared, prices, [of_dies(1, 100.0)])


def test_a_table_is_each_of_its_designs(prices: Prices) -> None:
    def of(area: Num, count: Num, num_bytes: Num) -> Package:
        dies = (Die("d", "N5", area, count, harvest=Harvest(10, 8, 0.5)), Stack("hbm3", num_bytes, 2.0))
        return Package(Assembly("p", "interposer", dies), volume=1e6)

    columns = np.array([100.0, 200.0, 300.0]), np.array([1.0, 2.0, 4.0]), np.array([8e9, 16e9, 24e9])
    table = package_bill(of(*columns), prices)
    for row, (area, count, num_bytes) in enumerate(zip(*columns, strict=True)):
        alone = dict(package_bill(of(float(area), float(count), float(num_bytes)), prices).walk())
        for path, line in table.walk():
            assert float(np.broadcast_to(line.usd, 3)[row]) == pytest.approx(float(alone[path].usd), rel=1e-12), path


def test_an_assembly_costs_what_all_its_lines_do() -> None:
    lines = [
        Bill(name, usd) for name, usd in (("bumps", 1.0), ("raw", 2.0), ("lost", 4.0), ("wasted", 8.0), ("test", 16.0))
    ]
    bumps, raw, defects, wasted, test = lines
    level = GoodAssembly(100.0, bumps, (raw,), defects, wasted, test, 1.0, 1.0, 1.0)
    assert (level.own_usd, level.usd) == (31.0, 131.0)


def test_a_scenario_of_dram_leaves_what_the_base_die_costs() -> None:
    """HBM4 has a die of logic below its DRAM: the price has it in it, and dearer DRAM makes no dearer logic."""
    one = Stack("hbm4", 48e9, 1.0, "hbm4")
    book, scarce = (load_prices("market", words).section for words in ((), ("models.dram=high",)))
    usual, dear = memory_line(one, book), memory_line(one, scarce)
    (dram, base), (dearer, same) = usual.parts, dear.parts
    assert float(usual.usd) == pytest.approx(48e9 * book.memory("hbm4").price.si, rel=1e-12)
    assert float(base.usd) == pytest.approx(float(good_die(Die("base die", "N12", 110.0), book).usd), rel=1e-12)
    assert same.usd == base.usd
    assert float(dearer.usd) == pytest.approx(float(dram.usd) * scarce.dram_factor.si)
    assert memory_line(Stack("hbm3", 16e9, 1.0, "hbm3"), book).parts == ()
