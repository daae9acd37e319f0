"""`slipstick compile`: the graph after each stage of the compiler, as files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..ir.errors import UsageError
from .flags.request import PlanCommand, Request
from .flags.run import run_of
from .output.files import write_text
from .prepare import check_model, lower_of, priced, sized, system_of
from .verify.kinds import VERIFIERS

if TYPE_CHECKING:
    from ..backends.machine.system import System
    from ..driver.estimate import Estimate, Lowered
    from ..ir.graph import Graph
    from ..ir.plan import Plan

# What can be written, and the names of the files when there are several.
FILES = {"graph": "traced.graph", "sharded": "sharded.graph", "costed": "costed.csv", "report": "report.json",
         "plan": "plan.yaml"}  # fmt: skip


@click.command("compile", cls=PlanCommand)
@click.option("--emit", default="graph", show_default=True, help=f"What to write, comma separated: {', '.join(FILES)}.")
@click.option("-o", "--output", default="-", show_default=True, help="File, folder for several kinds, - for stdout.")
@click.option(
    "--verify",
    multiple=True,
    type=click.Choice(tuple(VERIFIERS)),
    help="Verify the lowered graph and print what was found; writes only what --emit names beside it.",
)
@click.pass_context
def compile_command(ctx: click.Context, request: Request, emit: str, output: str, verify: tuple[str, ...]) -> int:
    """Compile MODEL and write what it becomes.

    \b
    graph    the traced graph, as text (.graph, .graph.gz); needs no system
    sharded  the graph after the passes; needs no system
    costed   every node with its work, time and bound (.csv or .json by suffix, else a table)
    report   the estimate as JSON
    plan     the style of each parameter, as a file that --tp-plan reads back
    """  # noqa: D301
    kinds = _kinds(emit)
    if request.compiler.stop_after is not None and {"costed", "report"} & set(kinds):
        raise UsageError("--stop-after leaves an unfinished graph, which has no costs; see it with --emit sharded")
    if len(kinds) > 1 and output == "-":
        raise UsageError(f"--emit {emit} writes {len(kinds)} files: name a folder with -o")
    if run_of(request.run, request.words.phase) is not None and "report" not in kinds:
        raise UsageError(f"a training run is part of the report, and --emit {emit} writes none")
    check_model(request)
    graph, plan = sized(request)
    for kind in verify:
        click.echo(VERIFIERS[kind](request, graph, plan))
    if verify and ctx.get_parameter_source("emit") is click.core.ParameterSource.DEFAULT:
        return 0
    texts = _texts(request, graph, plan, kinds)
    for kind in kinds:
        path = output if len(kinds) == 1 else str(Path(output) / FILES[kind])
        write_text(texts[kind](path), path)
    return 0


def _kinds(emit: str) -> tuple[str, ...]:
    from ..ir.errors import UnknownNameError

    kinds = tuple(dict.fromkeys(k.strip() for k in emit.split(",") if k.strip()))
    for kind in kinds:
        if kind not in FILES:
            raise UnknownNameError.of("kind to emit", kind, FILES)
    if not kinds:
        raise UsageError(f"--emit names nothing; allowed: {', '.join(FILES)}")
    return kinds


def _texts(request: Request, graph: Graph, plan: Plan, kinds: tuple[str, ...]) -> Mapping[str, Callable[[str], str]]:
    """Return what makes the text of each kind for a path, so that only what is asked for is computed."""
    from ..ir.text.printer import print_graph

    system = system_of(request) if {"costed", "report"} & set(kinds) else None
    made: dict[str, Callable[[str], str]] = {"graph": lambda path: print_graph(graph)}
    if set(kinds) == {"graph"}:
        return made
    if set(kinds) <= {"graph", "plan"}:
        return {**made, "plan": lambda path: _plan_text(graph, plan)}
    lowered = lower_of(request, graph, plan.family)
    made["plan"] = lambda path: _plan_text(graph, plan)
    made["sharded"] = lambda path: print_graph(lowered.graph)
    if system is None:
        return made
    from ..report.costed import costed_text
    from ..report.json_report import report_json

    answer = _answer(request, plan, system, lowered)
    made["costed"] = lambda path: costed_text(answer, Path(path.removesuffix(".gz")).suffix)
    made["report"] = lambda path: report_json(answer, request.machine.overrides)
    return made


def _plan_text(graph: Graph, plan: Plan) -> str:
    from ..passes.sharding.plans.choose import plan_for, styles_in
    from ..passes.sharding.plans.plan_files import plan_text
    from ..passes.sharding.shard import shard_by

    found = plan_for(plan.family.tp_plan, graph, shard_by)
    return plan_text(found, styles_in(found, graph))


def _answer(request: Request, plan: Plan, system: System, lowered: Lowered) -> Estimate:
    from ..cost.flops import Convention
    from ..driver.estimate import estimate, train
    from ..report.advice import shortage

    answer = estimate(lowered.source, system, plan, Convention(request.flops_convention), lowered)
    run = run_of(request.run, request.words.phase)
    answer = priced(request, answer if run is None else train(answer, run))
    lacking = shortage(answer)
    if lacking is not None:
        click.echo(f"warning: {lacking}", err=True)
    return answer
