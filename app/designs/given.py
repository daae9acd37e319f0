"""Numbers with units that flags of designs give."""

from __future__ import annotations

from ...ir.errors import UsageError
from ...ir.units import parse_quantity, split_quantity, units_of


def total_mm2(area: str | None, die_area: str | None, dies: int) -> float:
    """Return the silicon of all dies together; UsageError unless one of the two flags is there."""
    if (area is None) == (die_area is None):
        raise UsageError("a chip needs one of --area, of all dies together, and --die-area, of one")
    return quantity("--area", area, "mm2") if area is not None else dies * quantity("--die-area", die_area, "mm2")


def quantity(flag: str, text: str | None, dimension: str) -> float:
    """Return the number of a flag that must be there, with a unit; UsageError for what is none."""
    if text is None:
        raise UsageError(f"missing {flag}: a number and one of: {units_of(dimension)}")
    try:
        value = parse_quantity(text, dimension).value_si
    except UsageError as error:
        raise UsageError(f"{flag}: {error}") from None
    if not split_quantity(text)[1]:
        raise UsageError(f"{flag}: missing unit of '{text}': allowed: {units_of(dimension)}")
    return value
