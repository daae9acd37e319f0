"""What no other plan beats: the goals, the plans by name, their numbers, and the cloud of all others behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from ...explore.goals import Goal
from ...explore.pareto import pareto
from ...ir.errors import UnknownNameError, UsageError
from ...ir.records import dataclass

Array = NDArray[np.float64]
# Points of a cloud that a picture shows.
MOST_POINTS = 3000


@dataclass(frozen=True, slots=True)
class Front:
    """Plans by name, and which of them no other beats in every goal.

    Attributes:
        goals: what they are ranked by; the first sorts, the first two are the axes of a picture, the third its colour.
        labels: what tells each row from the others: its degrees and policy, and its system where there are several.
        columns: numbers of each row by name, goals among them; SI units, nan where a row has none.
        is_best: the rows that no other beats.
        title: what was searched.
        cloud: goals of other plans that were evaluated, a sample of them: see `sampled`.
        num_evaluated: plans of which these are.
    """

    goals: tuple[Goal, ...]
    labels: Sequence[str]
    columns: Mapping[str, Array]
    is_best: NDArray[np.bool_]
    title: str = ""
    cloud: Mapping[str, Array] = field(default_factory=dict)
    num_evaluated: int = 0

    def __post_init__(self) -> None:
        """Refuse goals that are no columns, and columns of several lengths."""
        if not self.goals:
            raise UsageError("a front has a goal at least")
        for goal in self.goals:
            if goal.name not in self.columns:
                raise UnknownNameError.of("goal", goal.name, self.columns)
        lengths = {len(self.labels), len(self.is_best), *map(len, self.columns.values())}
        if len(lengths) > 1:
            raise UsageError(f"columns of a front are equally long, not of {', '.join(map(str, sorted(lengths)))} rows")

    @classmethod
    def of(
        cls,
        goals: Sequence[Goal],
        labels: Sequence[str],
        columns: Mapping[str, Array],
        title: str = "",
        cloud: Mapping[str, Array] | None = None,
        num_evaluated: int | None = None,
    ) -> Front:
        """Find the rows that no other of them beats.

        >>> two = [Goal("step_time_s"), Goal("mfu", -1.0)]
        >>> columns = {"step_time_s": np.array([1.0, 2.0, 3.0]), "mfu": np.array([0.2, 0.1, 0.4])}
        >>> Front.of(two, ["a", "b", "c"], columns).is_best.tolist()
        [True, False, True]
        """
        missing = [goal.name for goal in goals if goal.name not in columns]
        if missing or not goals:
            raise UnknownNameError.of("goal", missing[0] if missing else "", columns)
        best = pareto([goal.aim(columns[goal.name]) for goal in goals])
        num = len(labels) if num_evaluated is None else num_evaluated
        return cls(tuple(goals), labels, columns, best, title, {} if cloud is None else cloud, num)

    @property
    def order(self) -> NDArray[np.intp]:
        """All rows, the best by the first goal first, of equals the better by the next."""
        return np.lexsort([goal.aim(self.columns[goal.name]) for goal in reversed(self.goals)])

    @property
    def best(self) -> NDArray[np.intp]:
        """The rows that no other beats, in order."""
        order = self.order
        return order[self.is_best[order]]

    @property
    def others(self) -> Sequence[str]:
        """The columns that are no goal."""
        goals = {goal.name for goal in self.goals}
        return [name for name in self.columns if name not in goals]


def sampled(columns: Mapping[str, Array], most: int = MOST_POINTS, seed: int = 0) -> Mapping[str, Array]:
    """Return so many rows at most of equally long columns, picked at random and always the same.

    >>> sampled({"a": np.arange(10.0)}, 3)["a"].tolist() == sampled({"a": np.arange(10.0)}, 3)["a"].tolist()
    True
    """
    length = len(next(iter(columns.values()))) if columns else 0
    if length <= most:
        return columns
    rows = np.sort(np.random.default_rng(seed).choice(length, most, replace=False))
    return {name: column[rows] for name, column in columns.items()}
