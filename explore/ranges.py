"""Text such as `2TB/s..10TB/s` or `0.1..10us:log` into a range of numbers."""

from __future__ import annotations

import re

from ..ir.errors import UsageError
from ..ir.units import parse_quantity, split_quantity, units_of
from .trials.optimizer import Range

# Not a path such as ../prices.yaml: something that is no dot stands on both sides.
_RANGE = re.compile(r"\s*(?P<first>.*[^.\s])\s*\.\.\s*(?P<last>[^./\s][^:]*?)\s*(?::(?P<scale>.*))?")
_LOG, _LINEAR = "log", "linear"


def is_range(text: str) -> bool:
    """Whether a text is a range of numbers, and no list and no word.

    >>> is_range("2TB/s..10TB/s"), is_range("2TB/s:10TB/s:9"), is_range("../own.yaml")
    (True, False, False)
    """
    return _RANGE.fullmatch(text) is not None


def range_of(name: str, text: str, dimension: str | None = None) -> Range:
    """Read a range: two numbers with `..` between them, and `:log` behind them where factors count and not steps.

    The last unit holds for a first number that has none. Two whole numbers without a unit are a range of whole ones.

    Args:
        name: what it is a range of.
        text: as typed.
        dimension: the base unit that both ends must have; None for any.

    Raises:
        UsageError: words, ends of two dimensions or the wrong way round, or a scale that there is not.

    >>> range_of("hbm", "500GB/s..2TB/s:log")
    Range(name='hbm', first=0.5, last=2.0, unit='TB/s', is_log=True, is_whole=False)
    >>> range_of("links", "4..18")
    Range(name='links', first=4, last=18, unit='', is_log=False, is_whole=True)
    """
    match = _RANGE.fullmatch(text)
    if match is None:
        raise UsageError(f"{name}={text}: write first..last, as in 2TB/s..10TB/s, and :log where factors count")
    scale = (match["scale"] or _LINEAR).strip()
    if scale not in (_LOG, _LINEAR):
        raise UsageError(f"{name}={text}: ':{scale}' is no scale of a range: log, or nothing; --trials says how many")
    first, last, unit = _ends(name, text, match["first"], match["last"], dimension)
    if not first < last:
        raise UsageError(f"{name}={text}: the first must be below the last{_turned(first, last, unit)}")
    if scale == _LOG and first <= 0:
        raise UsageError(f"{name}={text}: a logarithmic range is of numbers above zero")
    whole = not unit and all(re.fullmatch(r"[+-]?[0-9]+", match[end].strip()) for end in ("first", "last"))
    return Range(
        name=name,
        first=int(first) if whole else first,
        last=int(last) if whole else last,
        unit=unit,
        is_log=scale == _LOG,
        is_whole=whole,
    )


def _ends(name: str, text: str, first: str, last: str, dimension: str | None) -> tuple[float, float, str]:
    """Both ends in the unit of the last."""
    try:
        number, unit = split_quantity(last)
        begin, begin_unit = split_quantity(first)
        whole = parse_quantity(last, dimension)
        start = parse_quantity(first if begin_unit else f"{first} {unit}".strip(), dimension)
    except UsageError as error:
        raise UsageError(f"{name}={text}: {error}; a range is of numbers, and words are a list with commas") from None
    if not unit and begin_unit:
        raise UsageError(
            f"{name}={text}: the last number needs a unit as well, as in {first.strip()}..{last}{begin_unit}"
        )
    if dimension not in (None, "1") and not unit:
        raise UsageError(f"{name}={text}: missing unit: allowed: {units_of(str(dimension))}")
    if start.dimension != whole.dimension:
        raise UsageError(f"{name}={text}: both ends need one unit, of {units_of(whole.dimension)}")
    if begin_unit in ("", unit):
        return begin, number, unit
    return start.value_si / parse_quantity(f"1 {unit}").value_si, number, unit


def _turned(first: float, last: float, unit: str) -> str:
    return "" if first == last else f": {last:g}..{first:g}{unit}"
