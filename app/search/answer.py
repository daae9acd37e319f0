"""Write the files beside the answer of a search: the best plan and the front."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...explore.best import Columns
    from ...report.search.answer import SearchAnswer
    from ...report.search.front import Front


def best_plan_text(answer: SearchAnswer) -> str:
    """Return the best row as a file that `estimate --plan` takes."""
    from ...report.search.plans import PlanRows
    from ...report.search.servers import ServerRows
    from ..plans.text import command_file_text, plan_file_text

    top, rows = answer.best.top, answer.rows
    if isinstance(rows, PlanRows):
        return plan_file_text(rows.job.plan_of(top, 0), rows.around(top, 0))
    assert isinstance(rows, ServerRows)
    return command_file_text(shlex.split(rows.command(top, 0))[2:])


def front_text(front: Front, path: str) -> str:
    """Return a front in the form that the ending of its file says."""
    from ...report.search.front_html import front_html
    from ...report.search.front_svg import front_svg
    from ...report.search.front_table import front_json, front_table

    if path.endswith(".svg"):
        return front_svg(front)
    if path.endswith(".html"):
        return front_html(front)
    return front_json(front) if path.endswith(".json") else front_table(front)


def front_of(answer: SearchAnswer) -> Front:
    """Return the front of a search, before a cloud of other plans."""
    from ...report.search.answer import num_rows
    from ...report.search.front import Front

    rows, cloud = answer.best.front, answer.best.cloud
    labels = [answer.whole_label(rows, at) for at in range(num_rows(rows))]
    goals = answer.rows.goals
    behind = ~np.isin(_places(cloud), _places(rows))
    return Front.of(
        goals,
        labels,
        {name: rows[name] for name in answer.rows.metrics},
        answer.model,
        {goal.name: cloud[goal.name][behind] for goal in goals},
        answer.tally.num_kept,
    )


def _places(rows: Columns) -> NDArray[np.float64]:
    """Where each row came from, as one number."""
    from ...explore.best import BLOCK, ROW

    return rows[BLOCK] * 2.0**20 + rows[ROW]
