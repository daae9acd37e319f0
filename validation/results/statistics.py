"""How far predictions lie from measurements, and how often labels are right."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from ...ir.records import dataclass


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Relative errors of a data set; `bias` is the median signed error, positive where predictions are too high."""

    num: int
    median: float
    mean: float
    p75: float
    p90: float
    worst: float
    bias: float

    @classmethod
    def of(cls, errors: Sequence[float]) -> Accuracy:
        """Summarise signed relative errors, predicted / measured - 1; quantiles interpolate linearly.

        >>> Accuracy.of([0.1, -0.3, 0.2]).median
        0.2
        """
        sizes = np.abs(np.asarray(errors, dtype=np.float64))
        median, p75, p90 = (float(q) for q in np.quantile(sizes, [0.5, 0.75, 0.9]))
        return cls(len(errors), median, float(sizes.mean()), p75, p90, float(sizes.max()), float(np.median(errors)))


@dataclass(frozen=True, slots=True)
class Confusion:
    """Labels against predictions of whether a configuration fits."""

    fits_right: int
    fits_wrong: int
    fails_right: int
    fails_wrong: int

    @classmethod
    def of(cls, pairs: Iterable[tuple[bool, bool]]) -> Confusion:
        """Count pairs of (fitted, predicted to fit).

        >>> Confusion.of([(True, True), (False, True), (False, False)]).accuracy
        0.6666666666666666
        """
        seen = list(pairs)
        counts = (seen.count((True, True)), seen.count((True, False)))
        return cls(*counts, seen.count((False, False)), seen.count((False, True)))

    @property
    def num(self) -> int:
        """Rows."""
        return self.fits_right + self.fits_wrong + self.fails_right + self.fails_wrong

    @property
    def accuracy(self) -> float:
        """Share of the rows that are right."""
        return (self.fits_right + self.fails_right) / max(self.num, 1)

    @property
    def precision(self) -> float:
        """Of those that are said to fit, the share that ran; NaN where none is.

        >>> Confusion(fits_right=6, fits_wrong=1, fails_right=5, fails_wrong=2).precision
        0.75
        """
        said = self.fits_right + self.fails_wrong
        return self.fits_right / said if said else math.nan

    @property
    def recall(self) -> float:
        """Of those that ran, the share that is said to fit; NaN where none did.

        >>> Confusion(fits_right=6, fits_wrong=2, fails_right=5, fails_wrong=2).recall
        0.75
        """
        ran = self.fits_right + self.fits_wrong
        return self.fits_right / ran if ran else math.nan
