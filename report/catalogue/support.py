"""What is measured of models, chips, software and precisions, as a table and as JSON; failures are kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from ...driver.uncertainty.evidence import RUNS, Backed, backed, silicon_named, software_of
from ...ir.records import dataclass
from ...ir.text.json_text import json_text
from ..columns import in_columns

_HEADING = ["of", "model", "chip", "software", "precision", "rows", "judged", "median", "p90", "failed", "because"]
# Characters of a reason that a table has room for.
_MOST_TOLD = 70


@dataclass(frozen=True, slots=True)
class Support:
    """What is measured, of all that have each of some words in their line."""

    words: tuple[str, ...]
    lines: tuple[Backed, ...]

    def json(self) -> str:
        """Return each line as a record: errors as fractions."""
        return json_text({"words": list(self.words), "support": [asdict(one) for one in self.lines]}, indent=1)

    def text(self, columns: int | None = None) -> str:
        """Return whole runs, then kernels, a line each; where there is nothing, what else stands for it."""
        runs = [_row(one) for one in self.lines if one.table in RUNS]
        kernels = [_row(one) for one in self.lines if one.table not in RUNS]
        tables = [in_columns([_HEADING, *rows], columns) for rows in (runs, kernels) if rows]
        head = _head(self.lines)
        return "\n\n".join([head, *tables, *(() if runs else [_instead(self.words)])])


def support(words: Sequence[str] = ()) -> Support:
    """Return the lines in which each word occurs, whatever its case: of model, chip, software, precision, quantity."""
    wanted = [word.lower() for word in words]
    found = (one for one in backed() if all(word in _searched(one) for word in wanted))
    return Support(tuple(words), tuple(found))


def _searched(one: Backed) -> str:
    words = (one.table, one.quantity, one.model, one.chip, one.software, one.precision)
    return "\n".join(words).lower()


def _head(lines: Iterable[Backed]) -> str:
    of = [one for one in lines if one.table in RUNS]
    rows, judged = sum(one.rows for one in of), sum(one.judged for one in of)
    chips, software = {one.chip for one in of if one.rows}, {one.software for one in of if one.rows}
    return (
        f"{rows:,} measured quantities of whole runs, {judged:,} of them in no fit, on {len(chips - {''})} chips by "
        f"{len(software)} stacks and engines; {sum(one.failed for one in of):,} without a prediction"
    )


def _row(one: Backed) -> list[str]:
    errors = [f"{one.median:.1%}", f"{one.p90:.0%}"] if one.rows else ["-", "-"]
    why = one.why if len(one.why) <= _MOST_TOLD else f"{one.why[: _MOST_TOLD - 3]}..."
    names = [one.model or "-", one.chip or "-", one.software or "-", one.precision or "-"]
    return [one.quantity, *names, str(one.rows), str(one.judged), *errors, str(one.failed or "-"), why]


def _instead(words: Sequence[str]) -> str:
    """Say what stands for what nobody has measured: chips and software that the words name exactly."""
    known = {one.chip for one in backed()}
    chips = [chip for chip in known if chip.lower() in {word.lower() for word in words}]
    told = [f"{chip}: measurements of {silicon_named(chip)}" for chip in sorted(chips)]
    told += [f"{word} on {chip}: {software_of(word, chip)}" for chip in sorted(chips) for word in words if word != chip]
    return "; ".join(["no whole run is measured of all these words", *told])
