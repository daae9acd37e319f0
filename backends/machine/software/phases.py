"""The phases that software runs: one that trains serves nothing, and an engine that serves trains nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol, TypeAlias, get_args

from ....ir.errors import UsageError
from ..files.catalogue import names, read_stack

Phase: TypeAlias = Literal["train", "prefill", "decode", "serve"]
PHASES: tuple[Phase, ...] = get_args(Phase)


class PhasedSoftware(Protocol):
    """A software stack, or a serving engine."""

    @property
    def name(self) -> str:
        """As people call it."""
        ...

    @property
    def phases(self) -> tuple[Phase, ...]:
        """What it runs."""
        ...


def check_phase(software: PhasedSoftware, phase: str, kind: Literal["stack", "engine"] = "stack") -> None:
    """Raise UsageError for a phase that a stack or an engine does not run, with those that do.

    >>> from slipstick.backends.machine.load import load_stack
    >>> check_phase(load_stack("vllm"), "decode")
    """
    if phase in software.phases:
        return
    runs = ", ".join(software.phases)
    able = ", ".join(running(phase, kind))
    raise UsageError(
        f"{kind} '{software.name}' runs {runs}, not {phase}: leave --{kind} out, or give one that does: {able}"
    )


def running(phase: str, kind: Literal["stack", "engine"]) -> Iterator[str]:
    """Yield the stacks or engines of the catalogue that run a phase."""
    for name in names(f"{kind}s"):
        phases = read_stack(name, kind=f"{kind}s").tree.get("phases")
        if not isinstance(phases, list) or phase in phases:
            yield name
