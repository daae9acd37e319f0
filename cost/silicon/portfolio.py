"""Products that share designs: what one costs to make and to design, with what others bear of it and without.

    product    made + sum over its designs of NRE count / sum over products (count volume)
    alone      made + sum over its designs of NRE / volume
    portfolio  sum over products of volume x product

After Feng and Ma, Chiplet Actuary, DAC 2022: dies of one name, interfaces of one kind on one node, and packages of one
`design` are designed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

import numpy as np

from ...backends.machine.package import Assembly, Package
from ...backends.prices.section import Prices
from ...ir.errors import UsageError
from ...ir.records import dataclass
from ..bill import Bill
from .packages.package import package_bill

_SAME = 1e-9  # relative: what rounding leaves of equal sums


@dataclass(frozen=True, slots=True)
class PortfolioProduct:
    """One product of a portfolio.

    Attributes:
        name: of the product.
        volume: packages that are made over its life.
        bill: of one package, its part of shared designs included.
        alone: of one package that bears all designs in it by itself.
    """

    name: str
    volume: float
    bill: Bill
    alone: Bill

    @property
    def made_usd(self) -> float:
        """What one package costs to make, without design."""
        return self.usd - self.design_usd

    @property
    def design_usd(self) -> float:
        """What one package bears of designs."""
        return float(self.bill.line("design").usd)

    @property
    def usd(self) -> float:
        """What one package costs."""
        return float(self.bill.usd)

    @property
    def alone_usd(self) -> float:
        """What one package would cost if no other product used its designs."""
        return float(self.alone.usd)


@dataclass(frozen=True, slots=True)
class SharedDesign:
    """What is designed once: its cost, and how many of it each product uses over its life."""

    name: str
    usd: float
    uses: Mapping[str, float]

    @property
    def each_usd(self) -> float:
        """What one use of it bears."""
        return self.usd / sum(self.uses.values())


@dataclass(frozen=True, slots=True)
class Portfolio:
    """Products with what is designed for them."""

    name: str
    products: tuple[PortfolioProduct, ...]
    designs: tuple[SharedDesign, ...]

    @property
    def design_usd(self) -> float:
        """All designs, each once."""
        return sum(one.usd for one in self.designs)

    @property
    def design_alone_usd(self) -> float:
        """All designs where every product has its own."""
        return sum(p.volume * float(p.alone.line("design").usd) for p in self.products)

    @property
    def usd(self) -> float:
        """All packages of all products."""
        return sum(p.volume * p.usd for p in self.products)

    @property
    def alone_usd(self) -> float:
        """All packages of all products that share nothing."""
        return sum(p.volume * p.alone_usd for p in self.products)


def portfolio_cost(name: str, products: Mapping[str, Package], prices: Prices) -> Portfolio:
    """Price every product of a portfolio, as it shares designs with the others and as if it shared none.

    Raises:
        UsageError: a package that cannot be made, a product without a volume, designs of one name whose costs differ.
        UnknownNameError: a node or a memory that the price book does not have.
    """
    found = []
    for at, package in products.items():
        if package.volume is None:
            raise UsageError(f"product '{at}' shares designs: give it a volume")
        others = [other for key, other in products.items() if key != at]
        alone = package_bill(package, prices)
        found.append(PortfolioProduct(at, float(package.volume), package_bill(package, prices, others), alone))
    shared = {f"package {one.design}" for p in products.values() for one in _within(p.assembly) if one.design}
    return Portfolio(name, tuple(found), _designs(found, shared))


def _within(whole: Assembly) -> Iterator[Assembly]:
    """A package and the smaller ones in it."""
    yield whole
    for part in whole.contents:
        if isinstance(part, Assembly):
            yield from _within(part)


def _designs(products: Sequence[PortfolioProduct], shared: Set[str]) -> tuple[SharedDesign, ...]:
    """What is designed once, by its line of the bills; a package that shares no design is that of its product."""
    found: dict[str, SharedDesign] = {}
    for product in products:
        for line in product.bill.line("design").parts:
            own = line.name.startswith("package ") and line.name not in shared
            name = f"{line.name} of {product.name}" if own and line.name != f"package {product.name}" else line.name
            usd, count = float(np.max(line.values["design_usd"])), float(np.max(line.values["count"]))
            one = found.setdefault(name, SharedDesign(name, usd, {}))
            if abs(one.usd - usd) > _SAME * max(one.usd, usd):
                what = f"'{name}' costs {one.usd:,.0f} USD to design for {next(iter(one.uses))}"
                raise UsageError(f"{what}, and {usd:,.0f} USD for {product.name}: give one of them another name")
            uses = {**one.uses, product.name: one.uses.get(product.name, 0.0) + count * product.volume}
            found[name] = replace(one, uses=uses)
    return tuple(found.values())
