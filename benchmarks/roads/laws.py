"""Laws of roads: what each verb says of a plan beside what `estimate` says of the plan file that it writes."""

from __future__ import annotations

import contextlib
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slipstick.cli import run

from .draw import OWN, Draw

Numbers = Mapping[str, object]
QUIET = ("-q", "--format", "json")


@dataclass(frozen=True)
class Said:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def answered(self) -> bool:
        """Whether there is an answer, be it of a plan that does not fit."""
        return self.code in (0, 3) and bool(self.out.strip())


@dataclass
class Tally:
    """Cases of a law: asked, answered, and those in which two roads disagree."""

    asked: int = 0
    answered: int = 0
    wrong: list[str] = field(default_factory=list)


def said(*flags: str) -> Said:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(list(flags))
    return Said(code, out.getvalue(), err.getvalue())


def estimated(model: str, path: Path) -> Said:
    """Return the estimate of a plan file; the model is typed again where it is code."""
    own = [model] if model in OWN else []
    steps = [] if "phase: serve" in path.read_text(encoding="utf-8") else ["--allow-infeasible", "--no-sensitivity"]
    return said("estimate", *own, "--plan", str(path), *steps, *QUIET)


def differing(row: Numbers, other: Numbers) -> list[str]:
    """Return the numbers that both have and that are not the same."""
    return [k for k in row if k in other and not _same(row[k], other[k])]


def _same(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    return a == b


def planned(
    verb: str, row_of: Callable[[Mapping[str, object]], Numbers]
) -> Callable[[Sequence[str], Path], str | None]:
    """Return the check of a verb that writes the plan of its first row; `row_of` finds the row in its document."""

    def check(flags: Sequence[str], folder: Path) -> str | None:
        path = folder / "plan.yaml"
        path.unlink(missing_ok=True)
        first = said(verb, *flags, "--best-plan", str(path), *QUIET)
        if first.code == 70 or "Traceback" in first.err:
            return f"{verb} fails: {first.err.strip()[-300:]}"
        if not first.answered or not path.exists():
            why.append(f"{verb} {' '.join(flags)}: {first.err.strip()[-160:]}")
            return "" if first.code else f"no plan file: {first.err.strip()[-300:]}"
        again = estimated(flags[0], path)
        if not again.answered:
            return f"estimate refuses the plan: {again.err.strip()[-300:]}"
        row, metrics = row_of(json.loads(first.out)), json.loads(again.out)["metrics"]
        return _wrong(row, metrics)

    return check


def _wrong(row: Numbers, metrics: Numbers) -> str | None:
    names = differing(row, metrics)
    return "; ".join(f"{n} {row[n]} beside {metrics[n]}" for n in names[:4]) or None


def _best(document: Mapping[str, object]) -> Numbers:
    """The first of the best rows."""
    best = document["best"] if "best" in document else document["choices"]
    assert isinstance(best, list | dict)
    first = best[0] if isinstance(best, list) else best
    return {**first, **first.get("metrics", {})}


def searches(draw: Draw) -> Iterator[tuple[str, list[str]]]:
    """Yield questions for the verbs that write a plan, with the verb."""
    while True:
        yield "search", [*draw.plans(), "--no-ledger", "--no-why", "--top", "1"]
        yield "search", [*draw.servers(), "--no-ledger", "--no-why", "--top", "1"]
        yield "search", [*draw.plans(), "--no-ledger", "--no-why", "--top", "1"]
        yield "choose", [*draw.plans(), "--tokens", "1B"]
        yield "recompute", [*draw.training(), "--mbs", "1"]
        yield "size", draw.sizes()


why: list[str] = []
CHECKS = {verb: planned(verb, _best) for verb in ("search", "choose", "recompute", "size")}
