"""Outcomes into the table of accuracies that comes with the package: see `report/accuracy.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...report.accuracy import ANY, Key, RowAccuracy, keys_of, written
from ..rows.rows import NotJudged
from ..rows.words import system_of
from .outcomes import Outcome, Part
from .statistics import Accuracy as Errors


def accuracy_csv(outcomes: Sequence[Outcome], chip_of: Callable[[str], str]) -> str:
    """Return a line for each kind, library and chip, and for all of each; of the rows that judge alone.

    Args:
        outcomes: of any tables.
        chip_of: the name of the chip of a system of the catalogue.
    """
    errors: dict[Key, list[float]] = {}
    for outcome in outcomes:
        if outcome.part is Part.JUDGED and outcome.has_error:
            for key in _keys(outcome, chip_of):
                errors.setdefault(key, []).append(outcome.error)
    return written(_line(key, found) for key, found in errors.items())


def _keys(outcome: Outcome, chip_of: Callable[[str], str]) -> Iterator[Key]:
    """Every line once; rows of a machine that the catalogue lacks count among all chips."""
    system = outcome.system or _system(outcome)
    chip = chip_of(system) if system else ANY
    yield from dict.fromkeys(keys_of(outcome.table, chip, outcome.library or ANY, outcome.kind or ANY))


def _system(outcome: Outcome) -> str:
    """The system of a row that was judged without one, by the accelerator that it names; empty where none is known."""
    try:
        return system_of(outcome.row)
    except NotJudged:
        return ""


def _line(key: Key, errors: Sequence[float]) -> RowAccuracy:
    found = Errors.of(errors)
    return RowAccuracy(*key, found.num, found.median, found.p90)
