"""Things that are bought: their bill, the power that they draw, and what could not be priced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from ...backends.machine.files.number import Number
from ...ir.errors import UnknownNameError
from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from ..bill import Bill

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Owned:
    """What is bought.

    Attributes:
        bill: what it costs, in parts.
        power_w: what it draws at full load.
        unpriced: what is missing in the bill or the power, each with what to add.
    """

    bill: Bill
    power_w: Num = 0.0
    unpriced: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, parts: Sequence[Owned]) -> Owned:
        """Add things up; what is missing in any of them is named once."""
        return cls(
            Bill.of(name, [p.bill for p in parts]),
            sum((p.power_w for p in parts), start=0.0),
            tuple(dict.fromkeys(line for p in parts for line in p.unpriced)),
        )

    def times(self, count: Num, name: str = "") -> Owned:
        """Return so many of it."""
        return replace(self, bill=self.bill.times(count, name), power_w=self.power_w * count)


def counted(name: str, count: Num, each: Number | None, path: str, power_w: Num = 0.0) -> Owned:
    """Price so many of one thing; without a price it is named among what is not priced.

    >>> from slipstick.backends.machine.files.kinds import PRICE
    >>> counted("fans", 6, Number(kind=PRICE, value="15 USD", source="list"), "prices.parts.fan.price").bill.usd
    90.0
    """
    unpriced = (f"{name}: no price; set {path}",) if each is None and np.any(count) else ()
    price_usd = 0.0 if each is None else each.si
    numbers = () if each is None else (path,)
    bill = Bill(name, count * price_usd, "count * price_usd", {"count": count, "price_usd": price_usd}, numbers)
    return Owned(bill, power_w * count, unpriced)


def entry(book: Mapping[str, V], kind: str, name: str) -> V:
    """Find a name in a part of the price book; UnknownNameError names the nearest."""
    if name not in book:
        raise UnknownNameError.of(kind, name, book)
    return book[name]
