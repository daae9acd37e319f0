"""Products that share designs: every design paid once, by hand, and files that say them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.package import Assembly, D2d, Die, Package
from slipstick.backends.machine.portfolio import is_portfolio, load_portfolio
from slipstick.backends.prices.book import load_prices
from slipstick.cost.silicon.nre import assembly_usd
from slipstick.cost.silicon.portfolio import portfolio_cost
from slipstick.ir.errors import SystemFileError, UnknownNameError, UsageError

# Chiplet Actuary's design of 300 mm2 of N5.
N5_DESIGN = 542e6


def product(count: float, volume: float, area_mm2: float = 100.0, design: str = "", name: str = "p") -> Package:
    die = Die("compute", "N5", area_mm2, count)
    return Package(Assembly(name, "organic", (die,), design=design, substrate_mm2=2000.0), volume=volume)


def test_a_die_of_two_products_is_paid_by_both() -> None:
    """100 mm2 of modules and die: (0.5 + 0.3) 542 / 3 + 0.2 x 542 MUSD, over 1e6 + 4 x 0.5e6 dies."""
    prices = load_prices("chiplet-actuary")
    products = {"small": product(1, 1e6, name="small"), "large": product(4, 0.5e6, name="large")}
    found = portfolio_cost("two", products, prices)
    nre = (0.5 + 0.3) * N5_DESIGN / 3 + 0.2 * N5_DESIGN
    (chip,) = (one for one in found.designs if one.name == "chip compute")
    assert chip.usd == pytest.approx(nre)
    assert dict(chip.uses) == {"small": 1e6, "large": 2e6}
    small, large = found.products
    assert float(small.bill.line("design/chip compute").usd) == pytest.approx(nre / 3e6)
    assert float(large.bill.line("design/chip compute").usd) == pytest.approx(4 * nre / 3e6)
    assert float(large.alone.line("design/chip compute").usd) == pytest.approx(nre / 0.5e6)
    # Both substrates are paid with and without.
    assert found.design_alone_usd - found.design_usd == pytest.approx(nre)
    assert found.alone_usd - found.usd == pytest.approx(nre)


@given(
    st.lists(st.tuples(st.integers(1, 8), st.floats(1e3, 1e7)), min_size=1, max_size=5),
    st.sampled_from(["", "shared"]),
)
def test_all_products_together_pay_every_design_once(asked: list[tuple[int, float]], design: str) -> None:
    products = {f"p{k}": product(n, volume, design=design, name=f"p{k}") for k, (n, volume) in enumerate(asked)}
    found = portfolio_cost("any", products, load_prices("chiplet-actuary"))
    assert sum(p.volume * p.design_usd for p in found.products) == pytest.approx(found.design_usd)
    assert found.usd <= found.alone_usd * (1 + 1e-9)
    assert all(
        p.made_usd == pytest.approx(float(p.alone.usd) - float(p.alone.line("design").usd)) for p in found.products
    )


def test_a_package_that_products_share_is_made_for_the_one_that_asks_most() -> None:
    prices = load_prices("chiplet-actuary")
    products = {"small": product(1, 1e6, design="base"), "large": product(4, 1e6, design="base")}
    found = portfolio_cost("two", products, prices)
    (base,) = (one for one in found.designs if one.name == "package base")
    assert base.usd == pytest.approx(float(assembly_usd(products["large"].assembly, prices.section)))
    assert base.usd > float(assembly_usd(products["small"].assembly, prices.section))
    assert dict(base.uses) == {"small": 1e6, "large": 1e6}


def test_interfaces_of_one_kind_and_node_are_one_design() -> None:
    def of(name: str) -> Package:
        die = Die(name, "N5", 100.0, d2d=D2d("ucie-standard", 64e9))
        return Package(Assembly(name, "organic", (die,)), volume=1e6)

    found = portfolio_cost("two", {"one": of("one"), "other": of("other")}, load_prices("chiplet-actuary"))
    assert sorted(d.name for d in found.designs if d.name.startswith("interface")) == ["interface ucie-standard N5"]


FILE = """
name: family
dies:
  compute: {node: N5, area: {value: 100, unit: mm2, source: planned}}
products:
  small: {joint: organic, volume: {value: 1000000, source: planned}, contents: [{die: compute}]}
  large:
    joint: organic
    volume: {value: 500000, source: planned}
    contents: [{die: compute, count: {value: 4, source: planned}}]
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "family.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_products_of_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, FILE)
    assert is_portfolio(str(path))
    name, products = load_portfolio(path, ["products.large.volume=2e6"])
    assert (name, list(products), products["large"].volume) == ("family", ["small", "large"], 2e6)
    assert [(die.name, n) for die, n in products["large"].assembly.counted_dies()] == [("compute", 4)]


@pytest.mark.parametrize(
    ("before", "after", "error", "told"),
    [
        ("[{die: compute}]", "[{die: comput}]", UnknownNameError, "did you mean 'compute'"),
        ("volume: {value: 500000, source: planned}", "num_ranks: {value: 1, source: x}", SystemFileError, "a volume"),
        ("[{die: compute}]", "[{die: compute, node: N7}]", UsageError, "has node already"),
        (
            "[{die: compute}]",
            "[{name: compute, node: N7, area: {value: 50, unit: mm2, source: x}}]",
            SystemFileError,
            "is not that of",
        ),
        ("dies:\n  compute:", "dies: [1]\nold:\n  compute:", SystemFileError, "expected a mapping"),
    ],
)
def test_what_is_wrong_with_a_portfolio_is_said(
    tmp_path: Path, before: str, after: str, error: type[Exception], told: str
) -> None:
    assert before in FILE
    with pytest.raises(error, match=told):
        load_portfolio(written(tmp_path, FILE.replace(before, after, 1)))


def test_a_machine_is_no_portfolio(tmp_path: Path) -> None:
    assert not is_portfolio(str(written(tmp_path, "name: box\n")))
    assert not is_portfolio("dgx-h100")
