"""Every machine of the catalogue has a price under every profile of the price book, and lines that add up."""

from __future__ import annotations

from typing import Literal

import pytest

from slipstick.backends.machine.load import load_system, system_names
from slipstick.backends.prices.book import load_prices, profile_names
from slipstick.cost.ownership.system import system_cost
from slipstick.cost.silicon.packages.package import good_yield, package_bill

BASES: tuple[Literal["market", "build"], ...] = ("market", "build")


@pytest.mark.parametrize("name", system_names())
def test_packages_and_systems_of_the_catalogue_are_priced(name: str) -> None:
    system = load_system(name)
    assert system.package is not None
    for profile in profile_names():
        prices = load_prices(profile)
        made = package_bill(system.package, prices)
        assert sum(float(line.usd) for line in made.parts) == pytest.approx(float(made.usd), rel=1e-12)
        assert 0.2 < float(good_yield(system.package, prices)) <= 1.0
        # Of a card of today or a package of eight stacks: from hundreds to ten thousands of dollars.
        assert 200 < float(made.usd) < 20_000
        for basis in BASES:
            cost = system_cost(system, 1024, prices, basis, made)
            assert cost.unpriced == ()
            # Whatever the price of a server, its packages are a part of it.
            assert float(cost.bill.usd) > 1024 * float(made.usd) / system.package.num_ranks


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-b200", "mi300x-platform"])
def test_what_is_bought_costs_more_than_it_takes_to_make(name: str) -> None:
    package = load_system(name).package
    assert package is not None
    assert package.price_usd is not None
    assert float(package_bill(package, load_prices("market")).usd) < float(package.price_usd) / 1.5
