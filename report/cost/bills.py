"""Bills for people and for programs: lines that add up, as text, JSON and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ...ir.units import format_usd
from ..columns import in_columns
from ..numbers import one

if TYPE_CHECKING:
    from ...cost.bill import Bill

# A share below this is of nobody's interest on a screen; all lines are in JSON.
LEAST_SHARE = 5e-4


def bill_text(bill: Bill, columns: int | None = None, units: Mapping[str, float] | None = None) -> str:
    """Return a bill as an indented table: money, share, and money for each of some units, `{"a GPU": 1024}`.

    A line of one part is told together with it.

    >>> from slipstick.cost.bill import Bill
    >>> chips = Bill.of("chips", [Bill("logic", 600.0)])
    >>> print(bill_text(Bill.of("package", [chips, Bill("substrate", 200.0)])))
    line                USD   share
    package         $800.00  100.0%
      chips: logic  $600.00   75.0%
      substrate     $200.00   25.0%
    """
    units = units or {}
    heading = ["line", "USD", "share", *units]
    rows = [[*cells] for cells in _rows(bill, one(bill.usd), units)]
    return in_columns(right([heading, *rows]), columns)


def _rows(bill: Bill, total: float, units: Mapping[str, float], above: tuple[str, ...] = ()) -> Iterator[Sequence[str]]:
    amount = one(bill.usd)
    share = amount / total if total else 0.0
    if above and abs(share) < LEAST_SHARE:
        return
    each = [format_usd(amount / number) for number in units.values()]
    names, parts = _told_together(bill, above)
    yield ["  " * len(above) + ": ".join(map(spoken, names)), format_usd(amount), f"{share:.1%}", *each]
    for part in parts:
        yield from _rows(part, total, units, (*above, bill.name))


def _told_together(bill: Bill, above: Sequence[str]) -> tuple[list[str], Sequence[Bill]]:
    """Return the names of a line and of those that are all of it, and the parts of the last; no name twice."""
    names, parts = [bill.name], bill.parts
    while len(some := [part for part in parts if one(part.usd)]) == 1:
        names += [] if some[0].name in (*above, *names) else [some[0].name]
        parts = some[0].parts
    return names, parts


def spoken(name: str) -> str:
    """Return the name of a line as people say it."""
    return name.replace("_", " ")


def right(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Set all columns but the first flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [[row[0], *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))] for row in rows]


def bill_record(bill: Bill) -> Mapping[str, object]:
    """Return a bill for JSON: name, USD, formula, values and parts; of one design."""
    return {
        "name": bill.name,
        "usd": one(bill.usd),
        **({"formula": bill.formula} if bill.formula else {}),
        **({"values": {k: one(v) for k, v in bill.values.items()}} if bill.values else {}),
        **({"numbers": list(bill.numbers)} if bill.numbers else {}),
        **({"parts": [bill_record(part) for part in bill.parts]} if bill.parts else {}),
    }


def bill_lines(bill: Bill) -> Iterator[tuple[str, float]]:
    """Yield every line by its path, for CSV."""
    return ((path, one(line.usd)) for path, line in bill.walk())
