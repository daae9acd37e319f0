"""The search of a space of servers as a job: what any process needs to work on any of its blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field, fields
from pathlib import Path

import yaml

from ...cost.money import system_money
from ...ir.errors import PlanError, UsageError
from ...ir.graph import Workload
from ...ir.plan.divisibility import has_experts
from ...ir.records import dataclass
from ...ir.text.untrusted import read_bytes
from ..block import Block, cut
from ..goals import Goal, MetricLimit, goals_of
from ..machine import MachineChoice
from ..machine import contents as of_machines
from .rows import COLUMNS, KNOWN
from .servers import Servers, ServerTest
from .space import ServingSpace
from .units import SettingPart, pools_of, replicas_of
from .worker import ServingWorker

# Spaces of servers as text, and what their files hold: what tells one search from another.


def space_text(space: ServingSpace) -> str:
    """Return a space as YAML, without what is as usual."""
    usual = {f.name: f.default for f in fields(ServingSpace)}
    given = {name: value for name, value in asdict(space).items() if value != usual[name]}
    given["systems"] = [_said(machine) for machine in space.systems]
    return str(yaml.safe_dump({name: _plain(value) for name, value in given.items()}, sort_keys=False))


def _said(machine: MachineChoice) -> str | dict[str, object]:
    """A system by its name alone, where nothing else is said of it."""
    usual = asdict(MachineChoice(name=machine.name))
    given = {
        name: _plain(value) for name, value in asdict(machine).items() if value != usual[name] and name != "assumed"
    }
    return {"name": machine.name, **given} if given else machine.name


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def contents(space: ServingSpace) -> Iterator[str]:
    """Yield the digests of all files that a space names: what they hold is part of what is searched."""
    yield from of_machines(space.systems)
    for name in (space.model, *space.engines):
        if Path(name).suffix and Path(name).is_file():
            yield hashlib.sha256(read_bytes(Path(name))).hexdigest()


# Candidates of a block: enough that Python between arrays does not count, few enough that a lost one does not.
AT_ONCE = 16384


@dataclass(frozen=True, slots=True)
class ServingJob:
    """A search of servers; a part of it is a setting of its space.

    A candidate is a unit or a pair of them, numbers of workers, and requests in flight: one of the batches of the
    space, or behind these the most that meets the latencies asked for, where any are.

    Attributes:
        space: what is searched.
        has_experts: whether its model has experts to deal out.
        goals: what it is for, the first first.
        limits: what a server must keep besides.
        at_once: candidates of a block.
        said: the space as it was asked for, where that is another text than its own.
        runs: says which plans a software runs; None for all.
        servers: what was made so far in this process.
    """

    space: ServingSpace
    has_experts: bool
    goals: tuple[Goal, ...] = ()
    limits: tuple[MetricLimit, ...] = ()
    at_once: int = AT_ONCE
    said: str = ""
    runs: ServerTest | None = None
    servers: Servers = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make nothing yet."""
        object.__setattr__(self, "servers", Servers(self.space, self.runs))

    @property
    def digest(self) -> str:
        """What tells this search from any other."""
        asked = repr((self.has_experts, self.goals, self.limits, self.at_once))
        known = "\n".join((space_text(self.space), asked, *contents(self.space)))
        return hashlib.sha256(known.encode()).hexdigest()

    @property
    def text(self) -> str:
        """The space as YAML."""
        return self.said or space_text(self.space)

    @property
    def columns(self) -> Sequence[str]:
        """Numbers of servers, then metrics."""
        return COLUMNS

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of each row."""
        return KNOWN

    @property
    def words(self) -> Mapping[str, tuple[str, ...]]:
        """Of each column whose numbers stand for words, the words from 0 on."""
        return self.space.words

    @property
    def num_loads(self) -> int:
        """Candidates of each server."""
        return len(self.space.batches) + self.space.has_target

    def part(self, apart: bool) -> SettingPart:
        """Return the candidates of a setting with, or without, pools."""
        groups = pools_of(self.space, self.has_experts) if apart else replicas_of(self.space, self.has_experts)
        return SettingPart.of(tuple(groups), self.num_loads)

    def blocks(self) -> Sequence[Block]:
        """Return the blocks, in order."""
        of_kind = {apart: self.part(apart).num_candidates for apart in {s.apart for s in self.space.settings}}
        found: list[Block] = []
        for part, setting in enumerate(self.space.settings):
            found += cut(part, of_kind[setting.apart], self.at_once, len(found))
        return found

    def open(self) -> ServingWorker:
        """Return what works on blocks; graphs and systems are read as they are needed."""
        parts = {apart: self.part(apart) for apart in {s.apart for s in self.space.settings}}
        return ServingWorker(self.space, parts, self.servers, self.limits)


def serving_job(
    space: ServingSpace,
    goals: Sequence[str] = (),
    constraints: Sequence[str] = (),
    at_once: int = AT_ONCE,
    runs: ServerTest | None = None,
) -> ServingJob:
    """Return the search of a space, whose names are looked up, and whose model is recorded where it is not known.

    Args:
        space: what is searched.
        goals: metrics that should be small or large, as `tokens_per_s,usd_per_mtok`, the first first.
        constraints: limits of metrics besides those of latencies, as `usd_per_mtok<=2`.
        at_once: candidates of a block.
        runs: says which plans a software runs; None for all.

    Raises:
        UnknownNameError: a metric, a model, a system, an engine, a precision that is in no catalogue.
        UsageError: requests beyond the positions of the model; a space in which there is nothing.
        PlanError: degrees of experts of a model that has none.
    """
    from ...frontend.loading import check

    aims = goals_of(goals, KNOWN) if goals else ()
    limits = tuple(MetricLimit.of(text, KNOWN) for text in constraints)
    check(space.model, space.dtype)
    servers = Servers(space)
    refused = [servers.check(setting) for setting in space.settings]
    if refused[0] is not None and all(refused):
        raise PlanError(refused[0].message)
    graph = servers.graph(Workload.DECODE)
    most, longest = graph.max_positions, space.prompt + space.output
    if most and longest > most:
        raise UsageError(
            f"requests of {longest:,} tokens, prompt and answer, are beyond the {most:,} positions of '{graph.name}'; "
            f"with this prompt and answer at most {most:,} in all"
        )
    for line in unpriced(servers):
        if space.rented or space.basis == "build":
            raise UsageError(line)
    experts = has_experts(graph)
    asked = [f"ep={n}" for n in space.ep if n > 1]
    if asked and not experts:
        raise PlanError(f"{', '.join(asked)}: {graph.name} has no experts to deal out; leave it out (ep=1)")
    job = ServingJob(space, experts, aims, limits, at_once, runs=runs)
    if not job.blocks():
        raise UsageError(f"no server of {space.gpus} GPUs is in this space: {_narrow(space)}")
    return job


def unpriced(servers: Servers) -> Iterator[str]:
    """Yield a line for each system that cannot be priced: its rows have no numbers for money."""
    for setting in {s.machine: s for s in servers.space.settings}.values():
        try:
            system_money(servers.machine(setting)[0], 1, servers.space.terms)
        except UsageError as error:
            yield f"{setting.machine.name} is not priced: {error}"


def _narrow(space: ServingSpace) -> str:
    given = [(name, getattr(space, name)) for name in ("tp", "pp", "cp", "ep", "etp", "dp", "prefill_tp", "prefill_pp")]
    told = ", ".join(f"{name} {' or '.join(map(str, numbers))}" for name, numbers in given if numbers)
    return f"{told or 'pools take two GPUs at least'}; use more GPUs, or leave a degree out"
