"""Spaces of chip designs, gathered and ranked: as rows and JSON here, as a table for people in `designs_table`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from ...explore.designs.designs import Designs, column_of
from ...explore.goals import Goal
from ...explore.pareto import pareto
from ...ir.errors import InfeasibleError, UnknownNameError, UsageError
from ...ir.records import dataclass
from ...ir.text.json_text import json_text
from ...ir.units import format_bytes

SCHEMA = "slipstick/designs/1"
Array = NDArray[np.float64]
Cell = str | int | float | bool | None
WORDS = ("node", "num_dies", "unit", "memory", "link", "joint", "d2d", "join", "cooling")


def design_goals(text: str | None, timed: bool) -> tuple[Goal, ...]:
    """Read what designs are ranked by, the first sorts; less is better without a +, of metrics too.

    UsageError where nothing is named, or something twice.

    >>> design_goals("usd_per_mtok,+mfu", True)
    (Goal(name='usd_per_mtok', sign=1.0), Goal(name='mfu', sign=-1.0))
    """
    usual = "usd_per_step,step_time_s" if timed else "+fp16_flops_per_usd,+hbm_bytes_per_usd"
    words = [word.strip() for word in (usual if text is None else text).split(",") if word.strip()]
    goals = tuple(Goal(word.lstrip("+-").strip(), -1.0 if word.startswith("+") else 1.0) for word in words)
    names = {goal.name for goal in goals}
    if not all(names) or not names or len(names) < len(goals):
        raise UsageError(f"--objective '{text}': one column or more, each once, with a + where more is better")
    return goals


def goals_text(goals: Sequence[Goal]) -> str:
    """Return the goals of designs as they are typed."""
    return ",".join(f"{'+' if goal.sign < 0 else ''}{goal.name}" for goal in goals)


@dataclass(frozen=True, slots=True)
class Ranking:
    """All designs of a space as one table.

    Attributes:
        goals: by which they are ranked.
        words: what is a word or a count, by name.
        columns: what is a number, by name; nan where a design has none.
        reason: why a design cannot be built, 0 where it can: see `explore/designs/reasons.py`.
        legal: which can be built and hold what the plan needs.
        best: which of these no other beats in every goal.
        order: the legal ones, the best by the first goal first.
        unpriced: what is missing in the money of all, with what to add.
    """

    goals: tuple[Goal, ...]
    words: Mapping[str, Sequence[str | int]]
    columns: Mapping[str, Array]
    reason: Array
    legal: NDArray[np.bool_]
    best: NDArray[np.bool_]
    order: NDArray[np.intp]
    unpriced: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, found: Sequence[Designs], goals: tuple[Goal, ...], advice: Callable[[int], str] | None = None
    ) -> Ranking:
        """Gather and rank designs; `advice` says of one, by its place, how its memory would do for the plan.

        Raises:
            UsageError: none of them can be built.
            InfeasibleError: none of them holds what the plan needs.
            UnknownNameError: a goal that is no column.
        """
        reason = np.concatenate([d.reason for d in found])
        names = dict.fromkeys(name for designs in found for name in designs.columns)
        columns = {name: np.concatenate([column_of(d, name) for d in found]) for name in names}
        legal = _legal(columns, reason, advice)
        for goal in goals:
            if goal.name not in columns:
                raise UnknownNameError.of("objective", goal.name, columns)
        aims = [np.where(legal, columns[goal.name] * goal.sign, np.inf) for goal in goals]
        # Of equals by the first goal, the better by the next.
        order = np.lexsort(aims[::-1])[: int(legal.sum())]
        unpriced = tuple(dict.fromkeys(line for designs in found for line in designs.unpriced))
        return cls(goals, _words(found), columns, reason, legal, pareto(aims), order, unpriced)

    @property
    def without(self) -> tuple[str, ...]:
        """Name what the sums have no price of; carbon aside."""
        names = dict.fromkeys(line.partition(":")[0] for line in self.unpriced)
        return tuple(name for name in names if not name.startswith("carbon"))

    def chosen(self, only_best: bool, top: int | None) -> NDArray[np.intp]:
        """Return the rows that are shown: all legal ones, or those that no other beats; the first of them."""
        rows = self.order[self.best[self.order]] if only_best else self.order
        return rows[:top]


def _legal(columns: Mapping[str, Array], reason: Array, advice: Callable[[int], str] | None) -> NDArray[np.bool_]:
    built = np.equal(reason, 0)
    if not built.any():
        raise UsageError(f"none of {len(reason):,} designs can be built")
    if "fits" not in columns:
        return built
    legal = built & np.greater(columns["fits"], 0)
    if not legal.any():
        needed, largest = np.nanmin(columns["peak_mem_bytes"]), np.nanmax(columns["hbm_bytes"])
        num = int(built.sum())
        step = "" if advice is None else f". {advice(int(np.nanargmax(columns['hbm_bytes'])))}"
        raise InfeasibleError(
            f"{'the design has not' if num == 1 else f'none of {num:,} designs has'} the memory that the plan needs: "
            f"{format_bytes(float(needed))} of a GPU, and the largest has {format_bytes(float(largest))}{step}"
        )
    return legal


def _words(found: Sequence[Designs]) -> dict[str, list[str | int]]:
    words: dict[str, list[str | int]] = {name: [] for name in WORDS}
    for designs in found:
        form = asdict(designs.form)
        for name in WORDS:
            words[name] += [form[name]] * len(designs.reason)
    return words


def designs_rows(ranking: Ranking, rows: NDArray[np.intp]) -> list[dict[str, Cell]]:
    """Return rows with every column of them; what is no number is None."""
    names = [*ranking.words, *ranking.columns, "pareto"]
    words = [[column[k] for k in rows] for column in ranking.words.values()]
    numbers = [_plain(name, column[rows]) for name, column in ranking.columns.items()]
    whole = zip(*words, *numbers, ranking.best[rows].tolist(), strict=True)
    return [dict(zip(names, cells, strict=True)) for cells in whole]


def designs_json(ranking: Ranking, rows: NDArray[np.intp], more: Mapping[str, object] | None = None) -> str:
    """Return rows as a JSON document: goals, how many designs there were, and every column of each row.

    `more` is what else it says of all designs.
    """
    document: dict[str, object] = {
        "schema": SCHEMA,
        "objective": goals_text(ranking.goals),
        "num_designs": len(ranking.reason),
        "num_built": int((ranking.reason == 0).sum()),
        "num_legal": int(ranking.legal.sum()),
        "standing": "at least" if ranking.without else "firm",
        "unpriced": list(ranking.unpriced),
        **(more or {}),
        "designs": designs_rows(ranking, rows),
    }
    return json_text(document, indent=2)


def _plain(name: str, column: Array) -> list[Cell]:
    if name == "fits":
        return [value > 0 for value in column.tolist()]
    return [value if math.isfinite(value) else None for value in column.tolist()]
