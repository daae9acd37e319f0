"""What a search found, to where the user wants it: the table, the best plan as a file, the front as a picture."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import numpy as np

from ...ir.errors import InfeasibleError, UsageError
from ..output.files import columns, write_text
from .flags import Wanted
from .progress import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...explore.best import Columns
    from ...report.search.answer import SearchAnswer
    from ...report.search.front import Front

_FRONTS = (".svg", ".html", ".json", ".txt")


def write_answer(answer: SearchAnswer, wanted: Wanted) -> None:
    """Write all that was asked for; InfeasibleError where no plan is left, with why."""
    from ...explore.runs.tool import tool_version
    from ...report.search.answer import search_json
    from ...report.search.table import search_text

    if not answer.tally.num_kept:
        reasons = counted(answer.tally.pruned)
        raise InfeasibleError(f"none of {answer.tally.num_candidates:,} candidates is left: {reasons}")
    if wanted.form == "json":
        text = search_json(answer, tool_version())
    else:
        text = search_text(answer, columns()) + (_why(answer) if wanted.why else "")
    write_text(text, wanted.output)
    if wanted.best_plan is not None:
        write_text(best_plan_text(answer), wanted.best_plan)
    if wanted.front is not None:
        write_text(_front_text(answer, wanted.front), wanted.front)


def check_front(path: str | None) -> None:
    """UsageError for a picture of a kind that there is not, before anything slow happens."""
    if path is not None and not path.endswith(_FRONTS):
        raise UsageError(f"--front {path}: the name says the form: {', '.join(_FRONTS)}")


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


def _why(answer: SearchAnswer) -> str:
    """Why the first row beats the second, part by part."""
    from ...report.search.answer import num_rows
    from ...report.search.why import why, why_text

    if num_rows(answer.best.top) < 2:
        return ""
    first, second = (answer.rows.answer(answer.best.top, at) for at in (0, 1))
    return "\n\n" + why_text(why(first, second, answer.rows.goals))


def _front_text(answer: SearchAnswer, path: str) -> str:
    """The front in the form that the ending of its file says."""
    from ...report.search.front_html import front_html
    from ...report.search.front_svg import front_svg
    from ...report.search.front_table import front_json, front_table

    front = front_of(answer)
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
        goals, labels, {name: rows[name] for name in answer.rows.metrics}, answer.model,
        {goal.name: cloud[goal.name][behind] for goal in goals}, answer.tally.num_kept,
    )  # fmt: skip


def _places(rows: Columns) -> NDArray[np.float64]:
    """Where each row came from, as one number."""
    from ...explore.best import BLOCK, ROW

    return rows[BLOCK] * 2.0**20 + rows[ROW]
