"""`python -m benchmarks.frozen`: write down what slipstick answers, or compare it with what was written."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import process_time

from .answers import answered, changes, read, write
from .cases import commands
from .plans import PLANS, planned


def main() -> None:
    """Write or compare all answers; exit code 5 where one changed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frozen", description=__doc__)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--write", type=Path, metavar="DIR", help="write all answers here")
    kind.add_argument("--compare", type=Path, metavar="DIR", help="compare all answers with those that are here")
    parser.add_argument("--only", default="", metavar="TEXT", help="only commands with this text in them")
    given = parser.parse_args()
    started = process_time()
    found = _answers([line for line in commands() if given.only in line], PLANS if not given.only else {})
    print(f"{len(found)} answers, {process_time() - started:.0f} s of CPU", file=sys.stderr)
    if given.write is not None:
        write(found, given.write)
        return
    kept = {key: text for key, text in read(given.compare).items() if not given.only or key in found}
    told = list(changes(kept, found))
    print("\n".join(told))
    sys.exit(5 if told else 0)


def _answers(lines: Iterable[str], plans: Mapping[str, Callable[[], object]]) -> dict[str, str]:
    """Answer all commands and make all plans."""
    return {line: answered(line) for line in lines} | {name: planned(make) for name, make in plans.items()}


if __name__ == "__main__":
    main()
