"""A plan as the flags or the file of a framework that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..frameworks.deployments.targets import TARGETS, write_deployment
from ..frameworks.registry import ENGINES
from ..ir.errors import UsageError
from ..ir.records import dataclass
from .arguments.options import options_of
from .arguments.others import ExportArgs
from .prepare import check_model, lower_of, plan_of, sized, system_of
from .request import Request
from .serving.checks import check_degrees, check_phase
from .serving.drafts import USUAL_LENGTH
from .serving.serve import machine_of
from .serving.words import Serving
from .sources import VerbArguments

if TYPE_CHECKING:
    from ..frameworks.export import Export, ExportSubject

FRAMEWORKS = options_of(ExportArgs)["to"].choices
SERVERS = tuple(name for name in FRAMEWORKS if name in ENGINES)
DEPLOYMENTS = tuple(name for name in FRAMEWORKS if name in TARGETS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest(Request):
    """A plan, or a server, and the target framework."""

    framework: str
    serving: Serving

    @classmethod
    def parts_of(cls, arguments: VerbArguments) -> Mapping[str, object]:
        """Return what is said of the server."""
        return {"serving": Serving.of(arguments)}


def export_plan(request: ExportRequest) -> tuple[Export, str]:
    """Return a plan in the words of a framework, and what it is of; UsageError where the framework has no such plan."""
    framework, serving, is_server = request.framework, request.serving, request.words.phase == "serve"
    if is_server and framework not in (*SERVERS, *DEPLOYMENTS):
        allowed = ", ".join((*SERVERS, *DEPLOYMENTS))
        raise UsageError(f"--phase serve is answered by servers: --to {allowed}, not {framework}")
    check_phase(request)
    check_model(request)
    if framework in DEPLOYMENTS:
        return deployed(framework, request, serving)
    subject = server_subject(request, serving) if is_server else step_subject(request)
    return exported(framework, replace(subject, drafts=_drafts(serving))), subject.headline


def step_subject(request: Request) -> ExportSubject:
    """What is said of a step; a system is not needed, and says what its software hides."""
    from ..frameworks.export import ExportSubject, config_of
    from ..report.advice import layers_of

    graph, plan = sized(request)
    system = None if request.machine.system is None else system_of(request)
    layers = layers_of(lower_of(request, graph, plan.family), plan) if plan.pp > 1 else ()
    return ExportSubject(
        plan=plan,
        model=request.source.model,
        dtype=request.source.dtype,
        config=config_of(request.source.model),
        stack=None if system is None else system.stack,
        node_size=None if system is None else system.node_size,
        layers=layers,
    )


def server_subject(request: Request, serving: Serving) -> ExportSubject:
    """What is said of a server: limits of its engine, and the longest request."""
    from ..frameworks.export import ExportSubject, config_of

    if serving.apart.workers is not None:
        raise UsageError(f"--disagg: two pools of servers; export them --to {', '.join(DEPLOYMENTS)}")
    system, engine, asked = machine_of(request, serving.engine)
    check_degrees(asked)
    longest = serving.prompt + serving.output
    plan = plan_of(asked.said({"phase": "decode", "seq": longest}))
    return ExportSubject(
        plan=plan,
        model=request.source.model,
        dtype=request.source.dtype,
        config=config_of(request.source.model),
        stack=system.stack,
        node_size=system.node_size,
        scheduler=serving.limited(engine, longest).scheduler,
        longest=longest,
        is_server=True,
        prompt=serving.prompt,
        output=serving.output,
        rate=serving.load.requests_per_s,
    )


def deployed(target: str, request: ExportRequest, serving: Serving) -> tuple[Export, str]:
    """Return the servers of a plan, or both pools of a disaggregated one, as a deployment, with its headline."""
    from ..frameworks.deployments.pools import pool_of

    if request.words.phase != "serve":
        raise UsageError(f"--to {target} deploys servers: give a plan of --phase serve")
    one, workers = replace(serving, apart=type(serving.apart)()), serving.apart.workers
    asked: dict[str, Request] = {"serve": request}
    if workers is not None:
        first, second = serving.apart.of_prompts(request, workers[0]), serving.apart.of_answers(request, workers[1])
        asked = {"prefill": first, "decode": second}
    name = machine_of(request, serving.engine)[1].name
    engine = next((ENGINES[known] for known in ENGINES if name.startswith(known) and known in SERVERS), ENGINES["vllm"])
    pools = []
    for role, words in asked.items():
        subject = server_subject(words, one)
        whole = replace(subject, drafts=_drafts(serving), weights=hub_name(subject.model))
        pools.append(pool_of(engine, whole, role))
    headline = ", ".join(f"{pool.replicas} x {pool.subject.headline} ({pool.role})" for pool in pools)
    return write_deployment(target, pools), headline


def exported(framework: str, subject: ExportSubject) -> Export:
    """Return a plan in the words of one of FRAMEWORKS; UsageError for another workload."""
    from ..frameworks.registry import VOCABULARIES

    return VOCABULARIES[framework].write(replace(subject, weights=subject.weights or hub_name(subject.model)))


def hub_name(model: str) -> str | None:
    """The first name of a model of the catalogue on the hub; a folder stands for itself."""
    from ..frontend.huggingface.configs.models import index

    entry = index().get(model)
    return None if entry is None else next((name for name in entry.aliases if "/" in name), None)


def _drafts(serving: Serving) -> Mapping[str, int | str]:
    """What drafts, by the words that say it; empty where nothing does."""
    drafts = serving.drafts
    if drafts.draft is not None:
        length = USUAL_LENGTH if drafts.draft_length is None else drafts.draft_length
        return {"draft": hub_name(drafts.draft) or drafts.draft, "draft_length": length}
    return {name: number for name in ("mtp", "ngram") if (number := getattr(drafts, name))}
