"""`python -m benchmarks.oracles`: compare every causal language model of transformers, write the page.

Results are kept one a line as they come; `--resume` goes on where the last run stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from .case import ORACLES, Found
from .page import page
from .pool import compared

ROOT = Path(__file__).resolve().parents[2]


def main(words: Sequence[str] | None = None) -> None:
    """Compare what is asked for, keep the results, and write the page when all types have one."""
    from ..coverage.case import model_types

    parser = argparse.ArgumentParser(prog="python -m benchmarks.oracles", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="TYPE", help="model types to compare again (default: all)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--timeout", type=int, default=240, metavar="S", help="seconds a type (default 240)")
    parser.add_argument("--resume", action="store_true", help="keep results of the last run")
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "oracles.jsonl", metavar="FILE")
    parser.add_argument("--page", type=Path, default=ROOT / "results" / "oracles.md", metavar="FILE")
    given = parser.parse_args(words)
    known = _read(given.results) if given.resume or given.only else {}
    wanted = given.only or [name for name in model_types() if (name, ORACLES[0]) not in known]
    start = perf_counter()
    given.results.parent.mkdir(parents=True, exist_ok=True)
    given.results.write_text("".join(f"{f.to_json()}\n" for f in known.values()), encoding="utf-8")
    with given.results.open("a", encoding="utf-8") as file:
        for found in compared(wanted, given.jobs, given.timeout):
            file.write("".join(f"{f.to_json()}\n" for f in found))
            file.flush()
            known |= {(f.model_type, f.oracle): f for f in found}
            said = ", ".join(f"{f.oracle}: {f.outcome}" for f in found)
            print(f"{perf_counter() - start:5.0f} s  {found[0].model_type}: {said}", file=sys.stderr, flush=True)
    missing = [name for name in model_types() if (name, ORACLES[0]) not in known]
    if missing:
        print(f"no page: {len(missing)} types have no result; run with --resume", file=sys.stderr)
        return
    given.page.write_text(page([known[n, o] for n in model_types() for o in ORACLES]), encoding="utf-8")
    print(f"wrote {given.page}", file=sys.stderr)


def _read(path: Path) -> dict[tuple[str, str], Found]:
    """Results of the last run; the last line of a type and an oracle counts."""
    if not path.exists():
        return {}
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {(f.model_type, f.oracle): f for f in (Found(**line) for line in lines)}


if __name__ == "__main__":
    main()
