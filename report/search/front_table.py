"""The plans that no other beats as a table for people, and with all their numbers as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...explore.goals import Goal
from ...ir.text.json_text import json_text
from ..columns import in_columns
from ..readable import shown_column
from .front import Front

SCHEMA = "slipstick/front/1"


def front_table(front: Front, width: int | None = None, columns: Sequence[str] = (), most: int | None = None) -> str:
    """Return the front as a table, the best by the first goal on top.

    Args:
        front: plans and goals.
        width: columns of the screen; None for no limit.
        columns: numbers to show behind the goals, by name.
        most: rows to show; None for all.
    """
    rows = front.best[:most]
    shown = [*front.goals, *(Goal(name) for name in columns if name in front.columns and name in front.others)]
    cells = [shown_column(front.columns[goal.name][rows].tolist(), goal.unit) for goal in shown]
    heads = [_head(goal) if goal in front.goals else goal.label for goal in shown]
    numbers = [_right([head, *column]) for head, column in zip(heads, cells, strict=True)]
    ranks = _right(["", *(str(n) for n in range(1, len(rows) + 1))])
    table = list(zip(ranks, *numbers, ["plan", *(front.labels[k] for k in rows)], strict=True))
    return "\n".join([in_columns(table, width), _note(front, len(rows))])


def _head(goal: Goal) -> str:
    return f"{goal.label} ({goal.better})"


def _right(cells: Sequence[str]) -> list[str]:
    width = max(map(len, cells))
    return [cell.rjust(width) for cell in cells]


def _note(front: Front, num_shown: int) -> str:
    num, goals = int(front.is_best.sum()), " and ".join(map(_head, front.goals))
    rest = f", {num_shown:,} of them here" if num_shown < num else ""
    whole = f" of {front.num_evaluated:,}" if front.num_evaluated else ""
    return f"{num:,} plan{'' if num == 1 else 's'}{whole}, Pareto-optimal in {goals}{rest}"


def front_json(front: Front) -> str:
    """Return all rows as JSON: goals, and of each row its label, its numbers in SI units, and whether none beats it."""
    names = list(front.columns)
    values = np.stack([front.columns[name] for name in names], axis=1) if names else np.zeros((0, 0))
    points = [
        {"plan": front.labels[k], "pareto": bool(front.is_best[k]), **dict(zip(names, _plain(values[k]), strict=True))}
        for k in front.order
    ]
    document = {
        "schema": SCHEMA,
        "title": front.title,
        "goals": [{"name": g.name, "label": g.label, "unit": g.unit, "better": g.better} for g in front.goals],
        "num_evaluated": front.num_evaluated,
        "num_pareto": int(front.is_best.sum()),
        "points": points,
    }
    return json_text(document, indent=2)


def _plain(row: np.ndarray) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in row.tolist()]
