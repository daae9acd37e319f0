"""`python -m benchmarks.roads`: ask random questions on every road; exit code 5 where two of them disagree."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from unittest.mock import patch

from .draw import Draw
from .laws import CHECKS, Tally, questions


@contextmanager
def recorded_once() -> Iterator[None]:
    """Keep every model that is loaded: a module of one's own is recorded at each call otherwise."""
    from slipstick import frontend

    load, kept = frontend.load, dict[str, object]()

    def once(*given: object, **words: object) -> object:
        key = repr((given[:3], given[5:], sorted(words.items(), key=lambda pair: pair[0])))
        if key not in kept:
            kept[key] = load(*given, **words)  # type: ignore[arg-type]
        return kept[key]

    with patch.object(frontend, "load", once):
        yield


def main(words: Sequence[str] | None = None) -> int:
    """Ask, and print a line a law and the disagreements."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.roads", description=__doc__)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--law", choices=sorted(CHECKS), action="append", help="only these laws (default: all)")
    parser.add_argument("--seconds", type=float, default=3600.0)
    given = parser.parse_args(words)
    tallies = {law: Tally() for law in given.law or CHECKS}
    with recorded_once(), TemporaryDirectory() as folder:
        asked = ((law, flags) for law, flags in questions(Draw(given.seed)) if law in tallies)
        for law, flags in islice(asked, given.cases):
            if process_time() > given.seconds:
                break
            tally, wrong = tallies[law], CHECKS[law](flags, Path(folder))
            tally.asked += 1
            tally.answered += wrong != ""
            if wrong:
                tally.wrong.append(wrong)
                print(f"{law} {' '.join(flags)}\n    {wrong}", file=sys.stderr, flush=True)

    for law, tally in tallies.items():
        print(f"{law}: {tally.asked} asked, {tally.answered} answered, {len(tally.wrong)} disagree")
    return 5 if any(tally.wrong for tally in tallies.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
