"""Bills for people and for programs: lines that add up, and why a line is what it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ..ir.errors import UnknownNameError
from ..ir.units import format_usd
from .columns import in_columns
from .numbers import one, shown_with_source

if TYPE_CHECKING:
    from ..backends.records import NumberRecord
    from ..cost.bill import Bill

# A share below this is of nobody's interest on a screen; all lines are in JSON.
LEAST_SHARE = 5e-4


def bill_text(bill: Bill, columns: int | None = None, units: Mapping[str, float] | None = None) -> str:
    """Return a bill as an indented table: money, share, and money for each of some units, `{"a GPU": 1024}`.

    >>> from slipstick.cost.bill import Bill
    >>> print(bill_text(Bill.of("package", [Bill("chips", 600.0), Bill("substrate", 200.0)])))
    line             USD   share
    package      $800.00  100.0%
      chips      $600.00   75.0%
      substrate  $200.00   25.0%
    """
    units = units or {}
    heading = ["line", "USD", "share", *units]
    rows = [[*cells] for cells in _rows(bill, one(bill.usd), units)]
    return in_columns(_right([heading, *rows]), columns)


def _rows(bill: Bill, total: float, units: Mapping[str, float], depth: int = 0) -> Iterator[Sequence[str]]:
    amount = one(bill.usd)
    share = amount / total if total else 0.0
    if depth and abs(share) < LEAST_SHARE:
        return
    each = [format_usd(amount / number) for number in units.values()]
    yield ["  " * depth + bill.name.replace("_", " "), format_usd(amount), f"{share:.1%}", *each]
    for part in bill.parts:
        yield from _rows(part, total, units, depth + 1)


def _right(rows: Sequence[Sequence[str]]) -> list[list[str]]:
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


def explain_line(bill: Bill, wanted: str, records: Iterable[NumberRecord]) -> str:
    """Say why a line is what it is: formula, values, and the numbers with their sources.

    `wanted` is a path or its end, `package/chip defects` or `chip defects`. UnknownNameError names the nearest.
    """
    path, line = find_line(bill, wanted)
    return "\n".join([f"{path} = {format_usd(one(line.usd))} ({one(line.usd):.6g} USD)", *_why(line, tuple(records))])


def find_line(bill: Bill, wanted: str) -> tuple[str, Bill]:
    """Return the first line whose path is, or ends in, what is wanted."""
    known = list(bill.walk())
    asked = wanted.replace("_", " ").strip("/")
    for path, line in known:
        plain = path.replace("_", " ")
        if plain == asked or plain.endswith(f"/{asked}"):
            return path, line
    raise UnknownNameError.of("line of the bill", wanted, [line.name for _, line in known])


def _why(line: Bill, records: Sequence[NumberRecord]) -> Iterator[str]:
    if line.parts:
        yield "  = " + " + ".join(f"{part.name.replace('_', ' ')} {format_usd(one(part.usd))}" for part in line.parts)
    if line.formula:
        yield f"  = {line.formula}"
    yield from (f"    {name}: {one(value):.6g}" for name, value in line.values.items())
    for record in records:
        if any(record.path == n or (n.endswith(".") and record.path.startswith(n)) for n in line.numbers):
            yield f"    {record.path}: {shown_with_source(record)}"
