"""`python -m benchmarks.grid`: answer a wide grid and keep it, or compare it with what other code answered.

To compare two checkouts, write in the older one and compare in the newer; exit code 5 where a plan that was answered is
refused or fits no longer. Numbers that moved are listed, and are no fault.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median

import slipstick

from .cases import ANSWERED, NO_FIT, REFUSED, Answer, answers

_SAID = {ANSWERED: "answered", NO_FIT: "does not fit", REFUSED: "refused"}
_CATALOGUE = {"models": "frontend/catalogue/*.json", "systems": "backends/systems/*.yaml"}
_GATE_FAILED = 5
# Relative change of a step or of memory that counts as one.
_SAME = 1e-9
Grid = Mapping[str, Answer]


def main() -> None:
    """Answer the grid, keep it where asked, and compare it where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grid", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FILE", help="keep the answers here (.json.gz)")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="compare with the answers that are here")
    parser.add_argument("--models", default="all", help="some of the catalogue, with commas")
    parser.add_argument("--systems", default="all", help="some of the catalogue, with commas")
    given = parser.parse_args()
    found = dict(answers(_named(given.models, "models"), _named(given.systems, "systems")))
    print(f"{len(found):,} estimates: {_counted(Counter(a.status for a in found.values()))}")
    if given.write is not None:
        given.write.parent.mkdir(parents=True, exist_ok=True)
        kept = {name: (a.status, a.step_s, a.mem_bytes) for name, a in found.items()}
        given.write.write_bytes(gzip.compress(json.dumps(kept).encode(), mtime=0))
    if given.compare is not None:
        kept = json.loads(gzip.decompress(given.compare.read_bytes()))
        before = {name: Answer(*one) for name, one in kept.items()}
        lost = list(_report(before, found))
        sys.exit(_GATE_FAILED if lost else 0)


def _named(words: str, what: str) -> list[str]:
    """Return names that are given, or all of the catalogue."""
    if words != "all":
        return words.split(",")
    found = Path(slipstick.__file__).parent.glob(_CATALOGUE[what])
    return sorted(path.stem for path in found if path.stem != "index")


def _counted(statuses: Mapping[int, int]) -> str:
    return ", ".join(f"{statuses.get(status, 0):,} {said}" for status, said in _SAID.items())


def _report(before: Grid, after: Grid) -> Iterator[str]:
    """Print what became of the plans that both have; yield those that were answered and are not."""
    moves = Counter((before[n].status, after[n].status) for n in before if n in after)
    for (was, now), count in sorted(moves.items()):
        print(f"  {_SAID[was]} -> {_SAID[now]}: {count:,}")
    shared = [n for n in before if n in after and before[n].status == after[n].status != REFUSED]
    numbers: Mapping[str, Callable[[Answer], float]] = {"step": lambda a: a.step_s, "memory": lambda a: a.mem_bytes}
    for what, number in numbers.items():
        changed = {n: number(after[n]) / number(before[n]) - 1.0 for n in shared}
        _listed(what, {n: c for n, c in changed.items() if abs(c) > _SAME}, len(shared))
    for name in before:
        if name in after and before[name].status == ANSWERED != after[name].status:
            print(f"LOST {name}: {_SAID[after[name].status]}")
            yield name


def _listed(what: str, changed: Mapping[str, float], total: int) -> None:
    """Print how many numbers moved and how far, by kind of plan, and the two that moved most."""
    print(f"{what}: {len(changed):,} of {total:,} changed")
    kinds = defaultdict(list)
    for name, change in changed.items():
        kinds[_kind(name)].append(change)
    for kind, some in sorted(kinds.items()):
        print(f"  {kind}: {len(some):,}, median {median(some):+.2%}, from {min(some):+.2%} to {max(some):+.2%}")
    for name in sorted(changed, key=lambda n: -abs(changed[n]))[:2]:
        print(f"  most: {name}: {changed[name]:+.2%}")


def _kind(name: str) -> str:
    """Return the kind of plan in a name: what stands between the model and the system."""
    words = name.split()
    return " ".join(words[1:3]) if words[1] == "train" else words[1]


if __name__ == "__main__":
    main()
