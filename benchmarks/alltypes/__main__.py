"""`python -m benchmarks.alltypes`: trace every model type of transformers with all its parts, count it, write the page.

Types whose classes ask for packages that are not installed (timm, natten) count as not traced, with that reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..sweep import Sweep
from .measure import Result, failed, from_json, measure, model_types
from .page import page


def _line(rows: Sequence[Result]) -> str:
    (result,) = rows
    told = {**result.why_not, **({"oracle": result.oracle} if result.oracle else {})}
    return f"{'agrees' if result.agrees else '-'} {result.ratios} {result.parameters} {told or ''}"


SWEEP = Sweep(
    "alltypes", __doc__ or "", "docs/coverage_transformers.md", 60.0, measure, failed, from_json, page, _line,
    model_types,
)  # fmt: skip

if __name__ == "__main__":
    SWEEP.main()
