"""`slipstick estimate`: how long a step takes, whether it fits, where the time goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import click

from ..ir.errors import UsageError
from ..ir.plan.word import changed
from ..ir.plan.words import WORDS
from .flags.numbers import Named, Real
from .flags.request import Request
from .flags.run import RUN_FLAGS, run_of
from .output.answers import (
    DRAWN_FORMS,
    DRAWN_SUFFIXES,
    FORMS,
    Answering,
    deliver_short,
    form_of,
    format_flag,
    output_flag,
    write_reasons,
)
from .output.timeline import emit_serving_trace, emit_trace
from .plans.file import framework_of, is_given
from .plans.software import dated_otherwise, with_software
from .prepare import (
    check_model,
    lower_of,
    priced,
    published_otherwise,
    resolved_words,
    sized,
    system_of,
)
from .serving.checks import check_phase, check_requests
from .serving.drafts import DRAFTS
from .serving.flags import ENGINE, LIMITS, LOADS, REQUESTS, TARGETS, ServeCommand, Serving
from .serving.pools import POOLS
from .serving.serve import serve_result

if TYPE_CHECKING:
    from ..driver.estimate import Estimate
    from ..report.advice import Origin
    from ..report.results.result import Result
    from ..report.results.steps import ServeResult, StepResult

TRACE = "trace"


# Flags that say nothing of the other kind of estimate.
OF_SERVING = tuple(str(flag.name) for flag in (*REQUESTS, *LIMITS, *TARGETS, *LOADS, *POOLS, *DRAFTS))
# Replicas fail as training jobs do.
OF_FAILURES = ("mtbf", "restart_time")
OF_STEPS = (
    "seq",
    "mbs",
    "gbs",
    "trace_detail",
    "trace_stages",
    "sensitivity",
    "allow_infeasible",
    *(str(flag.name) for flag in RUN_FLAGS if flag.name not in OF_FAILURES),
)


class EstimateCommand(ServeCommand):
    """Its help names the flags of servers by themselves."""

    more = (
        ("Serving (--phase serve)", (ENGINE, *REQUESTS, *LOADS, *LIMITS, *TARGETS)),
        ("Disaggregated prefill and decode (--phase serve)", POOLS),
        ("Speculative decoding (--phase serve)", DRAFTS),
    )


class EstimatingCommand(Answering, EstimateCommand):
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

    def form_of(self, said: Mapping[str, object]) -> str:
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

    def deliver(self, result: Result, form: str, said: Mapping[str, object]) -> int:
        """Write the answer, its reasons or its timeline; InfeasibleError behind one that does not fit."""
        from ..report.results.steps import ServeResult, StepResult

        assert isinstance(result, StepResult | ServeResult)
        if said["explain"] is not None:
            write_reasons(result.explain(str(said["explain"])), str(said["output"]))
            return 0
        if isinstance(result, ServeResult):
            if form != TRACE:
                return super().deliver(result, form, said)
            emit_serving_trace(result.answer, str(said["output"]), bool(said["quiet"]))
            return 0
        return self._deliver_step(result, form, said)

    def _deliver_step(self, result: StepResult, form: str, said: Mapping[str, object]) -> int:
        write: Callable[[], object] = partial(super().deliver, result, form, said)
        if form == TRACE:
            every_stage, quiet = said["trace_stages"] == "all", bool(said["quiet"])
            detail, output = str(said["trace_detail"]), str(said["output"])
            write = partial(emit_trace, result.answer, output, detail, every_stage, quiet)
        return deliver_short(result.verdict, said, write)


@click.command("estimate", cls=EstimatingCommand, params=[format_flag(*FORMS, "svg"), output_flag(DRAWN_SUFFIXES)])
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
@click.option(
    "--sensitivity/--no-sensitivity",
    default=None,
    help="Sensitivity of the step time to each number of the machine; takes tens of milliseconds.  [default: in "
    "tables]",
)
@click.option(
    "--strict",
    type=Real(0.0, 1.0),
    metavar="SHARE",
    help="Refuse the answer, with exit code 5, where more than this share of its time rests on guesses.",
)
@click.option("--allow-infeasible", is_flag=True, help="Answer, with exit code 0, even when memory does not fit.")
@click.pass_context
def estimate_command(
    ctx: click.Context,
    request: Request,
    serving: Serving,
    sensitivity: bool | None,
    strict: float | None,
) -> StepResult | ServeResult:
    """Estimate one step of MODEL on a system, or with --phase serve a server under load.

    MODEL is a name of `slipstick list models`, a path to a HuggingFace config.json, a saved graph, an ONNX
    file, a .pt2 file of torch.export, or file.py:factory / package.module:factory returning an nn.Module, a tuple
    (module, inputs) or a slipstick.ModelRun (this runs your code). Nothing is downloaded.

    \b
    slipstick estimate llama-3.1-70b --system dgx-h100 --gpus 64 --tp 8 --pp 4 --zero 1 --seq 8192 --gbs 128
    slipstick estimate llama-3.1-70b --system dgx-h100 --gpus 8 --tp 8 --phase serve --isl 2000 --osl 500 --concurrency 64
    slipstick estimate net.py:build --system dgx-h100 --gpus 8 -o answer.html
    """  # noqa: D301, E501
    if request.compiler.stop_after is not None:
        raise UsageError("--stop-after leaves an unfinished graph; see it with `slipstick compile --emit sharded`")
    check_phase(ctx, request.words.phase, OF_SERVING, OF_STEPS)
    check_model(request)
    if request.words.phase == "serve":
        check_requests(ctx, serving)
        served = serve_result(request, serving, framework_of(ctx))
        if strict is not None:
            from ..report.explain.provenance import check_strict, shares_of_server

            check_strict(shares_of_server(served.answer), strict)
        return replace(served, settings=partial(_served_settings, ctx, request, serving, served))
    answer = _step(request, serving.engine)

    from ..frameworks.export import config_of
    from ..report.advice import stack_warnings
    from ..report.results.steps import StepResult

    given = frozenset(name for name in WORDS if is_given(ctx, name))
    told = stack_warnings(answer, request.source.model, config_of(request.source.model), given)
    answer = replace(answer, warnings=(*answer.warnings, *told))
    if strict is not None:
        from ..report.explain.provenance import check_strict, shares_of

        check_strict(shares_of(answer), strict)
    settings = partial(_step_settings, ctx, request, serving.engine, answer)
    origin = partial(_origin, request, serving.engine, framework_of(ctx), answer)
    overrides = request.machine.overrides
    return StepResult(answer=answer, overrides=overrides, sensitivity=sensitivity, settings=settings, origin=origin)


def _origin(request: Request, engine: str | None, framework: str | None, answer: Estimate) -> Origin:
    """Return the words that were said of a step, and the launch that they came from."""
    from ..frameworks.export import ExportSubject, config_of
    from ..report.advice import Origin

    asked = with_software(request, engine)
    source, system = request.source, answer.table.system
    subject = None
    if framework is not None:
        subject = ExportSubject(
            plan=answer.plan,
            model=source.model,
            dtype=source.dtype,
            config=config_of(source.model),
            stack=system.stack,
            node_size=system.node_size,
        )
    return Origin(asked=resolved_words(asked), framework=framework, subject=subject)


def _step_settings(ctx: click.Context, request: Request, engine: str | None, answer: Estimate) -> str:
    """Say on which settings that were left open the step time hangs most."""
    from ..driver.uncertainty.answers import ratio_bands
    from .output.settings import OF_INFERENCE, OF_TRAINING, changes, changes_text

    # What was assumed for the answer holds for all that is beside it.
    fixed = with_software(request, engine) if engine is None else request

    def again(name: str, value: object) -> float:
        return _step(fixed.said({"served_by": None, name: value}), engine).metrics["step_time_s"]

    known = OF_TRAINING if request.words.phase == "train" else OF_INFERENCE
    settings = {name: values for name, values in known.items() if not is_given(ctx, name)}
    now = answer.metrics["step_time_s"]
    return changes_text("step_time_s", now, changes(now, settings, again), ratio_bands(answer.table)["step_time_s"])


def _served_settings(ctx: click.Context, request: Request, serving: Serving, served: ServeResult) -> str:
    """Say on which settings that were left open the throughput of a server hangs most."""
    from ..driver.uncertainty.answers import server_ratio_bands
    from .output.settings import OF_SERVERS, changes, changes_text

    metric = "e2el_s" if served.answer.load.name == "requests_per_s" else "tokens_per_s_per_gpu"

    def again(name: str, value: object) -> float:
        of_server = {name: value} if name in OF_SERVERS and hasattr(serving, name) else {}
        asked = request if of_server else request.said({name: value})
        return serve_result(asked, changed(serving, of_server)).metrics[metric]

    settings = {name: values for name, values in OF_SERVERS.items() if not is_given(ctx, name)}
    now = served.metrics[metric]
    return changes_text(metric, now, changes(now, settings, again), server_ratio_bands(served.answer)[metric])


def _step(asked: Request, engine: str | None) -> Estimate:
    """Estimate and price one step, of a whole training run what it comes to; an engine brings its stack."""
    request = with_software(asked, engine)
    system = system_of(request)
    run = run_of(request.run, request.words.phase)
    graph, plan = sized(request, system.stack)
    from ..cost.flops import Convention
    from ..driver.estimate import estimate, train

    lowered = lower_of(request, graph, plan.family)
    answer = estimate(graph, system, plan, Convention(request.flops_convention), lowered)
    answer = priced(request, answer if run is None else train(answer, run))
    dated = dated_otherwise(request if engine is None else asked, engine)
    return replace(answer, warnings=(*answer.warnings, *published_otherwise(request), *dated))
