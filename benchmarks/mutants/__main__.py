"""`python -m benchmarks.mutants`: put small faults into the product, one at a time, and see whether tests notice.

Verdicts are kept one a line as they come; `--resume` goes on where the last run stopped, `--survivors` judges again
what survived, after tests were added.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter

import pytest

from .changes import Mutant, mutants_of
from .judge import PLAIN, Court, Verdict, Warm, judged_cold
from .page import Judged, equivalents, page, read, written
from .probes import Probes, Sources, install
from .selection import Record

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("backends", "cost", "passes", "ir")
TESTS = (*(f"tests/{room}" for room in ROOMS), "tests/properties")
# Heavy to import, and not ours: there before the fork.
_HEAVY = ("networkx", "numpy", "onnx", "rich", "torch", "yaml")


def main(words: Sequence[str] | None = None) -> None:
    """Judge a sample of mutants and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument(
        "tests", nargs="*", default=list(TESTS), help=f"tests to choose from (default: {' '.join(TESTS)})"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default 0)")
    parser.add_argument("--count", type=int, default=300, help="mutants in the sample (default 300)")
    parser.add_argument("--budget", type=float, default=20.0, metavar="S", help="CPU seconds a mutant (default 20)")
    parser.add_argument("--slowest", type=float, default=5.0, metavar="S", help="dearest test to choose (default 5)")
    parser.add_argument("--only", nargs="+", default=[""], metavar="PATH", help="judge only what lies here")
    parser.add_argument("--resume", action="store_true", help="keep verdicts of the last run")
    parser.add_argument("--survivors", action="store_true", help="keep them, and judge again what survived")
    parser.add_argument("--sample", type=Path, metavar="FILE", help="follow this sample of an earlier state: its keys")
    parser.add_argument("--results", type=Path, default=ROOT / "results", metavar="FOLDER")
    parser.add_argument("--page", type=Path, help="Markdown page to write", metavar="FILE")
    given = parser.parse_args(words)
    file = given.results / f"mutants-{given.seed}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    every = mutants_of(ROOT, ROOMS)
    if given.sample:
        keys = set(map(tuple, map(json.loads, given.sample.read_text("utf-8").splitlines())))
        sample = list({m.key: m for m in every if m.key in keys}.values())
    else:
        sample = random.Random(given.seed).sample(every, given.count)
    sample = [m for m in sample if m.file.startswith(tuple(given.only))]
    known = read(file) if given.resume or given.survivors else {}
    if given.survivors:
        known = {key: one for key, one in known.items() if one.is_dead}
    file.write_text("".join(one.to_json() for one in known.values()), encoding="utf-8")
    probes = Probes(ROOT, ROOMS)
    record = Record(given.results / "mutants-tests.jsonl", ROOT, probes)
    court = Court(ROOT, tuple(given.tests), probes, record, given.budget, given.slowest)
    _judge(court, [m for m in sample if m.key not in known], file)
    found = read(file)
    text = page([(m, found[m.key]) for m in sample if m.key in found], given.seed, equivalents())
    if given.page:
        given.page.write_text(text, encoding="utf-8")
    print(text)


def _judge(court: Court, mutants: Sequence[Mutant], file: Path) -> None:
    """Judge mutants in forks: first those in functions, in a process that has imported everything; then the others."""
    for name in _HEAVY:
        with suppress(ImportError):
            importlib.import_module(name)
    start, done = perf_counter(), [0]

    def found(mutant: Mutant, verdict: Verdict, tests: int) -> None:
        written(file, Judged(mutant.key, verdict, tests))
        done[0] += 1
        print(f"{done[0]}/{len(mutants)} {perf_counter() - start:.0f} s  {verdict.value} ({tests} tests): "
              f"{mutant.file}:{mutant.line} {mutant.what}", file=sys.stderr, flush=True)  # fmt: skip

    def warm() -> int:
        install(Sources(probes=court.probes))
        return pytest.main([*court.paths, "-q", *PLAIN], plugins=[Warm(court, mutants, found)])

    child = os.fork()
    if not child:
        os._exit(warm())
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit("the tests could not be collected, recorded or run; see above")
    court.record.read()
    judged = read(file)
    for mutant in mutants:
        if mutant.key not in judged:
            found(mutant, *judged_cold(court, mutant))


if __name__ == "__main__":
    main()
