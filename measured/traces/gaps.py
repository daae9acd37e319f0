"""Where a device waits: idle stretches and who is late, and how much of each collective nothing hides."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.records import dataclass
from .kinds import KernelKind
from .ran import Flags, Floats, Ints
from .trace import Message, RankTrace

# Shorter pauses are what lies between two kernels of a busy device.
SHORT_US = 10.0
_LONGEST = 5


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch in which nothing ran, between two kernels by their operators."""

    before: str
    after: str
    time_us: float


@dataclass(frozen=True, slots=True)
class Idle:
    """Microseconds in which nothing ran between the first and the last kernel.

    `late_us` of it lie before kernels that the host launched when nothing was left to run; `short_us` are pauses
    below 10 us. `longest` are the longest gaps.
    """

    time_us: float
    late_us: float
    short_us: float
    longest: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """Collectives that are alike: calls, and microseconds in all and with no computation beside them."""

    message: Message
    rows: Ints
    time_us: float
    exposed_us: float

    @property
    def calls(self) -> int:
        """How many."""
        return len(self.rows)


def idle(trace: RankTrace, chosen: Flags | None = None) -> Idle:
    """Return where the device waits, of chosen kernels whose launch is known; all of them by default."""
    ran = trace.ran
    rows = np.flatnonzero(_counted(trace, chosen))
    rows = rows[np.argsort(ran.start_us[rows], kind="stable")]
    if not len(rows):
        return Idle(0.0, 0.0, 0.0, ())
    start, end = ran.start_us[rows], ran.start_us[rows] + ran.time_us[rows]
    until = np.maximum.accumulate(end)
    gap = np.maximum(start[1:] - until[:-1], 0.0)
    late = (ran.launched_us[rows][1:] > until[:-1]) & trace.on_device
    longest = []
    for k in np.argsort(-gap, kind="stable")[:_LONGEST].tolist():
        if gap[k] > 0.0:
            longest.append(Gap(_name(trace, int(rows[k])), _name(trace, int(rows[k + 1])), float(gap[k])))
    short = float(gap[gap < SHORT_US].sum())
    return Idle(float(gap.sum()), float(gap[late].sum()), short, tuple(longest))


def collectives(trace: RankTrace, chosen: Flags | None = None) -> Sequence[CollectiveRow]:
    """Return chosen collectives by kind, bytes, ranks and group, those that take longest first."""
    ran, counted = trace.ran, _counted(trace, chosen)
    rows = np.flatnonzero(trace.is_kind(KernelKind.COLLECTIVE) & counted)
    beside = np.flatnonzero(~trace.is_kind(KernelKind.COLLECTIVE, KernelKind.COPY) & counted)
    hidden = _covered_by(ran.start_us[beside], ran.time_us[beside], ran.start_us[rows], ran.time_us[rows])
    alike: dict[Message, list[int]] = {}
    for k, row in enumerate(rows.tolist()):
        alike.setdefault(trace.message(row), []).append(k)
    found = [
        CollectiveRow(
            message, rows[at], float(ran.time_us[rows[at]].sum()), float((ran.time_us[rows[at]] - hidden[at]).sum())
        )
        for message, at in alike.items()
    ]
    return sorted(found, key=lambda row: -row.time_us)


def _counted(trace: RankTrace, chosen: Flags | None) -> Flags:
    known = trace.ran.known if trace.ran.known.any() else np.ones(len(trace.ran), dtype=np.bool_)
    return known if chosen is None else known & chosen


def _covered_by(start: Floats, lasting: Floats, at: Floats, time: Floats) -> Floats:
    """Return how much of each stretch lies beside any of others.

    >>> _covered_by(np.array([0.0, 4.0]), np.array([2.0, 2.0]), np.array([1.0]), np.array([4.0]))
    array([2.])
    """
    if not len(start) or not len(at):
        return np.zeros(len(at))
    order = np.argsort(start, kind="stable")
    begin, end = start[order], (start + lasting)[order]
    until = np.concatenate(([-np.inf], np.maximum.accumulate(end)[:-1]))
    # Stretches that do not overlap, and how much they cover up to the ends of each.
    begin, end = np.maximum(begin, until), np.maximum(end, until)
    covered = np.cumsum(end - begin)
    moments = np.stack((begin, end), axis=1).reshape(-1)
    upto = np.stack((covered - (end - begin), covered), axis=1).reshape(-1)
    return np.asarray(np.interp(at + time, moments, upto) - np.interp(at, moments, upto))


def _name(trace: RankTrace, row: int) -> str:
    return trace.name(int(trace.ran.op[row])) or trace.name(int(trace.ran.name[row]))
