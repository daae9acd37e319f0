"""Pools of equal servers: what one replica runs, how many there are, and whether they prefill, decode or do both."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ...ir.plan import plan_of
from ...ir.plan.word import changed
from ...ir.records import dataclass
from ..export import ExportSubject, Flag, flag_words
from ..rows import Framework

_NIXL = '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'
# What disaggregated workers of each engine are told, of vLLM's docs/features/nixl_connector_usage.md and SGLang's
# server_args.py; TensorRT-LLM's roles are told by its orchestrator.
_ROLES: Mapping[str, Sequence[Flag]] = MappingProxyType(
    {
        "vllm": (("--kv-transfer-config", _NIXL),),
        "sglang": (("--disaggregation-mode", "{role}"), ("--disaggregation-transfer-backend", "nixl")),
        "tensorrt-llm": (("cache_transceiver_config.backend", "DEFAULT"),),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPool:
    """Servers of one kind.

    Attributes:
        role: `serve`, or `prefill` and `decode` of a disaggregated fleet.
        engine: vocabulary of their engine.
        subject: one of them.
        replicas: how many there are.
    """

    role: str
    engine: Framework
    subject: ExportSubject
    replicas: int

    @property
    def num_gpus(self) -> int:
        """GPUs of one server."""
        return self.subject.plan.num_gpus

    @property
    def model(self) -> str:
        """Where the weights are."""
        return self.subject.weights or self.subject.model

    @property
    def name(self) -> str:
        """Name of the pool's objects: letters, digits and dashes."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self.subject.model.rsplit('/', 1)[-1].lower()}-{self.role}").strip("-")

    @property
    def flags(self) -> Sequence[Flag]:
        """Settings of the engine, without those of the role."""
        return self.engine.flags(self.subject)

    @property
    def role_flags(self) -> Sequence[Flag]:
        """Settings of a worker of a disaggregated fleet; none of a server that does both."""
        flags = () if self.role == "serve" else _ROLES.get(self.engine.name, ())
        return [(name, text.replace("{role}", self.role) if isinstance(text, str) else text) for name, text in flags]

    @property
    def script(self) -> str:
        """The command of a server for a shell."""
        assert self.engine.render is not None
        return self.engine.render(self.subject, (*self.flags, *self.role_flags))

    @property
    def lost(self) -> Sequence[str]:
        """What the engine cannot say of the plan."""
        return tuple(self.engine.lost(self.subject))

    def arguments(self, flags: Sequence[Flag]) -> list[str]:
        """Return flags as words of a container."""
        return [word for flag in flags for word in flag_words(*flag)]


def pool_of(engine: Framework, subject: ExportSubject, role: str = "serve") -> ServerPool:
    """Return the pool of a plan: replicas that share no experts are servers of their own."""
    family, plan = subject.family, subject.plan
    if plan.dp == 1 or family.ep or family.etp_dp:
        return ServerPool(role=role, engine=engine, subject=subject, replicas=1)
    one = plan_of(changed(plan.words, {"num_gpus": plan.num_gpus // plan.dp, "global_batch": None}))
    return ServerPool(role=role, engine=engine, subject=replace(subject, plan=one), replicas=plan.dp)
