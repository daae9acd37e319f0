"""A server under load: what requests see of it, and what it answers in all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ...ir.errors import InfeasibleError, UsageError
from ...ir.plan.word import changed
from ...ir.records import dataclass
from ..prepare import (
    check_finished,
    check_model,
    graph_of,
    lower_of,
    no_heads,
    plan_of,
    published_otherwise,
    system_of,
    terms_of,
)
from ..request import Request
from ..run_words import failures_of
from ..software import dated_otherwise, engine_for, with_engine
from ..sources import VerbArguments
from .checks import check_degrees, check_phase, check_requests
from .remedies import with_remedies
from .words import Serving

if TYPE_CHECKING:
    from ...backends.machine.software.engine import Engine
    from ...backends.machine.system import System
    from ...cost.serving.batching.speculative import Drafter
    from ...cost.serving.traffic.traffic import Traffic
    from ...driver.estimate import Lowered
    from ...driver.serve.answer import ServeEstimate
    from ...driver.serve.pools import Pools
    from ...driver.serve.server import Server
    from ...driver.serve.tables import ServedModel
    from ...ir.plan import Family, Plan
    from ...report.results.steps import ServeResult

    Lowering = Callable[[Request, Family], Lowered]
    Making = Callable[[Request, Serving, int], Server]

# Steps of a simulation that a trace shows one by one.
SIMULATED_STEPS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest(Request):
    """A server, the requests that come to it, and which share of its answer may rest on guesses."""

    serving: Serving
    strict: float | None = None

    @classmethod
    def parts_of(cls, arguments: VerbArguments) -> Mapping[str, object]:
        """Return what is said of the server."""
        return {"serving": Serving.of(arguments)}


def serve_model(request: ServeRequest) -> ServeResult:
    """Answer for a server; GateError where more of its time rests on guesses than is allowed."""
    check_finished(request)
    check_phase(request)
    check_model(request)
    check_requests(request.arguments, request.serving)
    served = _serve(request)
    if request.strict is not None:
        from ...report.explain.provenance import check_strict, shares_of_server

        check_strict(shares_of_server(served.answer), request.strict)
    return replace(served, settings=partial(_settings, request, served))


def _serve(request: ServeRequest) -> ServeResult:
    """Answer for a server; of simulated requests, the steps that a trace shows are kept."""
    from ...driver.serve.answer import with_inclusive_tpot
    from ...report.results.steps import ServeResult

    serving = request.serving
    kept = 0 if serving.serve is None else SIMULATED_STEPS
    answer = priced_serving(request, answer_for(request, serving, kept, framework=request.arguments.framework))
    answer = replace(
        answer,
        warnings=(
            *answer.warnings,
            *published_otherwise(request),
            *no_heads(request, serving.drafts.mtp),
            *dated_otherwise(request, engine_for(request, serving.engine)[0]),
        ),
    )
    answer = with_inclusive_tpot(answer) if serving.inclusive_tpot else answer
    return ServeResult(answer=answer, overrides=request.machine.overrides)


def _settings(request: ServeRequest, served: ServeResult) -> str:
    """Say on which settings that were left open the throughput of a server hangs most."""
    from ...driver.uncertainty.answers import server_ratio_bands
    from ..open_settings import OF_SERVERS, changes, changes_text

    metric = "e2el_s" if served.answer.load.name == "requests_per_s" else "tokens_per_s_per_gpu"

    def again(name: str, value: object) -> float:
        if hasattr(request.serving, name):
            asked = replace(request, serving=changed(request.serving, {name: value}))
        else:
            asked = request.said({name: value})
        return _serve(asked).metrics[metric]

    settings = {name: values for name, values in OF_SERVERS.items() if not request.arguments.is_given(name)}
    now = served.metrics[metric]
    return changes_text(metric, now, changes(now, settings, again), server_ratio_bands(served.answer)[metric])


def machine_of(request: Request, engine: str | None) -> tuple[System, Engine, Request]:
    """Load a system with the stack of an engine, unless another was asked for, and the engine as it is on its chip.

    `--set engine.KEY=VALUE` is of the engine; the request that comes back serves, with the other assignments, the stack
    and its kernels. Without an engine the usual one serves.
    """
    from ...backends.machine.software.engine_file import load_engine
    from ...backends.machine.software.phases import check_phase
    from ...ir.graph import Workload
    from ...ir.plan.structure import usual_kernels

    name, assumed = engine_for(request, engine)
    at = request.machine
    asked = with_engine(request, name).said({"phase": "serve", "overrides": at.of_system, "assumed": assumed})
    system = system_of(asked)
    kernels = request.words.kernels or usual_kernels(Workload.DECODE, system.stack)
    loaded = load_engine(at.dated(name), system.chip.name, at.of_engine)
    check_phase(loaded, "serve", "engine")
    return system, loaded, asked.said({"kernels": kernels})


def lowered_of(request: Request, family: Family) -> Lowered:
    """Load and lower the model of a request."""
    return lower_of(request, graph_of(request), family)


def served_of(request: Request, lowering: Lowering = lowered_of) -> tuple[ServedModel, Plan]:
    """Lower a model for both phases; the plan is that of decode steps."""
    from ...driver.serve.tables import ServedModel

    check_degrees(request)
    # A prompt has no cache yet whose latents could be expanded: the choice is of decode alone.
    words = request.words
    # Prompts are split over tp x cp ranks by heads, as all layers of a decode step but attention are.
    whole = words.etp == 1 and (words.ep > 1 if words.tp > 1 else words.cp > 1)
    ep = words.ep * words.cp if whole else words.ep
    of_prompts = {"phase": "prefill", "mla": "latent", "tp": words.tp * words.cp, "cp": 1, "ep": ep}
    first, step = request.said(of_prompts), request.said({"phase": "decode"})
    plan = plan_of(step)
    return ServedModel(lowering(first, plan_of(first).family), lowering(step, plan.family)), plan


def server_of(request: Request, serving: Serving, longest: int, lowering: Lowering = lowered_of) -> Server:
    """Return the server that was asked for, for requests of so many tokens at most."""
    from ...cost.flops import Convention
    from ...driver.serve.drafts import draft_model
    from ...driver.serve.server import Server

    system, engine, asked = machine_of(request, serving.engine)
    served, plan = served_of(asked.said({"seq": longest}), lowering)
    server = Server.of(served, system, plan, serving.limited(engine, longest), longest)
    server = replace(server, convention=Convention(request.flops_convention))

    def small(model: str) -> Drafter:
        check_model(asked.said({"model": model}))
        own, its_plan = served_of(asked.said({"model": model, "seq": longest}))
        return draft_model(own, system, its_plan, server.engine, longest)

    return serving.drafts.of(server, small)


def pools_of(request: Request, serving: Serving, longest: int, workers: tuple[int, int]) -> Pools:
    """Return a server of prompts and one of answers, and what joins them."""
    from ...driver.serve.drafts import num_layers
    from ...driver.serve.pools import Pools, link_between, link_of

    apart = serving.apart
    plain = replace(serving, drafts=type(serving.drafts)())
    prefill = server_of(apart.of_prompts(request, workers[0]), plain, longest)
    decode = server_of(apart.of_answers(request, workers[1]), serving, longest)
    layers = num_layers(decode.served) if apart.stream_kv else 1
    gpus = prefill.plan.num_gpus + decode.plan.num_gpus
    link = (
        link_of(decode.system, gpus, layers, apart.bytes_per_s)
        if apart.prefill_system is None
        else link_between(prefill.system, decode.system, layers, apart.bytes_per_s)
    )
    return Pools(prefill, decode, link, apart.prefill_batch or 1)


def answer_for(
    request: Request,
    serving: Serving,
    kept_steps: int = 0,
    making: Making = server_of,
    framework: str | None = None,
) -> ServeEstimate:
    """Answer in closed form, or request by request where `--serve` says so, on one server or on pools.

    InfeasibleError where nothing is answered; where memory is too small, with changes in the words of `framework`.
    """
    from ...driver.serve.serve import serve
    from ...driver.serve.serve_pools import serve_pools
    from ...driver.serve.server import with_failures
    from ...driver.serve.traffic.autoscaled import with_autoscaling
    from ...driver.serve.traffic.simulated import serve_traffic, serve_traffic_apart

    traffic, load, target = serving.traffic, serving.load, serving.target
    workers = serving.apart.workers
    if serving.kv_tiers is not None and traffic is None:
        raise UsageError("--kv-tiers: what requests find depends on those before them: say which, with --serve FILE")
    failures = failures_of(request.run)
    if failures is not None and (traffic is None or workers is not None):
        of = "request by request: add --serve TRAFFIC" if traffic is None else "of one pool, and --disagg has two"
        raise UsageError(f"--mtbf: failures of replicas are simulated {of}")
    if serving.autoscale is not None:
        request = _of_most_replicas(request, serving)
    if traffic is None:
        longest = serving.prompt + serving.output
    else:
        longest = int((traffic.requests.prompt + traffic.requests.output).max())
    if workers is not None:
        pools = pools_of(request, serving, longest, workers)
        if traffic is None:
            return serve_pools(pools, serving.lengths, load, target)
        if serving.kv_tiers is not None:
            traffic, first, notes = _reusing(traffic, pools.prefill, serving.kv_tiers)
            pools = replace(pools, prefill=first)
            return _noted(serve_traffic_apart(pools, traffic, load, target, kept_steps, serving.cut), notes)
        return serve_traffic_apart(pools, traffic, load, target, kept_steps, serving.cut)
    server = making(request, serving, longest)
    server = server if failures is None else with_failures(server, failures)
    if serving.autoscale is not None and traffic is not None:
        server = with_autoscaling(server, serving.autoscale, traffic, target)
    try:
        if traffic is None:
            return serve(server, serving.lengths, load, target)
        if serving.kv_tiers is not None:
            traffic, lent, notes = _reusing(traffic, server, serving.kv_tiers)
            return _noted(serve_traffic(lent, traffic, load, target, kept_steps, serving.cut), notes)
        return serve_traffic(server, traffic, load, target, kept_steps, serving.cut)
    except InfeasibleError as error:
        raise with_remedies(
            error, server, request, serving, lambda asked: making(asked, serving, longest), framework
        ) from None


def _of_most_replicas(request: Request, serving: Serving) -> Request:
    """Return a request for as many replicas as autoscaling may start, unless it says how many there are."""
    from ...driver.serve.traffic.autoscaled import most_replicas

    if serving.serve is None or serving.apart.workers is not None:
        of = "of one pool, and --disagg has two" if serving.serve else "of simulated requests: add --serve TRAFFIC"
        raise UsageError(f"--autoscale: {of}")
    if request.run.mtbf is not None:
        raise UsageError("--autoscale and --mtbf: replicas fail, or come and go with the load; not both at once yet")
    most = most_replicas(serving.autoscale or "")
    words = request.words
    return request.said({"dp": most}) if words.num_gpus is None and words.dp is None else request


def _reusing(traffic: Traffic, server: Server, text: str) -> tuple[Traffic, Server, tuple[str, ...]]:
    """Return traffic that finds prefixes in tiers, the server that lends them memory, and what was found."""
    from ...driver.serve.traffic.tiers import reuse_notes, with_tiers

    given, lent, found, tiers = with_tiers(traffic, server, text)
    return given, lent, tuple(reuse_notes(found, tiers, traffic))


def _noted(answer: ServeEstimate, notes: tuple[str, ...]) -> ServeEstimate:
    return replace(answer, warnings=(*answer.warnings, *notes))


def priced_serving(request: Request, answer: ServeEstimate) -> ServeEstimate:
    """Price an estimate; a system that cannot be priced says so among the warnings."""
    from ...driver.serve.money import is_mixed, worth_mixed, worth_serving

    try:
        return (worth_mixed if is_mixed(answer) else worth_serving)(answer, terms_of(request))
    except UsageError as error:
        if request.rent or request.basis == "build":
            raise
        return replace(answer, warnings=(*answer.warnings, f"not priced: {error}"))
