"""Stamps of any clock as seconds behind the first, in decimals: no shift of a clock changes a bit of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Context, Decimal, DecimalException, localcontext
from types import MappingProxyType

import numpy as np

from ....ir.errors import UsageError
from ..batching.times import Array

# What the end of a column's name says of its numbers, in seconds.
UNITS: Mapping[str, Decimal] = MappingProxyType(
    {"s": Decimal(1), "ms": Decimal("1e-3"), "us": Decimal("1e-6"), "ns": Decimal("1e-9")}
)
_YEAR_S = Decimal(365 * 86400)
_MOST_YEARS = 10  # no trace of requests is longer; a span beyond it is of another unit
# Stamps of today count from 1970, in whatever unit.
_TODAY = (30 * _YEAR_S, 130 * _YEAR_S)
# The exponents of floats; sums of such numbers have fewer digits than the context keeps.
_MOST_EXPONENT = 400
_EXACT = Context(prec=1000)
_OTHER = "is one of them of another clock?"
_DAY = datetime(1970, 1, 1, tzinfo=UTC)
# As many digits as a sum with the seconds since 1970 keeps.
_FRACTION = re.compile(r"(?<=:[0-9][0-9])[.,]([0-9]{1,15})[0-9]*")


def unit_of(column: str) -> str:
    """Return the unit that a column's name says, or s.

    >>> unit_of("arrival_ms"), unit_of("Timestamp")
    ('ms', 's')
    """
    unit = column.strip().lower().rpartition("_")[2]
    return unit if "_" in column and unit in UNITS else "s"


def read_number(text: str) -> Decimal:
    """Read all digits of a number; ValueError for what is none, or too large or small for a float."""
    try:
        number = Decimal(text)
    except DecimalException:
        raise ValueError(text) from None
    exponent = number.as_tuple().exponent
    is_near = isinstance(exponent, int) and exponent >= -_MOST_EXPONENT and number.adjusted() < _MOST_EXPONENT
    if number.is_snan() or (number.is_finite() and not is_near):
        raise ValueError(text)
    return number


def read_moment(text: str, has_zone: bool) -> Decimal:
    """Read a date as seconds since 1970, with all digits of its second, which `datetime` cuts.

    Args:
        text: a date in ISO 8601.
        has_zone: whether it says its zone, as all dates of a column do or none.

    >>> read_moment("1970-01-01 00:01:00.1234567", has_zone=False)
    Decimal('60.1234567')
    """
    moment, fraction = datetime.fromisoformat(_FRACTION.sub("", text, count=1)), _FRACTION.search(text)
    if (moment.tzinfo is not None) != has_zone:
        raise ValueError(text)
    since = (moment if has_zone else moment.replace(tzinfo=UTC)) - _DAY
    return since.days * 86400 + since.seconds + Decimal(f"0.{fraction[1] if fraction else 0}")


def has_zone(text: str) -> bool:
    """Whether a date says its zone; False for what is no date."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def seconds_behind_first(stamps: Sequence[Decimal], unit: str, where: str) -> Array:
    """Return the seconds from the first stamp to each; UsageError for a span that no run has.

    Args:
        stamps: finite numbers of one clock.
        unit: theirs, of `UNITS`; empty for seconds that dates stand for.
        where: what a message calls their column.
    """
    with localcontext(_EXACT):
        scale = UNITS[unit or "s"]
        behind = [(stamp - stamps[0]) * scale for stamp in stamps]
        if (span := max(behind)) > _MOST_YEARS * _YEAR_S:
            raise UsageError(
                f"{where} is read in {unit or 'dates'}, and its requests come over {span / _YEAR_S:.3g} years; at most "
                f"{_MOST_YEARS} are read: {_advice(stamps[0], span / scale) if unit else _OTHER}"
            )
    return np.array([float(one) for one in behind])


def _advice(first: Decimal, span: Decimal) -> str:
    """Say which unit is meant: one in which the first stamp is of today, else all in which the span is short enough."""
    finer = [unit for unit, size in UNITS.items() if span * size <= _MOST_YEARS * _YEAR_S]
    today = [unit for unit in finer if _TODAY[0] <= first * UNITS[unit] <= _TODAY[1]]
    names = [f"arrival_{unit}" for unit in today or finer]
    return f"name the column {' or '.join(names)} if that is its unit" if names else _OTHER
