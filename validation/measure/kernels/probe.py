"""What is measured: a call with the cells of its row in a table, and how long it took."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from ....ir.records import dataclass

Call: TypeAlias = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing to time.

    Attributes:
        table: the table its row belongs to, `gemm`.
        name: what tells it from the other probes of its table.
        cells: what the row says of it, by column.
        prepare: makes the tensors and returns the call to time; they live as long as the call.
    """

    table: str
    name: str
    cells: Mapping[str, str | int | float]
    prepare: Callable[[], Call]


@dataclass(frozen=True, slots=True)
class MeasuredProbe:
    """A probe with the least of its medians; `spread` is how far the greatest lies above it, as a share."""

    probe: Probe
    time_s: float
    spread: float
