"""Tests that let some bad dies through: what is shipped, how good it is, what testing costs.

After CATCH (arXiv 2503.15753). A perfect test finds everything and costs nothing, as in Chiplet Actuary.
"""

from __future__ import annotations

import numpy as np

from ....backends.prices.silicon_schema import SiliconSection
from ....ir.records import dataclass
from ....ir.sizes.expr import Num


@dataclass(frozen=True, slots=True)
class Tested:
    """What a test makes of things of which some are bad.

    Attributes:
        shipped: part that passes.
        quality: part of what passes that is truly good.
        test_usd: the test of one, whether it passes or not.
    """

    shipped: Num
    quality: Num
    test_usd: Num


def passing(good: Num, coverage: float, test_usd: Num = 0.0) -> Tested:
    """Y_test = 1 - (1 - Y) cov, quality q = Y / Y_test.

    >>> found = passing(0.5, 0.9)
    >>> round(float(found.shipped), 4), round(float(found.quality), 4)
    (0.55, 0.9091)
    """
    shipped = 1.0 - np.multiply(np.subtract(1.0, good), coverage)
    return Tested(shipped, np.divide(good, shipped), test_usd)


def die_test(good: Num, area_mm2: Num, raw_usd: Num, book: SiliconSection) -> Tested:
    """Test a die by the book (`models.tests`): c = A t_cycle c_s (patterns + samples) scan length, or a share of it."""
    tests = book.tests
    share = np.multiply(raw_usd, tests.die_share.si)
    if book.model("tests") == "perfect":
        return passing(good, 1.0, share)
    shifts = (tests.patterns.si + tests.samples.si) * tests.scan_length.si
    timed = np.multiply(area_mm2, tests.cycle.si * tests.tester.si * shifts)
    return passing(good, tests.coverage.si, timed + share)


def final_test(good: Num, book: SiliconSection) -> Tested:
    """Test an assembly by the book: patterns through one chain, whatever its size."""
    tests = book.tests
    if book.model("tests") == "perfect":
        return passing(good, 1.0)
    shifts = (tests.assembly_patterns.si + tests.samples.si) * tests.assembly_scan_length.si
    return passing(good, tests.assembly_coverage.si, shifts * tests.cycle.si * tests.tester.si)
