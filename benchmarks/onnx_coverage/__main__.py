"""`python -m benchmarks.onnx_coverage`: read the models that the onnx package and others ship, and write the page.

Packages that ship models are looked for where Python finds them: put a folder of them into PYTHONPATH.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..workers import measure_all
from .cases import cases
from .measure import failed, measure
from .page import FAMILIES, page

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Measure every case, keep the results one a line, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onnx_coverage", description=__doc__)
    parser.add_argument(
        "only", nargs="*", metavar="CASE", help="cases to measure, and print (default: all, to the page)"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="S", help="seconds a case (default 60)")
    kept, written = ROOT / "results/onnx_coverage.jsonl", ROOT / "docs/coverage_onnx.md"
    parser.add_argument("--results", type=Path, default=kept, metavar="FILE", help="where results are kept")
    parser.add_argument("--page", type=Path, default=written, metavar="FILE", help="page (default %(default)s)")
    given = parser.parse_args()
    names = given.only or list(cases())
    found = {rows[0].model_type: rows[0] for rows in measure_all(names, given.jobs, measure, failed, given.timeout)}
    results = [found[name] for name in names]
    for family in FAMILIES:
        of = [r for r in results if r.family == family]
        if of:
            print(f"{family}: {sum(not r.why_not for r in of)} of {len(of)} read", file=sys.stderr)
    if given.only:
        print("\n".join(r.to_json() for r in results))
        return
    given.results.parent.mkdir(parents=True, exist_ok=True)
    given.results.write_text("".join(f"{r.to_json()}\n" for r in results), encoding="utf-8")
    given.page.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
