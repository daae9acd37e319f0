"""What numbers of stacks were fitted to, by the records that stand beside the numbers."""

from __future__ import annotations

from ....ir.records import dataclass
from ..files.catalogue import lineage
from ..files.section import section_of
from .stack_schema import FitSection


@dataclass(frozen=True, slots=True)
class FitRecord:
    """One fit.

    Attributes:
        stack: whose numbers it moved.
        data_sets: whose rows moved them.
        split: `half` of their configurations, or `all`.
        num_fitted: rows that were fitted.
        median: their median error.
        num_judged: the other rows of the same data sets.
        judged_median: their median error, None where there are none.
    """

    stack: str
    data_sets: tuple[str, ...]
    split: str
    num_fitted: int
    median: float
    num_judged: int = 0
    judged_median: float | None = None


def fit_records(stack: str) -> tuple[FitRecord, ...]:
    """Return the fits behind the numbers of a stack, its own and those of the stacks that it is like, nearest first.

    None where all of them were set by people; what a file leaves free is one thing, and that it was fitted another.
    SystemFileError for a record that cannot be read.
    """
    found = []
    for file in lineage(stack):
        tree = file.tree.get("fit")
        if isinstance(tree, dict) and "fitted" in tree:
            found.append(_record(file.name, section_of(FitSection, tree, f"fit of stack '{file.name}'")))
    return tuple(found)


def _record(stack: str, fit: FitSection) -> FitRecord:
    fitted, judged = fit.fitted or {}, fit.judged or {}
    return FitRecord(
        stack,
        fit.data_sets,
        fit.split,
        int(fitted.get("rows", 0)),
        fitted.get("median", 0.0),
        int(judged.get("rows", 0)),
        judged.get("median"),
    )
