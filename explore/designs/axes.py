"""Text such as `400:800:100mm2` or `1,2,4` into the numbers of an axis."""

from __future__ import annotations

import numpy as np

from ...ir.errors import UsageError
from ...ir.units import parse_quantity, split_quantity, units_of

# More than this on one axis is a slip of the step.
_MOST = 100_000


def axis(text: str, dimension: str, what: str) -> tuple[float, ...]:
    """Return the numbers of an axis: a list, or `first:last:step` with both ends; the last unit holds for all.

    UsageError says what is wrong with it, naming `what`.

    >>> axis("400:800:200mm2", "mm2", "--die-area"), axis("1, 1.5TB/s", "B/s", "--d2d-bandwidth")
    ((400.0, 600.0, 800.0), (1000000000000.0, 1500000000000.0))
    """
    parts = text.split(":") if ":" in text else text.split(",")
    if ":" in text and len(parts) != 3:
        raise UsageError(f"{what} '{text}': write first:last:step, as in 400:800:100mm2, or a list with commas")
    try:
        unit = split_quantity(parts[-1])[1]
        numbers = [parse_quantity(p if split_quantity(p)[1] else f"{p} {unit}".strip(), dimension) for p in parts]
    except UsageError as error:
        raise UsageError(f"{what}: {error}") from None
    if not unit and dimension != "1":
        raise UsageError(f"{what}: missing unit of '{text}': allowed: {units_of(dimension)}")
    values = [number.value_si for number in numbers]
    return _steps(*values, what=what, text=text) if ":" in text else tuple(values)


def counts(text: str, what: str) -> tuple[int, ...]:
    """Return whole numbers of an axis, each one or more.

    >>> counts("1,2,4", "--chiplets"), counts("2:8:2", "--stacks")
    ((1, 2, 4), (2, 4, 6, 8))
    """
    found = axis(text, "1", what)
    wrong = [number for number in found if number < 1 or number != int(number)]
    if wrong:
        raise UsageError(f"{what} '{text}': {wrong[0]:g} is no count: whole numbers of 1 or more")
    return tuple(int(number) for number in found)


def words(text: str) -> tuple[str, ...]:
    """Return the words of a list with commas, each once.

    >>> words("N5, N3,N5")
    ('N5', 'N3')
    """
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _steps(first: float, last: float, step: float, *, what: str, text: str) -> tuple[float, ...]:
    if step <= 0 or last < first:
        raise UsageError(f"{what} '{text}': the step must be above zero, and the last not below the first")
    num = (last - first) / step + 1e-6
    if num >= _MOST:
        raise UsageError(f"{what} '{text}' has {num + 1:,.0f} steps: at most {_MOST:,}")
    return tuple(float(x) for x in first + step * np.arange(int(num) + 1))
