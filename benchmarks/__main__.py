"""`python -m benchmarks`: one JSON document on stdout, progress on stderr."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from .cases import CASES, MODELS
from .children import ChildError, cpu_s, slipstick
from .machine import byte_code_files, machine_facts
from .rows import Row, row
from .unit import UNIT, machine_unit_s

SCHEMA = "slipstick/benchmarks/2"
_NEED_GRAPHS = {"plans", "designs", "spaces", "single", "doubling", "lowering", "layouts"}


def main() -> None:
    """Run the benchmarks that were asked for and print the result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(CASES), help="run this one; repeatable")
    parser.add_argument("--repeat", type=int, default=3, help="samples of what takes seconds (default 3)")
    given = parser.parse_args()
    chosen = [name for name in CASES if not given.only or name in given.only]
    machine = machine_facts()
    rows = _run(chosen, max(1, given.repeat))
    document = {
        "schema": SCHEMA,
        # What short processes found beside their source; the first of them may have written it.
        "machine": {**machine, "byte_code_files": byte_code_files()},
        "repeat": max(1, given.repeat),
        "rows": [one.as_json() for one in rows],
    }
    print(json.dumps(document, indent=2))


def _run(chosen: list[str], repeat: int) -> list[Row]:
    """Run the cases over graphs recorded once, in a cache that is thrown away."""
    rows = [row(UNIT, machine_unit_s(repeat * 3), "s")]
    with TemporaryDirectory() as folder:
        os.environ["SLIPSTICK_CACHE"] = folder
        if _NEED_GRAPHS & set(chosen):
            _record(Path(folder))
        for name in chosen:
            start = perf_counter()
            rows += _rows(name, repeat)
            _say(f"  {name}: {perf_counter() - start:.1f} s in all")
    return rows


def _rows(name: str, repeat: int) -> Iterator[Row]:
    """Run one case; when it fails, say so in a row that is not met, and let the others go on."""
    try:
        for one in CASES[name](repeat):
            _say(_line(one))
            yield one
    except ChildError as error:
        _say(f"{name} failed: {error}")
        yield Row(f"{name} failed: {error}", 0.0, "1", "to run", False)


def _record(folder: Path) -> None:
    _say("recording " + ", ".join(MODELS))
    for model in MODELS:
        cpu_s(slipstick("compile", model, "-o", str(folder / "thrown-away.graph")))


def _line(one: Row) -> str:
    verdict = {None: "", True: f" (asked {one.asked}: met)", False: f" (asked {one.asked}: MISSED)"}[one.met]
    unit = "" if one.unit == "1" else f" {one.unit}"
    return f"{one.name}: {one.value:g}{unit}{verdict}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
