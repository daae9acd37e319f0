"""Bands in which measurements lie around predictions, by what these rest on.

`backends/calibration/errors.csv` has a line for each quantity, class of model, software and silicon: between which
values of ln(measured / predicted) half and nine tenths of measurements of this kind lie. Every band holds the
prediction: where most of a kind lie on one side of it, the shares are taken from there on. They are quantiles of half
of the rows to which nothing was fitted, few rows leaning on kinds like theirs and making bands wider (split conformal
prediction: Lei et al. 2018, arXiv 1604.04173). Less evidence never makes a band narrower. The other half of the rows
judges them: docs/validation_bands.md.
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
from .evidence import ChipEvidence, Evidence
from .quantities import STEP, WITHIN

# Errors of products, an e-fold of memory bandwidth, on a chip that no fit has seen: on an L40S, with 0.424 of that
# of A100, 10.0 % in half of all cases and 29.3 % in nine of ten (docs/validation_kernels.md).
_EFOLDS = -math.log(864.0 / 2039.0)
_HALF_AN_EFOLD, _NINE_TENTHS_AN_EFOLD = math.log1p(0.100) / _EFOLDS, math.log1p(0.293) / _EFOLDS
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

    It holds the prediction itself: least <= low <= 0 <= high <= most.

    Attributes:
        least: the lower end of nine tenths.
        low: that of the half.
        high: the upper end of the half.
        most: that of nine tenths.
        num_rows: measurements that it was read from.
        kind: what these have in common: quantity, class of model, software, silicon; `*` for any.
    """

    least: float
    low: float
    high: float
    most: float
    num_rows: int = 0
    kind: str = ""

    def __post_init__(self) -> None:
        """Assert that it holds the prediction."""
        assert self.least <= self.low <= 0.0 <= self.high <= self.most, self

    @property
    def half(self) -> float:
        """Half the width of the half."""
        return (self.high - self.low) / 2.0

    @property
    def inverse(self) -> Band:
        """The band of the inverse: of a rate, where this one is of a time."""
        return Band(-self.most, -self.high, -self.low, -self.least, self.num_rows, self.kind)

    def above(self, share: float) -> Band:
        """Return the band without what is below a share of the prediction, as of a time below what physics allows.

        >>> Band(-1.0, -0.5, 0.0, 0.5).above(0.5).least
        -0.6931471805599453
        """
        floor = min(0.0, math.log(share)) if share > 0.0 else -math.inf
        return Band(max(self.least, floor), max(self.low, floor), self.high, self.most, self.num_rows, self.kind)

    def over(self, other: Band) -> Band:
        """Return the band of the ratio of a quantity to another, whose errors have nothing to do with one another.

        Each end is as far off as the ends that make it are in quadrature.

        >>> Band(-0.4, -0.3, 0.3, 0.4).over(Band(-0.5, -0.4, 0.0, 0.3)).high
        0.5
        """
        return Band(
            -math.hypot(self.least, other.most),
            -math.hypot(self.low, other.high),
            math.hypot(self.high, other.low),
            math.hypot(self.most, other.least),
            min(self.num_rows, other.num_rows),
            self.kind,
        )

    def with_all_of(self, other: Band) -> Band:
        """Return the band that holds this one and another."""
        ends = (min(self.least, other.least), min(self.low, other.low), max(self.high, other.high))
        return Band(*ends, max(self.most, other.most), min(self.num_rows, other.num_rows), self.kind)

    def stretched(self, beyond: float) -> Band:
        """Return the band of a machine with a number so many e-folds from the measured one: ends in quadrature.

        >>> round(Band(-0.1, 0.0, 0.0, 0.1).stretched(1.0).most, 3)
        0.316
        """
        half, most = _HALF_AN_EFOLD * beyond, _NINE_TENTHS_AN_EFOLD * beyond
        ends = (-math.hypot(self.least, most), -math.hypot(self.low, half), math.hypot(self.high, half))
        return Band(*ends, math.hypot(self.most, most), self.num_rows, self.kind)

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
        quantity: one of `quantities.QUANTITIES`; of differences `step.within` and the like, see `band_within`.
        evidence: what the answer rests on in this quantity, see `evidence_of`.
        experts: whether the model has experts.
    """
    model, silicon = EXPERTS if experts else DENSE, evidence.silicon
    found = _packaged()[quantity, model, str(evidence.software), str(silicon)]
    if not evidence.beyond or quantity.endswith(WITHIN):
        return found
    if silicon is ChipEvidence.SISTER:
        # Of a measured chip that was changed: a relative never makes it surer.
        found = found.with_all_of(_packaged()[quantity, model, str(evidence.software), str(ChipEvidence.MEASURED)])
    return found.stretched(evidence.beyond)


def is_tie(one: float, other: float, first: Band, second: Band) -> bool:
    """Whether two predictions are too near one another to tell which will be less when measured.

    They are where the band of their ratio, `first.over(second)`, has the half of its cases on both sides of equal. For
    plans on one machine by one software give `band_within` twice: the errors that they share cancel.

    Args:
        one: a prediction; a time, a rate or a cost that follows a time.
        other: the other one.
        first: the band of the first, see `answers.band_of_step` and `band_of`.
        second: the band of the second.

    >>> near = Band(-0.2, -0.1, 0.1, 0.2)
    >>> is_tie(1.0, 1.1, near, near), is_tie(1.0, 1.2, near, near)
    (True, False)
    """
    told, ratio = math.log(one / other), first.over(second)
    return told + ratio.low <= 0.0 <= told + ratio.high


def band_within(evidence: Evidence, experts: bool = False, quantity: str = STEP) -> Band:
    """Return the band of a quantity between plans of one model on one machine by one software: see `is_tie`.

    It is that of runs of one publication less the median of their errors, which all of them share.
    """
    return band_of(f"{quantity}.{WITHIN}", evidence, experts)


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
