"""`python -m benchmarks.robustness [PART...]`: kill, damage, lose; a row each, exit code 1 where one is wrong.

`--keep` leaves rows as JSON; `--page` writes the page of these and of what `python -m benchmarks.fuzz --keep` left.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from ..fuzz.judge import Depth
from ..markdown import table
from . import attacks, clients, kills, ledgers, nodes
from .search import Row

_Part = Callable[[Path, int, random.Random], Sequence[Row]]
# How many the page tells of, and what does them.
PARTS: Mapping[str, tuple[int, _Part]] = {
    "drivers": (30, lambda folder, number, draw: [kills.of_drivers(folder, number, draw)]),
    "workers": (30, lambda folder, number, draw: [kills.of_workers(folder, number, draw)]),
    "ledgers": (1000, lambda folder, number, draw: [ledgers.of_ledgers(folder, number, draw)]),
    "nodes": (10, lambda folder, number, draw: [nodes.of_nodes(folder, number, draw)]),
    "clusters": (2, nodes.of_clusters),
    "heads": (2, nodes.of_heads),
    "attacks": (len(attacks.ATTACKS), attacks.of_attacks),
    "clients": (100, lambda folder, number, draw: [clients.of_clients(number, 60.0 if number >= 100 else 2.0)]),
}
_TEXT = """# Robustness

Results of tests that try to break Slipstick. `make fuzz` and `make robustness` write this page; short runs of both are
part of the test suite. [What is read, and how much](files.md) has the limits, [SECURITY.md](../SECURITY.md) what is
trusted.

## Hostile files

Small files of each format with one to five changes: values of other seeds of the format or of its schema, numbers
scaled, keys left out; and values that are none, too large or of another kind, parts taken out, doubled or moved, bytes
changed. Each goes through the command line, and is a fault where that ends in a traceback, in `SystemExit` or with
another exit code than 0, 2, 3, 4 or 5, takes more than 20 s of CPU or 2 GB, runs code that nobody typed, or prints JSON
with numbers that are none. A refusal has a message and exit code 2 or 4, and is *at the door* where a parser raised it
first, which its traceback says. *Deep* are files that were answered, or refused after the graph that they are priced on
was built and admitted, which the stage of `driver.lower` says; formats that are priced on no graph count where they
were answered. Twenty files go through one process, a fork of one that has loaded everything, under limits of CPU
seconds, of memory for data and of time by the clock: what its judge cannot interrupt ends it, and is a fault. Faults
are counted as they were found; each is mended since, with a test. 102,823 files that were told apart otherwise had
found 10.

{hostile}

## Processes, machines, disks, clients

{rows}
"""


def main(words: Sequence[str] | None = None) -> int:
    """Run parts, print their rows, and return 1 where something was lost or wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.robustness", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--count", type=int, help="of each part (default: those of the page)")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (%(default)s)")
    parser.add_argument("--keep", type=Path, metavar="DIR", default=Path("results/robustness"), help="(%(default)s)")
    parser.add_argument("--page", type=Path, metavar="FILE", help="run nothing, write the page of what was kept")
    parser.add_argument("--fuzz", type=Path, metavar="DIR", default=Path("results/fuzz"), help="(%(default)s)")
    given = parser.parse_args(words)
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; of {', '.join(PARTS)}")
    if given.page:
        given.page.write_text(page(given.fuzz, given.keep), encoding="utf-8")
        return 0
    wrong = 0
    for name in given.parts or PARTS:
        number, part = PARTS[name]
        with tempfile.TemporaryDirectory() as folder:
            rows = part(Path(folder), given.count or number, random.Random(given.seed))
        given.keep.mkdir(parents=True, exist_ok=True)
        (given.keep / f"{name}.json").write_text(json.dumps([asdict(row) for row in rows]), encoding="utf-8")
        print(_rows(rows), flush=True)
        wrong += sum(row.wrong for row in rows)
    return 1 if wrong else 0


def page(fuzz: Path, kept: Path) -> str:
    """Return the page of what was kept."""
    told: dict[str, list[int]] = {}
    for file in sorted(fuzz.glob("*.json")):
        one = json.loads(file.read_text(encoding="utf-8"))
        counts = told.setdefault(one["format"], [0] * (len(Depth) + 2))
        for at, number in enumerate((one["tried"], *(one[depth] for depth in Depth), sum(one["faults"].values()))):
            counts[at] += number
    told = dict(sorted(told.items()))
    told["all"] = [sum(column) for column in zip(*told.values(), strict=True)]
    lines = [
        (name, *(f"{number:,}" for number in (tried, *depths)), f"{depths[-1] / max(tried, 1):.0%}", f"{faults:,}")
        for name, (tried, *depths, faults) in told.items()
    ]
    hostile = table(("format", "tried", *Depth, "share of deep", "faults"), lines)
    rows = [Row(**row) for name in PARTS if (kept / f"{name}.json").exists()
            for row in json.loads((kept / f"{name}.json").read_text(encoding="utf-8"))]  # fmt: skip
    return _TEXT.format(hostile=hostile, rows=_rows(rows))


def _rows(rows: Sequence[Row]) -> str:
    return table(
        ("what", "tried", "lost or wrong", "how"), [(r.what, f"{r.tried:,}", f"{r.wrong:,}", r.how) for r in rows]
    )


if __name__ == "__main__":
    sys.exit(main())
