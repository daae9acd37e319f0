"""A plan as the flags or the file of a framework that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

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
    from ..report.frameworks.export import Export, ExportSubject

FRAMEWORKS = options_of(ExportArgs)["to"].choices


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest(Request):
    """A plan, or a server, and the framework in whose words it is written."""

    framework: str
    serving: Serving

    @classmethod
    def parts_of(cls, arguments: VerbArguments) -> Mapping[str, object]:
        """Return what is said of the server."""
        return {"serving": Serving.of(arguments)}


def export_plan(request: ExportRequest) -> tuple[Export, str]:
    """Return a plan in the words of a framework, and what it is of; UsageError where the framework has no such plan."""
    framework, serving, is_server = request.framework, request.serving, request.words.phase == "serve"
    if is_server and framework != "vllm":
        raise UsageError(f"--phase serve is answered by servers: --to vllm, not {framework}")
    check_phase(request)
    check_model(request)
    subject = server_subject(request, serving) if is_server else step_subject(request)
    return exported(framework, subject, serving), subject.headline


def step_subject(request: Request) -> ExportSubject:
    """What is said of a step; a system is not needed, and says what its software hides."""
    from ..report.advice import layers_of
    from ..report.frameworks.export import ExportSubject, config_of

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
    from ..report.frameworks.export import ExportSubject, config_of

    if serving.apart.workers is not None:
        raise UsageError(
            "--disagg: two servers and what joins them: export each pool by itself, with its --tp and --pp"
        )
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
    )


def exported(framework: str, subject: ExportSubject, serving: Serving | None = None) -> Export:
    """Return a plan in the words of one of FRAMEWORKS; `serving` says what drafts. UsageError for another workload."""
    from ..report.frameworks.deepspeed import deepspeed
    from ..report.frameworks.megatron import megatron
    from ..report.frameworks.torchtitan import torchtitan
    from ..report.frameworks.vllm import vllm

    if framework == "vllm":
        return vllm(subject, _hub_name(subject.model), None if serving is None else _speculation(serving))
    known = {"megatron": megatron, "torchtitan": torchtitan, "deepspeed": deepspeed}
    return known[framework](subject)


def _hub_name(model: str) -> str | None:
    """The first name of a model of the catalogue on the hub; a folder stands for itself."""
    from ..frontend.huggingface.configs.models import index

    entry = index().get(model)
    if entry is None:
        return None
    return next((name for name in entry.aliases if "/" in name), None)


def _speculation(serving: Serving) -> Mapping[str, int | str] | None:
    """What drafts, in vLLM's words; None where nothing does."""
    drafts = serving.drafts
    if drafts.draft is not None:
        length = USUAL_LENGTH if drafts.draft_length is None else drafts.draft_length
        return {"model": _hub_name(drafts.draft) or drafts.draft, "num_speculative_tokens": length}
    if drafts.mtp:
        return {"method": "mtp", "num_speculative_tokens": drafts.mtp}
    if drafts.ngram:
        return {"method": "ngram", "num_speculative_tokens": drafts.ngram}
    return None
