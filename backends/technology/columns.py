"""Records of numbers as tables: the same record with arrays in place of numbers, cut, joined and read row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R")


def length_of(*records: object) -> int:
    """Return how many rows records have: the length of their arrays, 1 where all are plain numbers.

    ValueError where lengths differ and none of them is 1.
    """
    return int(np.broadcast_shapes((1,), *(a.shape for r in records for a in _arrays(r)))[0])


def spread(record: R, num_rows: int) -> R:
    """Return a record whose numbers are arrays of so many rows; whole numbers and text stay."""
    return _mapped(record, lambda x: np.broadcast_to(np.asarray(x, np.float64), num_rows), floats=True)


def cut(record: R, rows: slice | NDArray[np.intp]) -> R:
    """Return some rows of a record."""
    return _mapped(record, lambda x: x[rows] if x.ndim else x)


def row(record: R, at: int) -> R:
    """Return one row of a record as plain numbers, those that count something whole."""

    def plain(name: str, value: object) -> object:
        if is_dataclass(value):
            return row(value, at)
        if not isinstance(value, np.ndarray | np.generic):
            return value
        found = np.asarray(value)
        number = float(found[at] if found.ndim else found)
        return int(number) if name.startswith("num_") and number == number else number

    return _rebuilt(record, plain)


def masked(record: R, holds: NDArray[np.bool_]) -> R:
    """Return a record that is nan where something does not hold."""
    return _mapped(record, lambda x: np.where(holds, x, np.nan))


def joined(records: Sequence[R]) -> R:
    """Return the rows of several records one after another."""
    lengths = [length_of(r) for r in records]

    def at(path: tuple[str, ...]) -> NDArray[np.float64]:
        parts = (cast("NDArray[np.float64]", _get(r, path)) for r in records)
        return np.concatenate([np.broadcast_to(part, num) for part, num in zip(parts, lengths, strict=True)])

    def together(found: object, path: tuple[str, ...]) -> object:
        if is_dataclass(found):
            parts = {f.name: together(getattr(found, f.name), (*path, f.name)) for f in fields(found)}
            return replace(cast("DataclassInstance", found), **parts)
        return at(path) if isinstance(found, np.ndarray) and found.ndim else found

    return cast("R", together(records[0], ()))


def _get(record: object, path: tuple[str, ...]) -> object:
    for name in path:
        record = getattr(record, name)
    return record


def _arrays(record: object) -> list[NDArray[np.float64]]:
    if isinstance(record, np.ndarray):
        return [record]
    if not is_dataclass(record):
        return []
    return [a for f in fields(record) for a in _arrays(getattr(record, f.name))]


def _mapped(record: R, change: Callable[[NDArray[np.float64]], NDArray[np.float64]], floats: bool = False) -> R:
    def changed(name: str, value: object) -> object:
        if is_dataclass(value):
            return _mapped(value, change, floats)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if isinstance(value, np.ndarray) or (floats and is_number):
            return change(np.asarray(value))
        return value

    return _rebuilt(record, changed)


def _rebuilt(record: R, change: Callable[[str, object], object]) -> R:
    parts = {f.name: change(f.name, getattr(record, f.name)) for f in fields(cast("DataclassInstance", record))}
    return cast("R", replace(cast("DataclassInstance", record), **parts))
