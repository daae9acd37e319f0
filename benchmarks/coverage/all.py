"""`python -m benchmarks.coverage.all`: every page of coverage, one after another.

Causal language models of transformers, all its model types, foreign packages, ONNX; packages that are not installed are
named, in the page as well, and left out.
"""

from __future__ import annotations

import argparse
import sys

from ..alltypes.__main__ import SWEEP as ALL_TYPES
from ..foreign.__main__ import SWEEP as FOREIGN
from ..onnx_coverage.__main__ import SWEEP as ONNX
from .__main__ import SWEEP as CAUSAL


def main() -> None:
    """Run each sweep, with its own results and its own page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage.all", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--resume", action="store_true", help="keep results of the last runs")
    given = parser.parse_args()
    words = ["--jobs", str(given.jobs), *(["--resume"] if given.resume else [])]
    for sweep in (CAUSAL, ALL_TYPES, FOREIGN, ONNX):
        print(f"{sweep.name}: {sweep.page}", file=sys.stderr)
        sweep.main(words)


if __name__ == "__main__":
    main()
