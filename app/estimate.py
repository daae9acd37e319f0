"""One step: how long it takes, whether it fits, where its time goes and what it costs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..ir.plan.words import WORDS
from ..ir.records import dataclass
from .prepare import (
    check_finished,
    check_model,
    lower_of,
    priced,
    published_otherwise,
    resolved_words,
    sized,
    system_of,
)
from .request import Request
from .run_words import run_of
from .serving.checks import check_phase
from .software import dated_otherwise, with_software

if TYPE_CHECKING:
    from ..driver.estimate import Estimate
    from ..report.advice import Origin
    from ..report.results.steps import StepResult


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRequest(Request):
    """A step, the engine that runs it where it infers, and what is said of it beside its time."""

    engine: str | None
    sensitivity: bool | None
    strict: float | None


def estimate_step(request: EstimateRequest) -> StepResult:
    """Estimate one step; GateError where more of its time rests on guesses than is allowed."""
    check_finished(request)
    check_phase(request)
    check_model(request)
    answer = _step(request)

    # Names are refused before what words an answer is loaded.
    from ..frameworks.export import config_of
    from ..report.advice import stack_warnings
    from ..report.explain.provenance import check_strict, shares_of
    from ..report.results.steps import StepResult

    given = frozenset(name for name in WORDS if request.arguments.is_given(name))
    told = stack_warnings(answer, request.source.model, config_of(request.source.model), given)
    answer = replace(answer, warnings=(*answer.warnings, *told))
    if request.strict is not None:
        check_strict(shares_of(answer), request.strict)
    return StepResult(
        answer=answer,
        overrides=request.machine.overrides,
        sensitivity=request.sensitivity,
        settings=partial(_step_settings, request, answer),
        origin=partial(_origin, request, answer),
    )


def _origin(request: EstimateRequest, answer: Estimate) -> Origin:
    """Return the words that were said of a step, and the launch that they came from."""
    from ..frameworks.export import ExportSubject, config_of
    from ..report.advice import Origin

    asked = with_software(request, request.engine)
    source, system = request.source, answer.table.system
    subject, framework = None, request.arguments.framework
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


def _step_settings(request: EstimateRequest, answer: Estimate) -> str:
    """Say on which settings that were left open the step time hangs most."""
    from ..driver.uncertainty.answers import ratio_bands
    from .open_settings import OF_INFERENCE, OF_TRAINING, changes, changes_text

    # What was assumed for the answer holds for all that is beside it.
    fixed = with_software(request) if request.engine is None else request

    def again(name: str, value: object) -> float:
        return _step(fixed.said({"served_by": None, name: value})).metrics["step_time_s"]

    known = OF_TRAINING if request.words.phase == "train" else OF_INFERENCE
    settings = {name: values for name, values in known.items() if not request.arguments.is_given(name)}
    now = answer.metrics["step_time_s"]
    return changes_text("step_time_s", now, changes(now, settings, again), ratio_bands(answer.table)["step_time_s"])


def _step(asked: EstimateRequest) -> Estimate:
    """Estimate and price one step, of a whole training run what it comes to; an engine brings its stack."""
    request, engine = with_software(asked, asked.engine), asked.engine
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
