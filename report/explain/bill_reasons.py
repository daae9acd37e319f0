"""Why a line of a bill is what it is: what it adds up, its formula with values and units, and sources of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ...ir.errors import UnknownNameError
from ...ir.units import format_usd
from ..cost.bills import spoken
from ..numbers import one, shown_with_source

if TYPE_CHECKING:
    from ...backends.machine.files.records import NumberRecord
    from ...cost.bill import Bill

# Lines below a sum whose formulas are shown: the largest ones.
LARGEST = 3
# Units of the values of a formula, by how their names end; the first that fits.
_UNITS = (
    ("usd_per_kwh", "USD/kWh"),
    ("usd_per_w_year", "USD/W/year"),
    ("usd_per_year", "USD/year"),
    ("usd_per_hour", "USD/h"),
    ("usd_per_byte", "USD/B"),
    ("usd_mm2", "USD/mm2"),
    ("usd", "USD"),
    ("area_mm2", "mm2"),
    ("num_bytes", "B"),
    ("years", "years"),
    ("hours", "h"),
    ("hours_in_use", "h"),
    ("_w", "W"),
)


def explain_line(bills: Sequence[Bill], wanted: str, records: Iterable[NumberRecord]) -> str:
    """Say why a line is what it is: formula, values, and the numbers with their sources; of a sum its largest lines.

    `wanted` is a path or its end, `package/chip defects` or `chip defects`. UnknownNameError names the nearest.
    """
    (path, line), *others = find_lines(bills, wanted)
    also = [f"also: {', '.join(other for other, _ in others)}"] if others else []
    return "\n".join([*line_reasons(path, line, tuple(records)), *also])


def find_lines(bills: Sequence[Bill], wanted: str) -> list[tuple[str, Bill]]:
    """Return the lines whose path is, or ends in, what is wanted, those nearest to the top first."""
    known = [found for bill in bills for found in bill.walk()]
    asked = spoken(wanted).strip("/").lower()
    found = [(path, line) for path, line in known if f"/{spoken(path).lower()}".endswith(f"/{asked}")]
    if not found:
        raise UnknownNameError.of("line", wanted, {line.name for _, line in known})
    return sorted(found, key=lambda one_of: one_of[0].count("/"))


def line_reasons(path: str, line: Bill, records: Sequence[NumberRecord]) -> Iterator[str]:
    """Yield why a line is what it is, under its path."""
    yield f"{spoken(path)} = {format_usd(one(line.usd))} ({one(line.usd):.6g} USD)"
    if not line.parts:
        yield from _formula(line, records, "  ")
        return
    parts = [part for part in line.parts if one(part.usd)]
    yield "  = " + " + ".join(f"{spoken(part.name)} {format_usd(one(part.usd))}" for part in parts)
    leaves = [(below, leaf) for part in parts for below, leaf in part.walk() if not leaf.parts and one(leaf.usd)]
    leaves.sort(key=lambda found: -one(found[1].usd))
    for below, leaf in leaves[:LARGEST]:
        yield f"  {spoken(below)} = {format_usd(one(leaf.usd))} ({one(leaf.usd):.6g} USD)"
        yield from _formula(leaf, records, "    ")
    if len(leaves) > LARGEST:
        yield f"  and {len(leaves) - LARGEST} smaller lines"


def _formula(line: Bill, records: Sequence[NumberRecord], indent: str) -> Iterator[str]:
    if line.formula:
        yield f"{indent}= {line.formula}"
    yield from (f"{indent}  {name}: {_shown(name, one(value))}" for name, value in line.values.items())
    for record in records:
        if any(record.path == n or (n.endswith(".") and record.path.startswith(n)) for n in line.numbers):
            yield f"{indent}  {record.path}: {shown_with_source(record)}"


def _shown(name: str, value: float) -> str:
    """Write a value with the unit that its name tells."""
    unit = next((unit for end, unit in _UNITS if name.endswith(end)), "")
    return f"{value:.6g} {unit}".rstrip()
