"""`python -m benchmarks.coverage`: trace every causal language model of transformers, count it, write the page.

Results are kept one a line as they come; `--resume` goes on where the last run stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter

from .case import model_types
from .page import page
from .result import Result, from_json
from .workers import measure_all

ROOT = Path(__file__).resolve().parents[2]


def main(words: Sequence[str] | None = None) -> None:
    """Measure what is asked for, keep the results, and write the page when all types have one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="TYPE", help="model types to measure again (default: all)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="S", help="seconds a type (default 300)")
    parser.add_argument("--resume", action="store_true", help="keep results of the last run")
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "coverage.jsonl", metavar="FILE")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "coverage.md", metavar="FILE")
    given = parser.parse_args(words)
    known = _read(given.results) if given.resume or given.only else {}
    wanted = given.only or [name for name in model_types() if name not in known]
    found = {**known, **_measured(wanted, given.jobs, given.timeout, given.results, known)}
    missing = [name for name in model_types() if name not in found]
    if missing:
        print(f"no page: {len(missing)} types have no result; run with --resume", file=sys.stderr)
        return
    given.page.write_text(page([found[name] for name in model_types()]), encoding="utf-8")
    print(f"wrote {given.page}", file=sys.stderr)


def _read(path: Path) -> dict[str, Result]:
    """Results of the last run; the last line of a type counts."""
    if not path.exists():
        return {}
    return {r.model_type: r for r in map(from_json, path.read_text(encoding="utf-8").splitlines())}


def _measured(
    wanted: Sequence[str], jobs: int, timeout_s: float, path: Path, known: Mapping[str, Result]
) -> dict[str, Result]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{r.to_json()}\n" for r in known.values()), encoding="utf-8")
    start, found = perf_counter(), dict[str, Result]()
    with path.open("a", encoding="utf-8") as file:

        def keep(result: Result) -> None:
            file.write(f"{result.to_json()}\n")
            file.flush()

        for result in measure_all(wanted, jobs, timeout_s, keep):
            found[result.model_type] = result
            print(f"{len(found)}/{len(wanted)} {perf_counter() - start:.0f} s  {_line(result)}", file=sys.stderr)
    return found


def _line(result: Result) -> str:
    failed = f" FAILED {', '.join(result.why_not)}" if result.why_not else ""
    return f"{result.model_type}: {'agrees' if result.agrees else 'DIFFERS'} {result.ratios}{failed}"


if __name__ == "__main__":
    main()
