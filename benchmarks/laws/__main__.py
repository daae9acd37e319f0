"""`python -m benchmarks.laws`: try every law on random plans, print or write the table; exit code 5 on a violation.

A long run goes in parts of different seeds, each of which leaves a file (`--keep`); `--of` makes one table of them.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from time import process_time

from slipstick.report.catalogue.catalogue import names_of

from ..markdown import table
from . import laws, money, structure
from .laws import BALANCED
from .run import Court, Tally

NO_LAWS = {**laws.NO_LAWS, **structure.NO_LAWS, **money.NO_LAWS}
_TEXT = """# Laws

Invariants that hold for every plan on every machine, checked on random plans over all models, systems, schedules,
precision recipes, offloads, servers and costs of the catalogue. `make laws` writes this page; a short run of it is a
test. Each machine gets one resource better at a time, by a factor of 1.1, 2 or 8.

{facts}

A law has no violation beyond {near:g}, the rounding of sums of some hundred numbers.

{laws}

## Comparisons that are not laws

These seem to hold and do not, for a reason of the machines or of what they run. The last column is the most that they
are off.

Stage 3 of ZeRO may need more than stage 2, by no more than its own shards of parameters: at worst all parameters of a
pipeline stage are gathered at once beside them, which is a law above. Sequence parallelism may need more memory for two
reasons alone: uneven layers that are balanced by cost may fall otherwise on the stages, interleaved or not, so that the
fullest one has a layer more; and `--recompute ops` keeps what reduce-scatters return but nothing of all-reduces.

{others}
"""


def main(words: Sequence[str] | None = None) -> int:
    """Try laws, and return 5 where one is broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.laws", description=__doc__)
    parser.add_argument("--plans", type=int, default=200_000, help="plans to try (default 200000)")
    parser.add_argument("--seconds", type=float, default=7200.0, help="at most so long (default 7200)")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (default 0)")
    parser.add_argument("--page", type=Path, help="Markdown page to write", metavar="FILE")
    parser.add_argument("--keep", type=Path, help="write what was counted as JSON", metavar="FILE")
    parser.add_argument("--of", type=Path, nargs="+", help="try nothing, join what runs kept", metavar="FILE")
    given = parser.parse_args(words)
    court = Court(names_of("models"), names_of("systems"), random.Random(given.seed))
    begin = process_time()
    if given.of:
        seeds, seconds = joined(court, given.of)
    else:
        court.run(given.plans, given.seconds)
        seeds, seconds = [given.seed], process_time() - begin
    if given.keep:
        given.keep.write_text(json.dumps(kept(court, seeds, seconds)), encoding="utf-8")
    text = page(court, seeds, seconds)
    if given.page:
        given.page.write_text(text, encoding="utf-8")
    else:
        print(text)
    broken = {law: tally for law, tally in court.tallies.items() if tally.violations and reason(law) is None}
    for law, tally in broken.items():
        print(
            f"broken: {law}: {tally.violations} of {tally.plans}, worst {tally.worst:.2e}: {tally.where}",
            file=sys.stderr,
        )
    return 5 if broken else 0


def reason(law: str) -> str | None:
    """Return why something is no law; None for a law."""
    return NO_LAWS.get(BALANCED if law.endswith(BALANCED) else law)


def kept(court: Court, seeds: Sequence[int], seconds: float) -> Mapping[str, object]:
    """Return what a run counted, as JSON can say it."""
    return {
        "seeds": list(seeds),
        "seconds": seconds,
        "plans": court.plans,
        "servers": court.servers,
        "seen": {name: sorted(values) for name, values in court.seen.items()},
        "tallies": {law: asdict(tally) for law, tally in court.tallies.items()},
    }


def joined(court: Court, files: Sequence[Path]) -> tuple[list[int], float]:
    """Add what runs kept to a court, and return their seeds and seconds of CPU."""
    seeds, seconds = list[int](), 0.0
    for file in files:
        told = json.loads(file.read_text(encoding="utf-8"))
        seeds += told["seeds"]
        seconds += told["seconds"]
        court.plans += told["plans"]
        court.servers += told["servers"]
        for name, values in told["seen"].items():
            court.seen.setdefault(name, set()).update(values)
        for law, words in told["tallies"].items():
            court.tallies.setdefault(law, Tally()).add(Tally(**words))
    return seeds, seconds


def page(court: Court, seeds: Sequence[int], seconds: float) -> str:
    """Return the page of what was tried."""
    seen = {name: len(values) for name, values in court.seen.items()}
    told = ", ".join(map(str, seeds))
    facts = (
        f"Seed {told}: {court.plans:,} plans of {seen['model']} models on {seen['system']} systems, "
        f"{seen['schedule']} schedules, {seen['precision'] - 1} recipes of low precision, {seen['workload']} phases; "
        f"{court.servers:,} servers and priced steps; {seconds / 60.0:.0f} minutes of CPU."
    )
    held = {law: tally for law, tally in sorted(court.tallies.items()) if reason(law) is None}
    others = {law: tally for law, tally in sorted(court.tallies.items()) if reason(law) is not None}
    return _TEXT.format(facts=facts, near=laws.NEAR, laws=_table(held), others=_others(others))


def _table(tallies: Mapping[str, Tally]) -> str:
    rows = [(law, f"{t.plans:,}", f"{t.violations:,}", f"{t.worst:.1e}" if t.violations else "-")
            for law, t in tallies.items()]  # fmt: skip
    return table(("law", "plans", "violations", "worst"), rows)


def _others(tallies: Mapping[str, Tally]) -> str:
    rows = [
        (law, str(reason(law)), f"{t.plans:,}", f"{t.violations:,}", f"{t.worst:.1%}") for law, t in tallies.items()
    ]
    return table(("seems a law", "why it is none", "plans", "exceptions", "worst"), rows)


if __name__ == "__main__":
    raise SystemExit(main())
