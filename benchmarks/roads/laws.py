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


def questions(draw: Draw) -> Iterator[tuple[str, list[str]]]:
    """Yield questions without end, each with its law."""
    while True:
        yield "search", [*draw.plans(), "--no-ledger", "--no-why", "--top", "1"]
        yield "search", [*draw.servers(), "--no-ledger", "--no-why", "--top", "1"]
        yield "search", [*draw.plans(), "--no-ledger", "--no-why", "--top", "1"]
        yield "choose", [*draw.plans(), "--tokens", "1B"]
        yield "recompute", [*draw.training(), "--mbs", "1"]
        yield "size", draw.sizes()
        yield "python", draw.step()
        yield "one degree", draw.of_one_rank()


def one_degree(flags: Sequence[str], _: Path) -> str | None:
    """Check that words of an axis of one rank change nothing: plans and sp of tp, methods of cp, schedules of pp."""
    first = said("estimate", *flags, *STEP)
    if not first.answered:
        return ""
    metrics = json.loads(first.out)["metrics"]
    for words in _IDLE:
        other = said("estimate", *flags, *words, *STEP)
        if not other.answered:
            return f"{' '.join(words)} refused: {other.err.strip()[-300:]}"
        if wrong := _wrong(metrics, json.loads(other.out)["metrics"]):
            return f"{' '.join(words)}: {wrong}"
    return None


STEP = ("--allow-infeasible", "--no-sensitivity", *QUIET)
_IDLE = (
    *(["--tp-plan", name] for name in ("dtensor", "dtensor-naive", "auto", "hf")),
    ["--sp"],
    ["--cp-method", "ring"],
    ["--schedule", "gpipe"],
    ["--etp", "1"],
)


def same_in_python(flags: Sequence[str], _: Path) -> str | None:
    """Check that a call of Python says what the command line says, and the screen what the document says."""
    import slipstick
    from slipstick.ir.errors import SlipstickError

    first = said("estimate", *flags, *STEP)
    try:
        words = words_of(flags[1:])
        answer = slipstick.estimate(flags[0], str(words.pop("system")), **words)  # type: ignore[arg-type]
    except SlipstickError as error:
        same = str(error).split("\n")[0][:60] in first.err
        return "" if not first.answered and same else f"Python refuses: {error}; the command line: {first.err[-200:]}"
    if not first.answered:
        return f"Python answers, and the command line says {first.err.strip()[-300:]}"
    document = json.loads(first.out)
    if json.loads(json.dumps(answer.to_dict())) != document:
        return f"documents differ in {[k for k, v in document.items() if answer.to_dict().get(k) != v]}"
    screen = said("estimate", *flags, "--allow-infeasible", "--no-sensitivity", "-q")
    lost = [figure for figure in figures(document) if figure not in screen.out]
    return f"the screen lacks {', '.join(lost)}" if lost else None


def words_of(flags: Sequence[str]) -> dict[str, object]:
    """Return flags as words of a call of Python.

    >>> words_of(["--tp", "8", "--no-sp", "--set", "a=1"])
    {'tp': '8', 'sp': False, 'set': ['a=1']}
    """
    found: dict[str, object] = {}
    for flag, value in zip(flags, (*flags[1:], "--"), strict=True):
        name = flag.removeprefix("--").replace("-", "_")
        if flag == "--set":
            found.setdefault("set", []).append(value)  # type: ignore[attr-defined]
        elif flag.startswith("--"):
            found |= {name.removeprefix("no_"): not name.startswith("no_")} if value.startswith("--") else {name: value}
    return found


def figures(document: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Yield what a screen shows of a document: headline, memory, and where most of the time goes."""
    from slipstick.driver.metrics import format_metric
    from slipstick.ir.units import format_bytes, format_time

    metrics = document["metrics"]
    shown = ("step_time_s", "mfu", "tokens_per_s_per_gpu", "samples_per_s_per_gpu", "peak_mem_bytes")
    yield from (format_metric(name, metrics[name]) for name in shown if name in metrics)
    yield from (format_bytes(held) for name, held in document["memory"].items() if held and name != "capacity")
    yield from (format_time(s) for s in document["breakdown"].values() if s > 0.05 * metrics["step_time_s"])


CHECKS: Mapping[str, Callable[[Sequence[str], Path], str | None]] = {
    **{verb: planned(verb, _best) for verb in ("search", "choose", "recompute", "size")},
    "one degree": one_degree,
    "python": same_in_python,
}
