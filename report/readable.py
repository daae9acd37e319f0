"""Numbers of reports and their changes as people read them, by unit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..ir.units import format_in

if TYPE_CHECKING:
    from .compare.comparison import Change

# Of columns, largest first: the least value of a scale, and its name around a number.
_SCALES: Mapping[str, Sequence[tuple[float, str]]] = MappingProxyType(
    {
        "s": ((86400.0, "{} days"), (3600.0, "{} h"), (1.0, "{} s"), (1e-3, "{} ms"), (1e-6, "{} us")),
        "B": tuple((2.0 ** (10 * k), f"{{}} {p}iB") for k, p in ((5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "K"))),
        "USD": ((1e9, "${}B"), (1e6, "${}M"), (1.0, "${}")),
        "1": ((0.01, "{} %"),),
    }
)
# Beyond three digits of the largest.
_MORE_DIGITS = 3


def shown(value: float, unit: str) -> str:
    """Return a value with its unit.

    >>> shown(11.64, "s"), shown(0.3298, "1"), shown(5632.2, "1/s"), shown(0.25, "")
    ('11.6 s', '32.98 %', '5,632', '0.25')
    """
    form = format_in(value, unit)
    if form is not None:
        return form
    if unit == "1":
        return f"{value * 100:.2f} %"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == round(value) else f"{value:.4g}"


def shown_column(values: Sequence[float], unit: str) -> list[str]:
    """Return a column of values in one unit, with so many digits that what differs does not look alike; - for nan.

    >>> shown_column([12.61, 12.64, 14.0], "s"), shown_column([2.0**30, math.nan], "B")
    (['12.61 s', '12.64 s', '14.00 s'], ['1.00 GiB', '-'])
    """
    there = [value for value in values if math.isfinite(value)]
    largest = max(map(abs, there), default=0.0)
    scale, name = _scale(largest, unit)
    if not name or not largest:
        return [shown(value, unit) if math.isfinite(value) else "-" for value in values]
    least = max(0, 2 - math.floor(math.log10(largest / scale)))
    found: dict[float, str] = {}
    for decimals in range(least, least + _MORE_DIGITS + 1):
        found = {value: name.format(f"{value / scale:,.{decimals}f}") for value in there}
        if len(set(found.values())) == len(found):
            break
    return [found.get(value, "-") for value in values]


def _scale(largest: float, unit: str) -> tuple[float, str]:
    """Return the scale of a column and its name around a number; nothing where each value has a scale of its own."""
    known = _SCALES.get(unit, ())
    fitting = [(scale, name) for scale, name in known if largest >= scale]
    return fitting[0] if fitting else known[-1] if known else (1.0, "")


def shown_both(change: Change) -> tuple[str, str]:
    """Return both values, with so many digits that they do not look alike where they differ.

    >>> from slipstick.report.compare.comparison import Change
    >>> shown_both(Change("step_time_s", "s", 11.6, 10.0)), shown_both(Change("step_time_s", "s", 11.636, 11.612))
    (('11.6 s', '10 s'), ('11.636 s', '11.612 s'))
    """
    before, after = shown(change.before, change.unit), shown(change.after, change.unit)
    if before != after or not change.difference:
        return before, after
    scale, unit = (100.0, "%") if change.unit == "1" else (1.0, change.unit)
    return f"{change.before * scale:.7g} {unit}".rstrip(), f"{change.after * scale:.7g} {unit}".rstrip()


def shown_change(change: Change) -> str:
    """Return the difference with its sign; of shares in percentage points.

    >>> from slipstick.report.compare.comparison import Change
    >>> shown_change(Change("mfu", "1", 0.33, 0.35)), shown_change(Change("step_time_s", "s", 2.0, 1.5))
    ('+2.00 pp', '-500 ms')
    """
    if not change.difference:
        return "same"
    sign = "-" if change.difference < 0 else "+"
    if change.unit == "1":
        return f"{change.difference * 100:+.2f} pp"
    return f"{sign}{shown(abs(change.difference), change.unit)}"


def shown_relative(change: Change) -> str:
    """Return the difference as a share of A; nothing was there before where A is zero.

    >>> from slipstick.report.compare.comparison import Change
    >>> shown_relative(Change("step_time_s", "s", 2.0, 1.5)), shown_relative(Change("bubble", "s", 0.0, 1.5))
    ('-25 %', 'new')
    """
    if math.isinf(change.relative):
        return "new"
    return percent(change.relative) if change.difference else "0 %"


def percent(share: float) -> str:
    """Return a share with its sign, with as many digits as tell something.

    >>> percent(0.0694), percent(-0.00051), percent(12.5)
    ('+6.94 %', '-0.051 %', '+1250 %')
    """
    return f"{share * 100:+.0f} %" if abs(share) >= 1 else f"{share * 100:+.3g} %"
