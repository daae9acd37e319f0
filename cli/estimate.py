"""`slipstick estimate`: how long a step takes, whether it fits, where the time goes."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ..ir.errors import InfeasibleError, UsageError
from .flags.request import Request
from .flags.run import RUN_FLAGS, run_of
from .flags.shared import Named
from .output.files import columns, write_text
from .output.timeline import emit_trace
from .prepare import (
    check_model,
    dated_otherwise,
    lower_of,
    priced,
    published_otherwise,
    sized,
    system_of,
)
from .serving.checks import check_phase, check_requests
from .serving.drafts import DRAFTS
from .serving.flags import ENGINE, LIMITS, LOADS, REQUESTS, TARGETS, ServeCommand, Serving
from .serving.pools import POOLS
from .serving.serve import engine_stack, serve_command

if TYPE_CHECKING:
    from ..driver.estimate import Estimate

# A result in a file or a pipe is laid out as on a wide screen.
PIPE_COLUMNS = 120
EMITTED = ("table", "json", "trace")


# Flags that say nothing of the other kind of estimate.
OF_SERVING = tuple(str(flag.name) for flag in (*REQUESTS, *LIMITS, *TARGETS, *LOADS, *POOLS, *DRAFTS))
OF_STEPS = ("seq", "mbs", "gbs", "trace_detail", "trace_stages", "sensitivity", "allow_infeasible", *(
    str(flag.name) for flag in RUN_FLAGS))  # fmt: skip


class EstimateCommand(ServeCommand):
    """Its help names the flags of servers by themselves."""

    more = (
        ("Serving (--phase serve)", (ENGINE, *REQUESTS, *LOADS, *LIMITS, *TARGETS)),
        ("Disaggregated prefill and decode (--phase serve)", POOLS),
        ("Speculative decoding (--phase serve)", DRAFTS),
    )


@click.command("estimate", cls=EstimateCommand)
@click.option(
    "--emit",
    type=Named(EMITTED),
    help="Output: table, json, or trace, a timeline for Perfetto and chrome://tracing.  [default: table]",
)
@click.option("--format", "form", type=Named(EMITTED[:2]), help="Output format: the same for table and json.")
@click.option(
    "-o",
    "--output",
    default="-",
    show_default=True,
    help="File, gzipped when its name ends in .gz; - for stdout.",
)
@click.option(
    "--trace-detail",
    type=Named(("auto", "task", "layer", "node")),
    default="auto",
    show_default=True,
    help="What a trace shows of each micro-batch: its tasks, their layers, every node; auto: nodes of the first ones, "
    "tasks of the rest, about 200,000 events at most.",
)
@click.option(
    "--trace-stages",
    type=Named(("classes", "all")),
    default="classes",
    show_default=True,
    help="Pipeline stages in a trace: one of each class of stages alike, or all.",
)
@click.option(
    "--explain",
    metavar="NODE",
    default=None,
    help="Explain a node (block0/%17, a module path, an op), a metric, or memory (a stage over the step).",
)
@click.option(
    "--sensitivity/--no-sensitivity",
    default=None,
    help="Sensitivity of the step time to each number of the machine; takes tens of milliseconds.  [default: in "
    "tables]",
)
@click.option("--allow-infeasible", is_flag=True, help="Answer, with exit code 0, even when memory does not fit.")
@click.pass_context
def estimate_command(
    ctx: click.Context,
    request: Request,
    serving: Serving,
    emit: str | None,
    form: str | None,
    output: str,
    trace_detail: str,
    trace_stages: str,
    explain: str | None,
    sensitivity: bool | None,
    allow_infeasible: bool,
) -> int:
    """Estimate one step of MODEL on a system, or with --phase serve a server that answers requests.

    MODEL is a name of `slipstick list models`, a path to a HuggingFace config.json, a saved graph, an ONNX
    file, a .pt2 file of torch.export, or file.py:factory / package.module:factory returning an nn.Module, a tuple
    (module, inputs) or a slipstick.ModelRun (this runs your code). Nothing is downloaded.
    """
    if request.compiler.stop_after is not None:
        raise UsageError("--stop-after leaves an unfinished graph; see it with `slipstick compile --emit sharded`")
    kind = _kind(emit, form, trace_detail, trace_stages)
    check_phase(ctx, request.words.phase, OF_SERVING, OF_STEPS)
    check_model(request)
    if request.words.phase == "serve":
        check_requests(ctx, serving)
        return serve_command(request, serving, kind, output, explain)
    answer = _step(request, serving.engine)
    if explain is not None:
        from ..report.explain.explain import explain_text

        write_text(explain_text(answer, explain), output)
        return 0
    from ..report.advice import shortage

    lacking = shortage(answer)
    if kind == "json":
        from ..report.json_report import report_json

        write_text(report_json(answer, request.machine.overrides, bool(sensitivity)), output)
    elif kind == "trace":
        emit_trace(answer, output, trace_detail, trace_stages == "all", request.quiet)
    elif lacking is None or allow_infeasible:
        _write_screen(answer, output, sensitivity is not False)
    if lacking is not None and not allow_infeasible:
        raise InfeasibleError(f"{lacking}; --allow-infeasible shows the answer anyway")
    if lacking is not None:
        click.echo(f"warning: {lacking}", err=True)
    return 0


def _step(request: Request, engine: str | None) -> Estimate:
    """Estimate and price one step, of a whole training run what it comes to; an engine brings its stack."""
    asked = request
    if engine is not None:
        system, request = engine_stack(request, engine)
    else:
        system = system_of(request)
    run = run_of(request.run, request.words.phase)
    graph, plan = sized(request, system.stack)
    from ..cost.flops import Convention
    from ..driver.estimate import estimate, train

    lowered = lower_of(request, graph, plan.family)
    answer = estimate(graph, system, plan, Convention(request.flops_convention), lowered)
    answer = priced(request, answer if run is None else train(answer, run))
    return replace(answer, warnings=(*answer.warnings, *published_otherwise(request), *dated_otherwise(asked, engine)))


def _write_screen(answer: Estimate, output: str, sensitivity: bool) -> None:
    from ..report.tables import report_text

    width, color = columns() or PIPE_COLUMNS, output == "-" and sys.stdout.isatty()
    write_text(report_text(answer, width, color, sensitivity), output)


def _kind(emit: str | None, form: str | None, trace_detail: str, trace_stages: str) -> str:
    """Return what is written; --format and --emit must not say two things, and flags of traces need a trace."""
    if emit is not None and form is not None and emit != form:
        raise UsageError(f"--emit {emit} and --format {form} say two things: leave --format out")
    kind = emit or form or "table"
    if kind != "trace" and (trace_detail != "auto" or trace_stages != "classes"):
        given = "--trace-detail" if trace_detail != "auto" else "--trace-stages"
        raise UsageError(f"{given} is of --emit trace, and what is written is a {kind}: add --emit trace")
    return kind
