"""What was found to be the cause of large errors: by data set and id, from a file of the package."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Cause:
    """Rows of a data set, by a pattern of their ids, and why they are far off."""

    dataset: str
    ids: str
    cause: str


def causes() -> tuple[Cause, ...]:
    """Read `causes.csv`, in the order in which patterns are tried."""
    package = __name__.rpartition(".")[0]
    lines = files(package).joinpath("causes.csv").read_text(encoding="utf-8").splitlines()
    return tuple(Cause(row["dataset"], row["ids"], row["cause"]) for row in csv.DictReader(lines))


def cause_of(dataset: str, row_id: str, known: Sequence[Cause]) -> str:
    """Return the cause of the first pattern that a row meets, empty where none is known.

    >>> cause_of("a", "run_12", [Cause("a", "run_1*", "a slow disk")])
    'a slow disk'
    """
    found = (one.cause for one in known if one.dataset == dataset and fnmatchcase(row_id, one.ids))
    return next(found, "")
