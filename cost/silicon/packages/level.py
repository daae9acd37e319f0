"""One level of a package: what stands on it, and what joining that costs."""

from __future__ import annotations

from ....ir.records import dataclass
from ....ir.sizes.expr import Num
from ...bill import Bill
from ..dies.tests_of_dies import Tested


@dataclass(frozen=True, slots=True)
class AssemblyContents:
    """What is put on one substrate, all known good as far as tests can tell.

    Attributes:
        usd: as delivered.
        area_mm2: that it takes on the substrate.
        pieces: dies, stacks and smaller assemblies: each is placed and bonded once.
        quality: part of the sets that are truly good.
    """

    usd: Num
    area_mm2: Num
    pieces: Num
    quality: Num = 1.0


@dataclass(frozen=True, slots=True)
class GoodAssembly:
    """One assembly that passed its test.

    Attributes:
        contents_usd: what was put on it.
        bumps: joints of what was put on it, which count as chips.
        raw: parts of the raw package.
        package_defects: raw packages that were lost, for each that passed.
        wasted: contents that were lost with them.
        test: tests of all, for each that passed.
        carrier_mm2: interposer, layers of wires or organic substrate that the contents stand on.
        footprint_mm2: what it takes on the next substrate.
        good: part of the assemblies begun that pass.
        quality: part of those that is truly good.
    """

    contents_usd: Num
    bumps: Bill
    raw: tuple[Bill, ...]
    package_defects: Bill
    wasted: Bill
    test: Bill
    carrier_mm2: Num
    footprint_mm2: Num
    good: Num
    quality: Num = 1.0

    @property
    def usd(self) -> Num:
        """What one costs, with what it holds."""
        return self.contents_usd + self.own_usd

    @property
    def own_usd(self) -> Num:
        """What one costs without what it holds."""
        raw = sum((line.usd for line in self.raw), start=0.0)
        return self.bumps.usd + raw + self.package_defects.usd + self.wasted.usd + self.test.usd


def loss(name: str, usd: Num, good: Num, numbers: tuple[str, ...] = ()) -> Bill:
    """Return what is lost for each that passes: c (1 / Y - 1).

    >>> loss("lost", 90.0, 0.5).usd
    90.0
    """
    return Bill(name, usd * (1.0 / good - 1.0), "usd * (1 / good - 1)", {"usd": usd, "good": good}, numbers)


def test_line(test: Tested) -> Bill:
    """Return the line of testing all, for each that passes."""
    values = {"test_usd": test.test_usd, "shipped": test.shipped}
    return Bill("test", test.test_usd / test.shipped, "test_usd / shipped", values, ("prices.tests.tester",))
