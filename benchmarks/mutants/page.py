"""Verdicts as lines in a file and as a page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .changes import Mutant
from .judge import Verdict

Key = tuple[str, str, str, str]
_EQUIVALENT = Path(__file__).with_name("equivalent.jsonl")
_PAGE = """# Mutation run

`make mutants` writes this page. It puts {count} small faults into `backends`, `cost`, `passes` and `ir`, one at a
time, and runs the tests that execute the changed line. The faults are drawn at random (seed {seed}) from all that the
script knows: another operator or comparison, a constant one higher or lower, and a term, an argument, a condition or a
statement left out. A fault that no test notices has survived: no test checks that number. A fault that cannot change
any result is equivalent: `benchmarks/mutants/equivalent.jsonl` lists these with the reason.

Messages of errors, annotations, decorators, `assert` and `strict=` of `zip` are left as they are. Only tests of
those four packages and of `tests/properties` are asked, and none that takes over five seconds.

| package | mutants | killed | survived | equivalent |
| --- | --- | --- | --- | --- |
{rows}

## Survivors

{survivors}

## Equivalent

{equivalents}
"""


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of one mutant, and how many tests were chosen for it."""

    key: Key
    verdict: Verdict
    tests: int

    @property
    def is_dead(self) -> bool:
        """Whether a test noticed."""
        return self.verdict in (Verdict.KILLED, Verdict.TOO_LONG)

    def to_json(self) -> str:
        """Return one line."""
        return f"{json.dumps([*self.key, self.verdict.value, self.tests])}\n"


def written(file: Path, one: Judged) -> None:
    """Add a verdict to a file."""
    with file.open("a", encoding="utf-8") as out:
        out.write(one.to_json())


def read(file: Path) -> dict[Key, Judged]:
    """Return the verdicts in a file."""
    lines = map(json.loads, file.read_text("utf-8").splitlines()) if file.exists() else ()
    found = (Judged((a, b, c, d), Verdict(verdict), tests) for a, b, c, d, verdict, tests in lines)
    return {one.key: one for one in found}


def equivalents() -> dict[Key, str]:
    """Return why some mutants cannot change any result, as people have written it down."""
    lines = map(json.loads, _EQUIVALENT.read_text("utf-8").splitlines())
    return {(a, b, c, d): why for a, b, c, d, why in lines}


def page(judged: Sequence[tuple[Mutant, Judged]], seed: int, marked: Mapping[Key, str]) -> str:
    """Return the page of a run."""
    sorts = {mutant.key: _sort(one, marked) for mutant, one in judged}
    rooms = sorted({mutant.file.partition("/")[0] for mutant, _ in judged})
    rows = [_row(room, Counter(sorts[m.key] for m, _ in judged if m.file.startswith(f"{room}/"))) for room in rooms]
    rows.append(_row("all", Counter(sorts[m.key] for m, _ in judged)))
    survivors = [_item(m) for m, _ in judged if sorts[m.key] == "survived"]
    equivalent = [f"{_item(m)}: {marked[m.key]}" for m, _ in judged if sorts[m.key] == "equivalent"]
    lists = {"survivors": "\n".join(survivors) or "None.", "equivalents": "\n".join(equivalent) or "None."}
    return _PAGE.format(count=len(judged), seed=seed, rows="\n".join(rows), **lists)


def _sort(one: Judged, marked: Mapping[Key, str]) -> str:
    if one.is_dead:
        return "killed"
    return "equivalent" if one.key in marked else "survived"


def _row(room: str, counts: Counter[str]) -> str:
    total = sum(counts.values())
    shares = (counts["killed"], counts["survived"], counts["equivalent"])
    return f"| {room} | {total} | " + " | ".join(f"{n} ({n / total:.0%})" for n in shares) + " |"


def _item(mutant: Mutant) -> str:
    return f"- `{mutant.file}` `{mutant.function}`: `{mutant.text}`: `{mutant.what}`"
