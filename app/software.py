"""The software of a request: the stack or engine that was named, else the one that usually runs such plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    from ..ir.plan import PlanWords
    from .request import ModelSource, Request

R = TypeVar("R", bound="Request")

# The flag that would name it; a stack of a serving engine names the engine.
_ASSUMED = ("stack",)


def with_software(request: R, engine: str | None = None) -> R:
    """Return a request for steps of a plan with its software: for training a stack, else an engine with its stack.

    A stack of a serving engine stands for that engine, so that a step is the one that a server makes. A system that was
    loaded, or whose file names its software, has it already. Errors as `load_system` and `load_engine`.
    """
    at, train = request.machine, request.words.phase == "train"
    stack, assumed = None if at.stack is None else at.dated(at.stack), at.assumed
    if stack is None and engine is None and at.system is not None and at.loaded is None:
        stack = usual_stack_of(request, at.system)
        assumed = () if stack is None else _ASSUMED
    if engine is None and stack is not None and not train:
        from ..backends.machine.software.usual import engine_of_stack

        engine = engine_of_stack(stack)
    if engine is None:
        return request.said({"stack": stack, "assumed": assumed})
    own = stack if at.stack is not None else None
    return with_engine(request.said({"stack": own, "assumed": assumed, "served_by": engine}), engine)


def with_engine(request: R, engine: str) -> R:
    """Return a request with the stack of an engine, unless it names one, and what engines mean by its degrees."""
    from ..backends.machine.software.engine_file import load_engine

    at = request.machine
    stack = at.stack or load_engine(at.dated(engine), overrides=at.of_engine).stack
    return request.said({"stack": stack, **_degrees_of_engines(request.words)})


def engine_for(request: Request, engine: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the engine that serves: the one named, that of the stack, or the usual one; and the flags not typed."""
    from ..backends.machine.software.usual import engine_of_stack, usual_engine

    stack = request.machine.stack
    if engine is not None:
        return engine, ()
    if stack is not None:
        return engine_of_stack(stack) or usual_engine(), ("engine",)
    return usual_engine(), _ASSUMED


def usual_stack_of(request: Request, system: str | Path) -> str | None:
    """Return the stack that usually runs the plan on a system, of the date asked for; None where its file names one."""
    from ..backends.machine.software.usual import usual_stack

    found = usual_stack(system, request.words, is_own_module(request.source))
    return None if found is None else request.machine.dated(found)


def is_own_module(source: ModelSource) -> bool:
    """Whether a model is the user's own code, or a file made from it.

    A graph is of a config where its name is one of the catalogue, or it has positions, which code does not say.
    """
    from ..frontend.forms import CONFIG, SAVED, form_of
    from ..frontend.huggingface.configs.models import names

    form = form_of(source.model)
    if form is CONFIG:
        return False
    if source.graph is None and form is not SAVED:
        return True
    if source.graph is not None:
        name, positions = source.graph.name, source.graph.max_positions
    else:
        from ..ir.text.files import graph_head

        name, positions = graph_head(source.model)
    return not positions and name not in names()


def dated_otherwise(request: Request, engine: str | None = None) -> Iterator[str]:
    """Say where software is not of the version asked for, and where it is younger than the run."""
    from ..backends.machine.files.catalogue import dated, versions_of
    from ..backends.machine.files.versions import AT, month_of, younger

    month = None if request.machine.as_of is None else month_of(request.machine.as_of)
    for kind, name in (("stacks", request.machine.stack), ("engines", engine)):
        if name is None or name.endswith((".yaml", ".yml")):
            continue
        found = dated(kind, request.machine.dated(name))
        if found.note:
            yield found.note
        if month is not None and (AT in name or not found.note):
            told = (younger(month, one) for one in versions_of(kind, name.partition(AT)[0]) if one.name == found.name)
            yield from filter(None, told)


def _degrees_of_engines(words: PlanWords) -> Mapping[str, int]:
    """Return the degree inside experts that `--tp 8 --ep 8` means to engines: whole experts over all tp x dp ranks.

    An ep that lies inside dp is left as it is, and so is a degree inside experts that is given.
    """
    replicas = words.num_devices // (words.tp * words.pp)
    inside = replicas % words.ep == 0
    whole = words.etp is None and words.tp > 1 and not inside and words.tp * replicas % words.ep == 0
    return {"etp": 1} if whole and words.ep % words.tp == 0 else {}
