"""Bands in which measurements lie around predictions, by what these rest on.

`backends/calibration/errors.csv` has a line for each quantity, class of model, software and silicon: between which
values of ln(measured / predicted) half and nine tenths of measurements of this kind lie. They are quantiles of half of
the rows to which nothing was fitted, data sets weighed by the roots of their sizes, few rows making them wider (split
conformal prediction: Lei et al. 2018, arXiv 1604.04173). Where a kind has too few rows, the next wider kind stands for
it, and less evidence never makes a band narrower. The other half of the rows judges them: docs/validation_bands.md.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from ... import backends
from ...ir.records import dataclass
from .evidence import Evidence

# Quantities that have bands.
STEP, TTFT, LOADED_TTFT, TPOT = "step", "ttft", "loaded_ttft", "tpot"
E2EL, THROUGHPUT, MEMORY = "e2el", "throughput", "memory"
QUANTITIES = (STEP, TTFT, LOADED_TTFT, TPOT, E2EL, THROUGHPUT, MEMORY)
# Differences between runs of one data set on one machine by one software: what a ranking of plans is subject to.
WITHIN = "within"
DENSE, EXPERTS = "dense", "experts"
_Key: TypeAlias = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Interval:
    """Where a measurement is expected: `low` to `high` in half of all cases, `least` to `most` in nine of ten."""

    least: float
    low: float
    high: float
    most: float


@dataclass(frozen=True, slots=True)
class Band:
    """Values of ln(measured / predicted): half of measurements lie in `low` to `high`, 9 of 10 in `least` to `most`.

    A band need not hold 0: times without any software are too short, and it says by how much.

    Attributes:
        least: the 5th percentile.
        low: the 25th.
        high: the 75th.
        most: the 95th.
        num_rows: measurements that it was read from.
        kind: what these have in common: quantity, class of model, software, silicon; `*` for any.
    """

    least: float
    low: float
    high: float
    most: float
    num_rows: int = 0
    kind: str = ""

    @property
    def middle(self) -> float:
        """The middle of the half."""
        return (self.low + self.high) / 2.0

    @property
    def half(self) -> float:
        """Half the width of the half."""
        return (self.high - self.low) / 2.0

    @property
    def inverse(self) -> Band:
        """The band of the inverse: of a rate, where this one is of a time."""
        return Band(-self.most, -self.high, -self.low, -self.least, self.num_rows, self.kind)

    def around(self, value: float) -> Interval:
        """Return the interval around a prediction.

        >>> Band(-1.0, -0.5, 0.0, 0.5).around(2.0).high
        2.0
        """
        return Interval(*(value * math.exp(end) for end in (self.least, self.low, self.high, self.most)))

    def holds(self, ratio: float) -> bool:
        """Whether measured over predicted is among nine of ten.

        >>> Band(-1.0, -0.5, 0.0, 0.5).holds(2.0)
        False
        """
        return math.exp(self.least) <= ratio <= math.exp(self.most)


def band_of(quantity: str, evidence: Evidence, experts: bool = False) -> Band:
    """Return the band of a quantity of an answer.

    Args:
        quantity: one of QUANTITIES; `step.within` is that of differences, see `is_tie`.
        evidence: what the answer rests on, see `evidence_of`.
        experts: whether the model has experts.
    """
    model = EXPERTS if experts else DENSE
    return _packaged()[quantity, model, str(evidence.software), str(evidence.silicon)]


def is_tie(one: float, other: float, first: Band, second: Band) -> bool:
    """Whether two predictions are too near one another to tell which will be less when measured.

    They are unless their difference goes beyond the half-widths of both halves, `hypot(first.half, second.half)`, and
    does so in the same direction once each prediction is moved to the middle of its own band.

    For plans on one machine by one software give `band_within` twice: the errors that they share cancel.

    Args:
        one: a prediction; a time, a rate or a cost that follows a time.
        other: the other one.
        first: the band of the first, see `answers.band_of_step` and `band_of`.
        second: the band of the second.

    >>> near = Band(-0.2, -0.1, 0.1, 0.2)
    >>> is_tie(1.0, 1.1, near, near), is_tie(1.0, 1.2, near, near)
    (True, False)
    """
    told = math.log(one / other)
    moved = told + first.middle - second.middle
    return told * moved <= 0.0 or min(abs(told), abs(moved)) <= math.hypot(first.half, second.half)


def band_within(evidence: Evidence, experts: bool = False) -> Band:
    """Return the band of a step's time between plans of one model on one machine by one software: see `is_tie`.

    It is that of runs of one publication less the median of their errors, which all of them share.
    """
    return band_of(f"{STEP}.{WITHIN}", evidence, experts)


@cache
def _packaged() -> Mapping[_Key, Band]:
    file = Path(backends.__path__[0]) / "calibration" / "errors.csv"
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    known: dict[_Key, Band] = {}
    for row in rows:
        least, low, high, most = (float(row[end]) for end in ("least", "low", "high", "most"))
        key = (row["quantity"], row["model"], row["software"], row["silicon"])
        known[key] = Band(least, low, high, most, int(row["rows"]), row["kind"])
    return MappingProxyType(known)
