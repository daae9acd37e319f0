"""`python -m benchmarks.coverage`: trace every causal language model of transformers, count it, write the page.

Results are kept one a line as they come; `--resume` goes on where the last run stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..sweep import Sweep
from .case import failed, measure
from .page import page
from .result import Result, from_json


def _line(rows: Sequence[Result]) -> str:
    (result,) = rows
    failed = f" FAILED {', '.join(result.why_not)}" if result.why_not else ""
    return f"{'agrees' if result.agrees else 'DIFFERS'} {result.ratios}{failed}"


SWEEP = Sweep("coverage", __doc__ or "", "docs/coverage.md", 300.0, measure, failed, from_json, page, _line)

if __name__ == "__main__":
    SWEEP.main()
