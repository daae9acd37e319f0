"""Numbers of a system as people read them: value, unit, source; those of one place and source together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..backends.records import NumberRecord


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
