"""A die: its part of a wafer, what bad ones cost, its test."""

from __future__ import annotations

import math

import numpy as np

from ....backends.machine.package import Die
from ....backends.prices.silicon_schema import NodePrices, SiliconSection
from ....ir.errors import UsageError
from ....ir.records import dataclass
from ....ir.sizes.expr import Num
from ...bill import Bill
from .tests_of_dies import Tested, die_test
from .wafers import dies_per_wafer, field_use, shape, stitches
from .yields import die_yield


@dataclass(frozen=True, slots=True)
class GoodDie:
    """One die that passed its test, and what those cost that did not.

    Attributes:
        die: what it is one of.
        wafer_usd: price of the wafer that it is part of.
        dies_per_wafer: dies on that wafer, good and bad.
        raw_usd: its part of the wafer.
        good: part of the dies that are good.
        test: what its test makes of that.
    """

    die: Die
    wafer_usd: Num
    dies_per_wafer: Num
    raw_usd: Num
    good: Num
    test: Tested

    @property
    def defects_usd(self) -> Num:
        """Dies that failed, for each that passed."""
        return self.raw_usd * (1.0 / self.test.shipped - 1.0)

    @property
    def test_usd(self) -> Num:
        """Tests of all dies, for each that passed."""
        return self.test.test_usd / self.test.shipped

    @property
    def usd(self) -> Num:
        """What one costs: (W / N + c_test) / Y_test."""
        return (self.raw_usd + self.test.test_usd) / self.test.shipped

    def bill(self) -> Bill:
        """Return the bill of one."""
        return Bill.of(self.die.name, [self.raw_line("raw"), self.defect_line("defects"), self.test_line("test")])

    def raw_line(self, name: str) -> Bill:
        """Return the line of one, good or bad."""
        values = {"wafer_usd": self.wafer_usd, "dies_per_wafer": self.dies_per_wafer}
        numbers = (f"prices.nodes.{self.die.node}.wafer_price",)
        return Bill(name, self.raw_usd, "wafer_usd / dies_per_wafer", values, numbers)

    def defect_line(self, name: str) -> Bill:
        """Return the line of those that failed."""
        values = {"raw_usd": self.raw_usd, "shipped": self.test.shipped, "yield": self.good}
        numbers = (f"prices.nodes.{self.die.node}.defect_density",)
        return Bill(name, self.defects_usd, "raw_usd * (1 / shipped - 1)", values, numbers)

    def test_line(self, name: str) -> Bill:
        """Return the line of testing them."""
        values = {"test_usd": self.test.test_usd, "shipped": self.test.shipped}
        return Bill(name, self.test_usd, "test_usd / shipped", values)


def good_die(die: Die, book: SiliconSection) -> GoodDie:
    """Price one die that passed its test; an area larger than a wafer costs without end.

    >>> from ....backends.prices.book import load_prices
    >>> one = good_die(Die("logic", "N5", 800.0), load_prices("chiplet-actuary").section)
    >>> round(float(one.raw_usd), 2), round(float(one.defects_usd), 2)
    (288.95, 382.65)
    """
    node = book.node(die.node)
    number = dies_per_wafer(die.area_mm2, die.aspect, book)
    wafer = wafer_usd(die, node, book)
    raw = np.where(np.greater(number, 0.0), np.divide(wafer, np.maximum(number, 1e-9)), math.inf)
    good = die_yield(die.area_mm2, die.node, book, die.harvest)
    if die.stitched:
        good = good * np.power(book.wafer.stitch_yield.si, stitches(shape(die.area_mm2, die.aspect, book), book))
    return GoodDie(die, wafer, number, raw, good, die_test(good, die.area_mm2, raw, book))


def wafer_usd(die: Die, node: NodePrices, book: SiliconSection) -> Num:
    """Price the wafer (`models.wafer_cost`): as quoted, or its area with the lithography that dies leave unused.

    Of an area: c pi (D/2 - e)^2 ((1 - litho) + litho / use), the first factor being how CATCH made wafers areas.
    """
    if book.model("wafer_cost") == "wafer":
        return node.wafer_price.si
    litho = node.litho_share
    if litho is None:
        raise UsageError(f"prices.nodes.{die.node}.litho_share is not known, which wafer_cost 'area' needs")
    fit = (1.0 - litho.si) + litho.si / field_use(die.area_mm2, book)
    return processed_usd(node, book) * fit


def processed_usd(node: NodePrices, book: SiliconSection) -> float:
    """Return the price of a wafer from that of its area; a node without one has the price of its wafer."""
    if node.processed_cost is None:
        return node.wafer_price.si
    radius = book.wafer.diameter.si / 2.0 - book.wafer.priced_edge.si
    return node.processed_cost.si * math.pi * radius**2
