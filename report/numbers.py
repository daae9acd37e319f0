"""Numbers of a system as people read them: value, unit, source; those of one place and source together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..ir.sizes.expr import Num

if TYPE_CHECKING:
    from ..backends.machine.files.records import NumberRecord
    from ..backends.machine.system import System


def one(value: Num) -> float:
    """Return the number of one plan or machine: models compute on tables of one as well.

    >>> one(np.array([2.5])), one(3)
    (2.5, 3.0)
    """
    return float(np.ravel(value)[0])


def shown_value(number: NumberRecord) -> str:
    """Return a number with its unit as its author wrote it."""
    return f"{number.value:g}{f' {number.unit}' if number.unit not in ('', '1') else ''}"


def by_origin(numbers: Iterable[NumberRecord]) -> Mapping[tuple[str, str, str], list[NumberRecord]]:
    """Gather numbers by place, confidence and source, in the order in which each comes first."""
    found: dict[tuple[str, str, str], list[NumberRecord]] = {}
    for number in numbers:
        found.setdefault((number.path.rpartition(".")[0], number.confidence, number.source), []).append(number)
    return found


def named(numbers: Iterable[NumberRecord]) -> str:
    """Return `tensor 0.95, overhead 3 us`: numbers of one place by the last part of their paths."""
    return ", ".join(f"{n.path.rpartition('.')[2]} {shown_value(n)}" for n in numbers)


def records_at(system: System, paths: Iterable[str]) -> Iterator[NumberRecord]:
    """Yield the numbers of a system at these paths; a path that ends in a dot stands for all below it."""
    for path in paths:
        for record in system.sources:
            if record.path == path or (path.endswith(".") and record.path.startswith(path)):
                yield record


def shown_with_source(number: NumberRecord) -> str:
    """Return `3350 GB/s [datasheet] NVIDIA data sheet, ...`."""
    return f"{shown_value(number)} [{number.confidence}] {number.source}"


def sources_of(system: System, *paths: str) -> Iterator[str]:
    """Yield numbers of a system, each with where it comes from."""
    return map(shown_with_source, records_at(system, paths))
