"""What judging a row came to: a prediction beside a measurement, or the reason why there is none."""

from __future__ import annotations

import math
from enum import StrEnum

from ...ir.records import dataclass
from ..rows.rows import Row


class Part(StrEnum):
    """What a row counts as: constants were fitted to it, it judges them, no model fits it, or it has no prediction."""

    FIT = "fit"
    JUDGED = "judged"
    EXCLUDED = "excluded"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Label:
    """Whether a configuration ran, and whether it is predicted to."""

    ran: bool
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One quantity of one row.

    Attributes:
        row: the row as published.
        table: the kind of table it is from.
        part: what it counts as.
        unit: of what is predicted and measured: `s`, `B` for bytes, `W` for power, `/s` for a rate.
        predicted: NaN where it is skipped.
        measured: NaN where it is skipped, and where the row has but a label.
        system: the system of the catalogue it ran on, where there is one.
        library: whose constants predict it.
        kind: the kind of kernel, or the quantity.
        group: the configuration it belongs to.
        reason: why it is excluded or skipped; of others, what had to be assumed.
        label: whether it ran, of rows that say so.
        cause: what was found to be the reason of a large error, empty where nothing was.
        low: the least that it may be, where only a range can be predicted.
        high: the most.
        engine: what served the requests, of rows that say so.
    """

    row: Row
    table: str
    part: Part
    unit: str = "s"
    predicted: float = math.nan
    measured: float = math.nan
    system: str = ""
    library: str = ""
    kind: str = ""
    group: str = ""
    reason: str = ""
    label: Label | None = None
    cause: str = ""
    low: float | None = None
    high: float | None = None
    engine: str = ""

    @property
    def shown_kind(self) -> str:
        """The kind with the engine, where there is one."""
        return f"{self.kind} {self.engine}".strip()

    @property
    def error(self) -> float:
        """Signed relative error; NaN without a prediction or a measurement."""
        return self.predicted / self.measured - 1.0

    @property
    def has_error(self) -> bool:
        """Whether a prediction stands beside a measurement; a range is met or missed, and has no error."""
        return self.part is not Part.SKIPPED and not math.isnan(self.measured) and not self.is_range

    @property
    def is_range(self) -> bool:
        """Whether only a range is predicted."""
        return self.low is not None and self.high is not None

    @property
    def inside(self) -> bool:
        """Whether the measurement lies in the range, ends included; False without one."""
        return self.low is not None and self.high is not None and self.low <= self.measured <= self.high
