"""`python -m benchmarks.foreign`: trace modules of foreign packages, let torch count them, write the page.

The packages are no part of any extra: install those that are to be measured (`benchmarks/foreign/requirements.txt`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..sweep import Sweep
from .measure import Result, failed, from_json, measure
from .packages import titles
from .page import page


def _line(rows: Sequence[Result]) -> str:
    (result,) = rows
    told = {**result.why_not, **({"oracle": result.oracle} if result.oracle else {})}
    said = f"{'agrees' if result.agrees else 'DIFFERS'} {result.ratios} {result.parameters} {result.trace_s}"
    return f"{said} {result.layers} {told or ''}"


SWEEP = Sweep(
    "foreign", __doc__ or "", "docs/coverage_foreign.md", 240.0, measure, failed, from_json, page, _line, titles
)

if __name__ == "__main__":
    SWEEP.main()
