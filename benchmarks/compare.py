"""`python -m benchmarks.compare BEFORE AFTER`: two results of `make bench` as ratios; exit code 5 where one is worse.

Times are counted in units of the machine that each result was measured on, so that results of two machines, or of a
busy one and an idle one, can be compared. Sizes are compared as they are.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .unit import UNIT

# Of a row, before over after: below it the row got worse. Memory moves less than time.
WORST, WORST_BYTES = 0.75, 0.9
_TIMES, _RATES, _BYTES = ("s", "ms", "us"), ("1/s",), ("B", "MiB")
_GATE_FAILED = 5


@dataclass(frozen=True, slots=True)
class Change:
    """One row of two results; `better` is above one where the second is better."""

    name: str
    before: float
    after: float
    unit: str
    better: float

    @property
    def failed(self) -> bool:
        """Whether the row got worse by more than what measuring twice may show."""
        return self.better < (WORST_BYTES if self.unit in _BYTES else WORST)


def changes(before: Mapping[str, tuple[float, str]], after: Mapping[str, tuple[float, str]]) -> Iterator[Change]:
    """Yield the rows that two results share, the unit of the machine aside.

    >>> one = {UNIT: (1.0, "s"), "search": (10.0, "s"), "plans": (50.0, "1/s")}
    >>> slower_machine = {UNIT: (2.0, "s"), "search": (10.0, "s"), "plans": (50.0, "1/s")}
    >>> [(c.name, c.better) for c in changes(one, slower_machine)]
    [('search', 2.0), ('plans', 2.0)]
    """
    slower = after[UNIT][0] / before[UNIT][0] if UNIT in before and UNIT in after else 1.0
    for name, (was, unit) in before.items():
        if name == UNIT or name not in after or unit not in (*_TIMES, *_RATES, *_BYTES):
            continue
        now = after[name][0]
        if min(was, now) <= 0.0:
            continue
        gain = now / was if unit in _RATES else was / now
        yield Change(name, was, now, unit, gain if unit in _BYTES else gain * slower)


def main(words: Sequence[str] | None = None) -> int:
    """Print the ratios, the worst first; return 5 where a row got worse."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("before", type=Path, help="result of a release")
    parser.add_argument("after", type=Path, help="result of the checkout")
    given = parser.parse_args(words)
    found = sorted(changes(_read(given.before), _read(given.after)), key=lambda c: c.better)
    for c in found:
        verdict = "  WORSE" if c.failed else ""
        print(f"x{c.better:<5.2f} {c.before:>10.4g} -> {c.after:<10.4g} {c.unit:<4} {c.name}{verdict}")
    num_failed = sum(c.failed for c in found)
    print(f"{len(found)} rows compared, {num_failed} worse", file=sys.stderr)
    return _GATE_FAILED if num_failed or not found else 0


def _read(path: Path) -> dict[str, tuple[float, str]]:
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return {row["name"]: (float(row["value"]), str(row["unit"])) for row in rows}


if __name__ == "__main__":
    sys.exit(main())
