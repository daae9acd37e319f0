"""How often measurements lie in ranges that were predicted for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .outcomes import Outcome, Part


@dataclass(frozen=True, slots=True)
class Ranges:
    """Shares of the measurements that lie inside, below and above; `width` is the median of high over low."""

    num: int
    inside: float
    below: float
    above: float
    width: float

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Ranges:
        """Count the outcomes that are ranges, one of them at least."""
        ends = [(o.low, o.high, o.measured) for o in outcomes if o.low is not None and o.high is not None]
        low, high, measured = np.asarray(ends, dtype=np.float64).T
        below, above = float((measured < low).mean()), float((measured > high).mean())
        return cls(len(ends), 1.0 - below - above, below, above, float(np.median(high / low)))

    @classmethod
    def by_part(cls, outcomes: Sequence[Outcome]) -> Iterator[tuple[Part, Ranges]]:
        """Yield what judges and what was fitted, where there is any."""
        for part in (Part.JUDGED, Part.FIT):
            some = [o for o in outcomes if o.part is part]
            if some:
                yield part, cls.of(some)
