"""`slipstick estimate`: how long a step takes, whether it fits, where the time goes."""

from __future__ import annotations

import click

from ..ir.errors import InfeasibleError, SlipstickError
from .options import Named, Request, plan_options
from .prepare import check_model, graph_of, lower_of, plan_of, system_of


@click.command("estimate")
@plan_options
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
    check_model(request)
    plan = plan_of(request)
    system = system_of(request)
    graph = graph_of(request)
    from ..cost.flops import Convention
    from ..driver import check_fits, estimate

    lowered = lower_of(request, graph, plan.family)
    answer = estimate(graph, system, plan, Convention(request.flops_convention), lowered)
    trouble = _trouble(lambda: check_fits(answer))
    if explain is not None:
        from ..report.explain import explain_text

        click.echo(explain_text(answer, explain))
        return 0
    if form == "json":
        from ..report.json_report import report_json

        click.echo(report_json(answer, request.overrides, request.flops_convention))
    elif trouble is None or allow_infeasible:
        from ..report.tables import print_report

        print_report(answer)
    if trouble is not None and not allow_infeasible:
        raise trouble
    if trouble is not None:
        click.echo(f"warning: {trouble}", err=True)
    return 0


def _trouble(check: object) -> SlipstickError | None:
    assert callable(check)
    try:
        check()
    except InfeasibleError as error:
        return error
    return None
