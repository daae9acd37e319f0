"""`python -m benchmarks.alltypes`: trace every model type of transformers with all its parts, count it, write the page.

Types whose classes ask for packages that are not installed (timm, natten) count as not traced, with that reason.
"""

from __future__ import annotations

from ..coverage.compared import Compared, failed, said
from ..sweep import Sweep
from .measure import measure, model_types
from .page import page

SWEEP = Sweep(
    "alltypes", __doc__ or "", "docs/coverage_transformers.md", 60.0, measure, failed, Compared.from_json, page, said,
    model_types,
)  # fmt: skip

if __name__ == "__main__":
    SWEEP.main()
