"""Values as JSON: the one writer of documents, which refuses numbers that JSON does not have."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping

from ..errors import UsageError


def json_text(value: object, indent: int | None = None, separators: tuple[str, str] | None = None) -> str:
    """Return a value as JSON text.

    UsageError names the first number that is infinite or none: readers of JSON differ in what they make of it.

    >>> json_text({"mfu": 0.4})
    '{"mfu": 0.4}'
    >>> json_text({"metrics": {"mfu": [1.0, float("inf")]}})
    Traceback (most recent call last):
        ...
    slipstick.ir.errors.UsageError: metrics.mfu.1 is inf, which JSON has no number for: a value that was given is absurd
    """
    try:
        return json.dumps(value, indent=indent, separators=separators, allow_nan=False)
    except ValueError as error:
        found = next(_odd(value), None)
        if found is None:
            raise
        place, number = found
        told = f"{place or 'a number'} is {number:g}, which JSON has no number for: a value that was given is absurd"
        raise UsageError(told) from error


def _odd(value: object, place: str = "") -> Iterator[tuple[str, float]]:
    """Yield the place and the value of each number that is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        yield place, value
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, below in pairs:
        yield from _odd(below, f"{place}.{key}" if place else str(key))
