"""The scale of an axis: numbers to pixels, and ticks at round numbers of their unit."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir.records import dataclass
from ..readable import shown

# From this ratio of the largest to the smallest an axis is logarithmic.
LOG_FROM = 30.0
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_TIMES = ((172800.0, 86400.0), (3600.0, 3600.0), (120.0, 60.0))
# Room around the points, as a share of the axis.
_ROOM = 0.05


@dataclass(frozen=True, slots=True)
class Scale:
    """One axis: numbers from `low` to `high` lie from pixel `start` to pixel `end`."""

    low: float
    high: float
    start: float
    end: float
    unit: str
    log: bool = False

    @classmethod
    def of(cls, values: Sequence[float], start: float, end: float, unit: str, from_zero: bool = False) -> Scale:
        """Return the scale that shows all of these finite numbers, logarithmic where they span much.

        >>> Scale.of([2.0, 4.0], 0.0, 100.0, "s").log, Scale.of([1.0, 50.0], 0.0, 100.0, "s").log
        (False, True)
        """
        low, high = (0.0 if from_zero else min(values)), max(values)
        if low > 0 and high / low > LOG_FROM:
            room = (high / low) ** _ROOM
            return cls(low / room, high * room, start, end, unit, True)
        room = _ROOM * ((high - low) or abs(high) or 1.0)
        return cls(low if from_zero else low - room, high + room, start, end, unit)

    def at(self, value: float) -> float:
        """Return the pixel of a number.

        >>> Scale(0.0, 10.0, 0.0, 100.0, "s").at(2.5), Scale(1.0, 100.0, 0.0, 100.0, "s", True).at(10.0)
        (25.0, 50.0)
        """
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def holds(self, value: float) -> bool:
        """Whether a number lies on the axis."""
        return self.low <= value <= self.high

    def ticks(self, most: int = 7) -> list[tuple[float, str]]:
        """Return round numbers on the axis, `most` of them at most, each as people read it.

        >>> [text for _, text in Scale(0.0, 3.4 * 2**30, 0.0, 1.0, "B").ticks(4)]
        ['0 B', '1 GiB', '2 GiB', '3 GiB']
        >>> [text for _, text in Scale(1.0, 100.0, 0.0, 1.0, "s", True).ticks(3)]
        ['1 s', '10 s', '100 s']
        >>> [text for _, text in Scale(1.0004, 1.0014, 0.0, 1.0, "s").ticks(3)]
        ['1.0005 s', '1.001 s']
        """
        base = _base(self.unit, max(abs(self.low), abs(self.high)))
        found = self._powers(base, most) if self.log else self._round(base, most)
        texts = [(f"{value * 100:.6g} %" if self.unit == "1" else shown(value, self.unit)) for value in found]
        if len(set(texts)) < len(texts):
            name = shown(base, self.unit)
            texts = [f"{value / base:.7g}{name[1:] if name.startswith('1 ') else ''}" for value in found]
        return list(zip(found, texts, strict=True))

    def _round(self, base: float, most: int) -> list[float]:
        least = (self.high - self.low) / base / most
        power = 10.0 ** math.floor(math.log10(least))
        step = base * power * next(s for s in _STEPS if s * power >= least * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [k * step for k in range(first, last + 1)]

    def _powers(self, base: float, most: int) -> list[float]:
        first, last = math.floor(math.log10(self.low / base)), math.ceil(math.log10(self.high / base))
        tens = [base * 10.0**k for k in range(first, last + 1)]
        for factors in ((1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
            found = [ten * factor for ten in tens for factor in factors if self.holds(ten * factor)]
            if len(found) <= most:
                return found
        return found[:: math.ceil(len(found) / most)]


def _base(unit: str, largest: float) -> float:
    """Return what round numbers of a unit are round in: minutes, hours, GiB."""
    if unit == "B":
        return float(2 ** (10 * max(0, min(5, math.floor(math.log2(max(largest, 1.0)) / 10)))))
    if unit == "s":
        return next((scale for limit, scale in _TIMES if largest >= limit), 1.0)
    return 1.0
