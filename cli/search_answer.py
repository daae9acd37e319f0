"""What a search found, to where the user wants it: the table, the best plan as a file, the front as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir.errors import InfeasibleError, UsageError
from .options import Request
from .output import columns, write_text
from .search_flags import Wanted

if TYPE_CHECKING:
    from ..driver import Estimate
    from ..ir.plan_file import Word
    from ..report.front import Front
    from ..report.search import SearchAnswer

_FRONTS = (".svg", ".html", ".json", ".txt")


def write_answer(answer: SearchAnswer, request: Request, wanted: Wanted) -> None:
    """Write all that was asked for; InfeasibleError where no plan is left, with why."""
    from ..explore.search.tool import tool_version
    from ..report.search import search_json
    from ..report.search_table import search_text

    if not answer.tally.num_kept:
        reasons = "; ".join(f"{num:,} {reason}" for reason, num in answer.tally.pruned.most_common())
        raise InfeasibleError(f"none of {answer.tally.num_candidates:,} candidates is left: {reasons}")
    if wanted.form == "json":
        text = search_json(answer, tool_version())
    else:
        text = search_text(answer, columns()) + (_why(answer) if wanted.why else "")
    write_text(text, wanted.output)
    if wanted.best_plan is not None:
        write_text(best_plan_text(answer, request), wanted.best_plan)
    if wanted.front is not None:
        write_text(_front_text(answer, wanted.front), wanted.front)


def check_front(path: str | None) -> None:
    """UsageError for a picture of a kind that there is not, before anything slow happens."""
    if path is not None and not path.endswith(_FRONTS):
        raise UsageError(f"--front {path}: the name says the form: {', '.join(_FRONTS)}")


def best_plan_text(answer: SearchAnswer, request: Request) -> str:
    """Return the best plan as a file that `estimate --plan` takes."""
    from .plan_text import plan_file_text

    machine = answer.job.machines[int(answer.best.top["system"][0])]
    graph = answer.job.graph
    around: dict[str, Word] = {"model": answer.model, "system": machine.name}
    named = {"stack": machine.stack, "calibration": machine.calibration, "prices": machine.prices}
    around |= {name: value for name, value in named.items() if value is not None}
    around |= {"dtype": str(graph.dtype)}
    if machine.overrides:
        around["set"] = list(machine.overrides)
    return plan_file_text(answer.plan(answer.best.top, 0), around)


def _why(answer: SearchAnswer) -> str:
    """Why the first row beats the second, part by part."""
    if len(answer.best.top["part"]) < 2:
        return ""
    from ..report.search_why import why, why_text

    first, second = (_estimate(answer, at) for at in (0, 1))
    return "\n\n" + why_text(why(first, second))


def _estimate(answer: SearchAnswer, at: int) -> Estimate:
    from ..driver import estimate

    top = answer.best.top
    machine = answer.job.machines[int(top["system"][at])]
    return estimate(answer.job.graph, machine.load(), answer.plan(top, at), answer.job.convention)


def _front_text(answer: SearchAnswer, path: str) -> str:
    """The front in the form that the ending of its file says."""
    from ..report.front_html import front_html
    from ..report.front_svg import front_svg
    from ..report.front_table import front_json, front_table

    front = front_of(answer)
    if path.endswith(".svg"):
        return front_svg(front)
    if path.endswith(".html"):
        return front_html(front)
    return front_json(front) if path.endswith(".json") else front_table(front)


def front_of(answer: SearchAnswer) -> Front:
    """Return the front of a search, before a cloud of other plans."""
    from ..report.front import Front, Goal

    rows, cloud = answer.best.front, answer.best.cloud
    labels = [answer.whole_label(rows, at) for at in range(len(rows["part"]))]
    goals = [Goal(goal.name, goal.sign < 0) for goal in answer.goals]
    names = answer.job.metrics
    return Front.of(
        goals, labels, {name: rows[name] for name in names}, answer.model,
        {goal.name: cloud[goal.name] for goal in goals}, answer.tally.num_kept,
    )  # fmt: skip
