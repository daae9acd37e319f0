"""`slipstick estimate`: how long a step takes, whether it fits, where the time goes."""

from __future__ import annotations

import sys

import click

from ..ir.errors import InfeasibleError, UsageError
from .flags import Named
from .options import PlanCommand, Request
from .output import columns
from .prepare import check_model, graph_of, lower_of, plan_of, system_of
from .run_flags import run_of

# A result in a file or a pipe is laid out as on a wide screen.
PIPE_COLUMNS = 120


@click.command("estimate", cls=PlanCommand)
@click.option("--format", "form", type=Named(("table", "json")), default="table", show_default=True, help="Output.")
@click.option(
    "--explain", metavar="NODE", default=None, help="Explain a node (block0/%17, a module path, an op) or a metric."
)
@click.option("--allow-infeasible", is_flag=True, help="Answer, with exit code 0, even when memory does not fit.")
def estimate_command(request: Request, form: str, explain: str | None, allow_infeasible: bool) -> int:
    """Estimate one step of MODEL on a system.

    MODEL is a name of `slipstick list models`, a path to a HuggingFace config.json, a saved graph, or
    file.py:factory / package.module:factory returning an nn.Module (this runs your code). Nothing is downloaded.
    """
    if request.stop_after is not None:
        raise UsageError("--stop-after leaves an unfinished graph; see it with `slipstick compile --emit sharded`")
    check_model(request)
    plan = plan_of(request)
    run = run_of(request)
    system = system_of(request)
    graph = graph_of(request)
    from ..cost.flops import Convention
    from ..driver import estimate, train
    from ..report.advice import shortage

    lowered = lower_of(request, graph, plan.family)
    answer = estimate(graph, system, plan, Convention(request.flops_convention), lowered)
    answer = answer if run is None else train(answer, run)
    if explain is not None:
        from ..report.explain import explain_text

        click.echo(explain_text(answer, explain))
        return 0
    lacking = shortage(answer)
    if form == "json":
        from ..report.json_report import report_json

        click.echo(report_json(answer, request.overrides, request.flops_convention))
    elif lacking is None or allow_infeasible:
        from ..report.tables import report_text

        click.echo(report_text(answer, columns() or PIPE_COLUMNS, color=sys.stdout.isatty()), nl=False)
    if lacking is not None and not allow_infeasible:
        raise InfeasibleError(f"{lacking}; --allow-infeasible shows the answer anyway")
    if lacking is not None:
        click.echo(f"warning: {lacking}", err=True)
    return 0
