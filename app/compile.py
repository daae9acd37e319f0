"""A model compiled for a plan: the graphs before and after the passes, and what each node costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verify.kinds import check_lowered
from ..verify.request import VerifyRequest
from .prepare import asked_of, check_model, lower_of, pipeline_of, priced, sized, system_of
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
    source = request.source
    pipeline = pipeline_of(request, plan.family)
    return VerifyRequest(source.model, source.dtype, source.images, graph, plan, pipeline, asked_of(request))


def _answer(request: Request, plan: Plan, lowered: Lowered) -> Estimate:
    from ..cost.flops import Convention
    from ..driver.estimate import estimate, train

    answer = estimate(lowered.source, system_of(request), plan, Convention(request.flops_convention), lowered)
    run = run_of(request.run, request.words.phase)
    return priced(request, answer if run is None else train(answer, run))
