"""A package into its bill: chips, what joins them, what is lost, memory, tests, and its part of the design."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....backends.machine.package import Package
from ....backends.prices.section import Prices
from ....ir.sizes.expr import Num
from ...bill import Bill
from ..dies.limits import check_built, check_values
from ..finite import check_finite
from ..nre import design_bill
from .built import Lines, build, memory_line


def package_bill(package: Package, prices: Prices, others_in_portfolio: Sequence[Package] = ()) -> Bill:
    """Return manufacturing cost of a package, line by line; arrays in the package give a bill of arrays.

    Its lines: `raw chips`, `chip defects`, `raw package`, `package defects`, `wasted dies` (the five parts of Chiplet
    Actuary; memory is wasted as well), `memory` with what is beside the package, `test and assembly`, and `design`
    where the package has a volume.
    A design that cannot be made is an error alone; in a table it is priced all the same: see `limits.feasible`.

    Args:
        package: what is described.
        prices: the price book, under a profile.
        others_in_portfolio: other products, each with its volume; dies and assemblies of one name share their design.

    Raises:
        UnknownNameError: a node or a memory that the book does not have.
        UsageError: a die beyond the field of lithography, a substrate that cannot hold what is on it, or the like;
            a cost without end, as of dies of which none is good.
    """
    book = prices.section
    check_values(package, prices)
    built = build(package.assembly, book)
    check_built(built, prices)
    # What is wasted of dies of which none is good has no value: such a bill is refused, or one of a table.
    with np.errstate(invalid="ignore", over="ignore"):
        designed = () if package.volume is None else (design_bill(package, others_in_portfolio, prices.section),)
        beside = Lines(memory=tuple(memory_line(stack, prices.section).times(stack.count) for stack in package.beside))
        usd = prices.section.packages.test_and_assembly.si
        module = Bill("module", usd, "each_usd", {"each_usd": usd}, ("prices.packages.test_and_assembly",))
        bill = Bill.of(
            "package",
            [*_parts(built.lines + beside), Bill.of("test and assembly", [*built.lines.tests, module]), *designed],
        )
    check_finite(bill, package, prices)
    return bill


def good_yield(package: Package, prices: Prices) -> Num:
    """Return the part of packages begun, of parts that passed their tests, that pass the last one."""
    return build(package.assembly, prices.section).level.good


def _parts(lines: Lines) -> list[Bill]:
    memory = [Bill.of("memory", lines.memory)] if lines.memory else []
    return [
        Bill.of("raw chips", lines.raw_chips),
        Bill.of("chip defects", lines.chip_defects),
        Bill.of("raw package", lines.raw_package),
        Bill.of("package defects", lines.package_defects),
        Bill.of("wasted dies", lines.wasted),
        *memory,
    ]
