"""`slipstick compile`: the graph after each stage of the compiler, as files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import click

from ..ir.errors import UsageError
from .options import Request, plan_options
from .prepare import check_model, family_of, graph_of, lower_of, plan_of, system_of

KINDS = ("graph", "sharded", "costed", "report")


@click.command("compile")
@plan_options
@click.option("--emit", default="graph", show_default=True, help=f"What to write, comma separated: {', '.join(KINDS)}.")
@click.option("-o", "--output", default="-", show_default=True, help="File, folder for several kinds, - for stdout.")
def compile_command(request: Request, emit: str, output: str) -> int:
    """Compile MODEL and write what it becomes.

    \b
    graph    the traced graph, as text (.graph, .graph.gz); needs no system
    sharded  the graph after the passes; needs no system
    costed   every node with its work, time and bound (.csv or .json by suffix, else a table)
    report   the estimate as JSON
    """  # noqa: D301
    kinds = _kinds(emit)
    check_model(request)
    texts = _texts(request, kinds)
    if len(kinds) == 1:
        _write(texts[kinds[0]](Path(output).suffix), output)
        return 0
    if output == "-":
        raise UsageError(f"--emit {emit} writes {len(kinds)} files: name a folder with -o")
    for kind in kinds:
        suffix = {"costed": ".csv", "report": ".json"}.get(kind, "")
        name = {"graph": "traced.graph", "sharded": "sharded.graph"}.get(kind, f"{kind}{suffix}")
        _write(texts[kind](suffix), str(Path(output) / name))
    return 0


def _kinds(emit: str) -> tuple[str, ...]:
    from ..ir.errors import UnknownNameError

    kinds = tuple(k.strip() for k in emit.split(",") if k.strip())
    for kind in kinds:
        if kind not in KINDS:
            raise UnknownNameError.of("kind to emit", kind, KINDS)
    if not kinds:
        raise UsageError(f"--emit names nothing; allowed: {', '.join(KINDS)}")
    return kinds


def _texts(request: Request, kinds: tuple[str, ...]) -> Mapping[str, Callable[[str], str]]:
    """Return what makes each kind, so that only what is asked for is computed."""
    from ..ir.text import print_graph

    needs_plan = bool({"costed", "report"} & set(kinds))
    plan = plan_of(request) if needs_plan else None
    system = system_of(request) if needs_plan else None
    graph = graph_of(request)
    made: dict[str, Callable[[str], str]] = {"graph": lambda suffix: print_graph(graph)}
    if set(kinds) == {"graph"}:
        return made
    lowered = lower_of(request, graph, family_of(request))
    made["sharded"] = lambda suffix: print_graph(lowered.graph)
    if plan is not None and system is not None:
        from ..cost.flops import Convention
        from ..driver import estimate
        from ..report.costed import costed_text
        from ..report.json_report import report_json

        answer = estimate(graph, system, plan, Convention(request.flops_convention), lowered)
        made["costed"] = lambda suffix: costed_text(answer, suffix)
        made["report"] = lambda suffix: report_json(answer, request.overrides, request.flops_convention)
    return made


def _write(text: str, output: str) -> None:
    if output == "-":
        click.echo(text, nl=not text.endswith("\n"))
        return
    import gzip

    from ..ir.files import write_atomically

    data = (text if text.endswith("\n") else text + "\n").encode()
    write_atomically(Path(output), gzip.compress(data, mtime=0) if output.endswith(".gz") else data)
    click.echo(f"wrote {output}", err=True)
