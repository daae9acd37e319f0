"""A cost without end: of a single design it is an error that says why; of a table it stays what it is, masked."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...backends.machine.package import Assembly, Die, Package
from ...backends.prices.section import Prices
from ...ir.errors import UsageError
from ..bill import Bill
from .dies.die import GoodDie, good_die


def check_finite(bill: Bill, package: Package, prices: Prices) -> None:
    """Raise UsageError where the bill of a single package is no number; it names the die of least yield."""
    if np.size(bill.usd) != 1 or np.all(np.isfinite(bill.usd)):
        return
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        dies = [good_die(die, prices.section) for die in _dies(package.assembly)]
    why = "" if not dies else _told(min(dies, key=lambda die: float(np.min(die.good))))
    raise UsageError(f"{package.assembly.title} costs no finite amount{why}")


def check_whole(bill: Bill) -> None:
    """Raise UsageError where a single bill is no number; it names the lines at fault."""
    if np.size(bill.usd) != 1 or np.all(np.isfinite(bill.usd)):
        return
    raise UsageError(f"the {bill.name} costs no finite amount: {', '.join(_at_fault(bill))}")


def _at_fault(bill: Bill) -> Iterator[str]:
    inner = [part for part in bill.parts if not np.all(np.isfinite(part.usd))]
    for part in inner:
        yield from (f"{part.name}/{line}" if part.parts else line for line in _at_fault(part))
    if not inner:
        yield bill.name


def _dies(assembly: Assembly) -> Iterator[Die]:
    for part in assembly.contents:
        if isinstance(part, Assembly):
            yield from _dies(part)
        elif isinstance(part, Die):
            yield part


def _told(die: GoodDie) -> str:
    good, area = (float(np.reshape(value, -1)[0]) for value in (die.good, die.die.area_mm2))
    return (
        f": of die {die.die.name}, {area:g} mm2 on {die.die.node}, a part of {good:.3g} is good; "
        f"see prices.nodes.{die.die.node}.defect_density and prices.yields"
    )
