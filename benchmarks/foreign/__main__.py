"""`python -m benchmarks.foreign`: trace modules of foreign packages, let torch count them, write the page.

The packages are no part of any extra: install those that are to be measured (`benchmarks/foreign/requirements.txt`).
"""

from __future__ import annotations

from ..coverage.compared import Compared, failed, said
from ..sweep import Sweep
from .measure import measure
from .packages import missing, titles
from .page import page

SWEEP = Sweep(
    "foreign", __doc__ or "", "docs/coverage_foreign.md", 240.0, measure, failed, Compared.from_json, page, said,
    titles, missing,
)  # fmt: skip

if __name__ == "__main__":
    SWEEP.main()
