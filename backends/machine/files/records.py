"""A number of a system as its author wrote it: with unit, source and confidence."""

from __future__ import annotations

from typing import Literal, TypeAlias

from ....ir.records import dataclass

Confidence: TypeAlias = Literal["datasheet", "measured", "estimated"]


@dataclass(frozen=True, slots=True)
class NumberRecord:
    """One number of a system as its author wrote it, with its value in base units and where it comes from."""

    path: str
    value: float
    unit: str
    value_si: float
    dimension: str
    source: str
    confidence: Confidence
    as_of: str | None
