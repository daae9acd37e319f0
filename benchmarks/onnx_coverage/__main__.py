"""`python -m benchmarks.onnx_coverage`: read the models that the onnx package and others ship, and write the page.

Packages that ship models are looked for where Python finds them: put a folder of them into PYTHONPATH.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..sweep import Sweep
from .cases import missing
from .measure import Result, failed, from_json, known, measure
from .page import page


def _line(rows: Sequence[Result]) -> str:
    (result,) = rows
    return result.why_not or result.not_priced or "read"


def _names() -> Sequence[str]:
    return tuple(known())


SWEEP = Sweep(
    "onnx_coverage", __doc__ or "", "docs/coverage_onnx.md", 60.0, measure, failed, from_json, page, _line, _names,
    missing,
)  # fmt: skip

if __name__ == "__main__":
    SWEEP.main()
