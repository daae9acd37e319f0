"""`slipstick estimate`: how long a step takes, whether it fits, where the time goes; a server under load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import click

from ..app.arguments.others import StepArgs, StrictArgs
from ..app.arguments.serving import DraftArgs, EngineArgs, PoolArgs, RequestsServedArgs
from ..app.sources import VerbArguments
from ..ir.errors import UsageError
from .flags.build import flags_of, words
from .flags.command import PlanCommand
from .flags.numbers import Named
from .output.answers import (
    DRAWN_FORMS,
    DRAWN_SUFFIXES,
    FORMS,
    AppCommand,
    deliver_short,
    form_of,
    format_flag,
    output_flag,
    write_reasons,
)
from .output.timeline import emit_serving_trace, emit_trace

if TYPE_CHECKING:
    from ..report.results.result import Result
    from ..report.results.steps import StepResult

TRACE = "trace"


class ServerCommand(PlanCommand):
    """Its help names the flags of servers by themselves."""

    serves = True
    more = (
        ("Serving (--phase serve)", flags_of(EngineArgs, RequestsServedArgs)),
        ("Disaggregated prefill and decode (--phase serve)", flags_of(PoolArgs)),
        ("Speculative decoding (--phase serve)", flags_of(DraftArgs)),
    )


class EstimateCommand(AppCommand, ServerCommand):
    """The verb that answers; it also writes timelines and explanations."""

    forms: ClassVar[tuple[str, ...]] = DRAWN_FORMS

    delivered: ClassVar[tuple[str, ...]] = (
        "emit",
        "form",
        "output",
        "trace_detail",
        "trace_stages",
        "explain",
        "allow_infeasible",
    )

    def form_of(self, said: Mapping[str, object], arguments: VerbArguments) -> str:
        """Return what is written; --format and --emit must not say two things, and flags of traces need a trace."""
        emit, form, output = said["emit"], said["form"], str(said["output"])
        if emit is not None and form is not None and emit != form:
            raise UsageError(f"--emit {emit} and --format {form} say two things: leave --format out")
        given = None if (emit or form) is None else str(emit or form)
        # An explanation is text, to a file of any name.
        kind = TRACE if given == TRACE else "table" if said["explain"] else form_of(given, output, self.forms)
        if kind != TRACE and (said["trace_detail"] != "auto" or said["trace_stages"] != "classes"):
            flag = "--trace-detail" if said["trace_detail"] != "auto" else "--trace-stages"
            raise UsageError(f"{flag} is of --emit trace, and what is written is a {kind}: add --emit trace")
        return kind

    def deliver(self, result: Result, form: str, said: Mapping[str, object], arguments: VerbArguments) -> int:
        """Write the answer, its reasons or its timeline; InfeasibleError behind one that does not fit."""
        from ..report.results.steps import ServeResult, StepResult

        assert isinstance(result, StepResult | ServeResult)
        if said["explain"] is not None:
            write_reasons(result.explain(str(said["explain"])), str(said["output"]))
            return 0
        if isinstance(result, ServeResult):
            if form != TRACE:
                return super().deliver(result, form, said, arguments)
            emit_serving_trace(result.answer, str(said["output"]), bool(said["quiet"]))
            return 0
        return self._deliver_step(result, form, said, arguments)

    def _deliver_step(self, result: StepResult, form: str, said: Mapping[str, object], arguments: VerbArguments) -> int:
        write: Callable[[], object] = partial(super().deliver, result, form, said, arguments)
        if form == TRACE:
            every_stage, quiet = said["trace_stages"] == "all", bool(said["quiet"])
            detail, output = str(said["trace_detail"]), str(said["output"])
            write = partial(emit_trace, result.answer, output, detail, every_stage, quiet)
        return deliver_short(result.verdict, said, write)


@click.command("estimate", cls=EstimateCommand, params=[format_flag(*FORMS, "svg"), output_flag(DRAWN_SUFFIXES)])
@click.option(
    "--emit",
    type=Named((*FORMS, "svg", TRACE)),
    help="The same as --format; or trace, a timeline for Perfetto and chrome://tracing.",
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
    help="Explain a node (block0/%17, a module path, an op), a metric, memory (a stage over the step), provenance "
    "(what each operator's time rests on), or settings (those left open on which the answer hangs most).",
)
@words(StepArgs, StrictArgs)
@click.option("--allow-infeasible", is_flag=True, help="Answer, with exit code 0, even when memory does not fit.")
def estimate_command(arguments: VerbArguments) -> Result:
    """Estimate one step of MODEL on a system, or with --phase serve a server under load.

    MODEL is a name of `slipstick list models`, a path to a HuggingFace config.json, a saved graph, an ONNX
    file, a .pt2 file of torch.export, or file.py:factory / package.module:factory returning an nn.Module, a tuple
    (module, inputs) or a slipstick.ModelRun (this runs your code). Nothing is downloaded.

    \b
    slipstick estimate llama-3.1-70b --system dgx-h100 --gpus 64 --tp 8 --pp 4 --zero 1 --seq 8192 --gbs 128
    slipstick estimate llama-3.1-70b --system dgx-h100 --gpus 8 --tp 8 --phase serve --isl 2000 --osl 500 --concurrency 64
    slipstick estimate net.py:build --system dgx-h100 --gpus 8 -o answer.html
    """  # noqa: D301, E501
    if arguments.get("phase") == "serve":
        from ..app.serving.serve import ServeRequest, serve_model

        return serve_model(ServeRequest.of(arguments))
    from ..app.estimate import EstimateRequest, estimate_step

    return estimate_step(EstimateRequest.of(arguments))
