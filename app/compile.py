"""A model compiled for a plan: the graphs before and after the passes, and what each node costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..ir.types import DType
from ..verify.kinds import check_lowered
from ..verify.request import VerifyRequest
from .prepare import check_model, lower_of, pipeline_of, priced, sized, system_of, trace_options
from .request import Request
from .run_words import run_of
from .software import with_software

if TYPE_CHECKING:
    from ..driver.estimate import Estimate, Lowered
    from ..ir.graph import Graph
    from ..ir.plan import Plan
    from ..report.results.compiled import CompiledResult


def compile_model(request: Request) -> CompiledResult:
    """Compile a model; what is asked of the result is computed when it is asked for."""
    from ..report.results.compiled import CompiledResult

    check_model(request)
    request = with_software(request)
    graph, plan = sized(request)
    return CompiledResult(
        graph=graph,
        plan=plan,
        lower=lambda: lower_of(request, graph, plan.family),
        price=lambda lowered: _answer(request, plan, lowered),
        check=lambda kind, sizes: check_lowered(kind, _verify_request(request, graph, plan), sizes),
        overrides=request.machine.overrides,
    )


def _verify_request(request: Request, graph: Graph, plan: Plan) -> VerifyRequest:
    pipeline = pipeline_of(request, plan.family)
    workload, dtype = plan.family.workload, DType.parse(request.source.dtype)
    options = replace(trace_options(request), workload=workload, dtype=dtype)
    return VerifyRequest(request.source.model, graph, plan, pipeline, options)


def _answer(request: Request, plan: Plan, lowered: Lowered) -> Estimate:
    from ..cost.flops import Convention
    from ..driver.estimate import estimate, train

    answer = estimate(lowered.source, system_of(request), plan, Convention(request.flops_convention), lowered)
    run = run_of(request.run, request.words.phase)
    return priced(request, answer if run is None else train(answer, run))
