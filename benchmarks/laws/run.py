"""Draw cases, try every law, and keep count: plans, violations, the worst and where it is."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from time import monotonic

import numpy as np

from slipstick import GraphCache, load, load_system
from slipstick.backends.machine.software.engine import Engine
from slipstick.backends.machine.software.engine_file import load_engine
from slipstick.backends.machine.system import System
from slipstick.driver.estimate import Lowered, lower
from slipstick.driver.serve.tables import ServedModel
from slipstick.ir.errors import SlipstickError
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.plan import Family, Plan, PlanTable, make_plan

from .draw import drawn_family, drawn_plans
from .laws import NEAR, Array, Case, Outcome, of_answers, of_machines, of_more_gpus, of_more_work, of_tables
from .money import Serving, Single, of_money, of_serving
from .structure import of_families

# Plans drawn of a family; about a third are legal.
_DRAWN = 300
ENGINES = ("vllm", "sglang", "tensorrt-llm")


@dataclass(slots=True)
class Tally:
    """What was seen of one law."""

    plans: int = 0
    violations: int = 0
    worst: float = 0.0
    where: str = ""

    def one(self, excess: float, told: str) -> None:
        """Add one answer."""
        self.plans += 1
        if not excess <= NEAR:
            self.violations += 1
            if excess > self.worst or not self.where:
                self.worst, self.where = excess, told

    def add(self, other: Tally) -> None:
        """Add what another run saw."""
        self.plans += other.plans
        self.violations += other.violations
        if other.worst > self.worst or not self.where:
            self.worst, self.where = other.worst, other.where

    def count(self, found: Outcome, told: str, plans: PlanTable) -> None:
        """Add an outcome; `told` says of which model, machine and family."""
        self.plans += len(found.rows)
        broken = found.broken
        self.violations += int(broken.sum())
        if not broken.any():
            return
        k = int(np.nanargmax(np.where(broken, np.nan_to_num(found.excess, nan=np.inf), -np.inf)))
        if found.excess[k] > self.worst or not self.where:
            self.worst, self.where = float(found.excess[k]), f"{told} {plan_text(plans, int(found.rows[k]))}"


@dataclass(slots=True)
class Court:
    """Tries laws on random cases."""

    models: Sequence[str]
    systems: Sequence[str]
    draw: random.Random
    tallies: dict[str, Tally] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    plans: int = 0
    servers: int = 0
    seen: dict[str, set[str]] = field(default_factory=dict)

    def run(self, num_plans: int, seconds: float) -> None:
        """Try laws until so many plans were tried, or the time is over."""
        end = monotonic() + seconds
        while self.plans < num_plans and monotonic() < end:
            try:
                self.one()
            except SlipstickError as error:
                self._refuse(error)

    def one(self) -> None:
        """Draw a model, a machine and a family, and try every law on a table of its plans."""
        draw = self.draw
        model, system = draw.choice(self.models), draw.choice(self.systems)
        experts = has_experts(model)
        family = drawn_family(draw, experts)
        graph = graph_of(model, family.workload)
        lowered = lowered_of(model, family)
        plans = drawn_plans(draw.randrange(2**32), _DRAWN, family, graph)
        case = Case.of(lowered, machine_of(system), plans)
        if case is None:
            return
        self.plans += len(case.ready.plans)
        for name, value in (("model", model), ("system", system), ("schedule", family.schedule),
                            ("precision", family.precision), ("workload", str(family.workload))):  # fmt: skip
            self.seen.setdefault(name, set()).add(value)
        told = f"{model} {system} {family_text(family)}"
        self.singles(case, model, told)
        for found in (one for one in self.outcomes(case, model, experts) if len(one.rows)):
            self.tallies.setdefault(found.law, Tally()).count(found, told, case.ready.plans)

    def singles(self, case: Case, model: str, told: str) -> None:
        """Try laws of money on one plan, and those of requests on a server, every few cases."""
        lowered, plans, draw = case.lowered, case.ready.plans, self.draw
        row = draw.randrange(len(plans))
        if plans.family.workload is Workload.TRAIN:
            try:
                plan = single(plans, row)
                self._count(of_money(lowered, case.system, plan), f"{told} {plan_text(plans, row)}")
            except SlipstickError as error:
                self._refuse(error)
        try:
            engine = draw.choice(ENGINES)
            family = Family(workload=Workload.DECODE, kernels=draw.choice(["eager", "fused"]))
            both = (replace(family, workload=phase) for phase in (Workload.PREFILL, Workload.DECODE))
            tp = draw.choice([1, 2, 4, 8])
            plan = make_plan(num_gpus=tp, tp=tp, seq_len=8192, family=family)
            served = ServedModel(*(lowered_of(model, one) for one in both))
            one = Serving(served, case.system, plan, engine_of(engine, case.system.chip.name))
            self._count(of_serving(one, draw), f"{model} {case.system.name} {engine} tp={tp} {family.kernels}")
        except SlipstickError as error:
            self._refuse(error)

    def _count(self, found: Iterator[Single], told: str) -> None:
        self.servers += 1
        for law, excess in found:
            self.tallies.setdefault(law, Tally()).one(excess, told)

    def _refuse(self, error: SlipstickError) -> None:
        told = str(error).split(":")[0][:90]
        self.refused[told] = self.refused.get(told, 0) + 1

    def outcomes(self, case: Case, model: str, experts: bool) -> Iterator[Outcome]:
        """Yield what each law says of a case."""
        yield from of_answers(case)
        yield from of_machines(case, self.draw)
        yield from of_tables(case, self.draw)
        yield from of_more_work(case)
        yield from of_more_gpus(case)
        yield from of_families(case, lambda family: lowered_of(model, family), self.draw, experts)


@lru_cache(maxsize=64)
def graph_of(model: str, workload: Workload) -> Graph:
    """Read a model of the catalogue."""
    return load(model, workload=workload, cache=GraphCache.default())


@lru_cache(maxsize=24)
def lowered_of(model: str, family: Family) -> Lowered:
    """Lower it."""
    return lower(graph_of(model, family.workload), family)


def single(plans: PlanTable, row: int) -> Plan:
    """Return one plan of a table by itself."""

    def at(column: Array | None) -> int:
        return 1 if column is None else int(column[row])

    family = plans.family
    return make_plan(
        num_gpus=at(plans.num_gpus), tp=at(plans.tp), pp=at(plans.pp), cp=at(plans.cp), ep=at(plans.ep),
        dp=at(plans.dp), vpp=at(plans.vpp), cp_ulysses=at(plans.cp_ulysses),
        dp_shard=at(plans.dp_shard) if family.hsdp else None,
        micro_batch=at(plans.micro_batch), global_batch=int(plans.global_batch[row]), seq_len=at(plans.seq_len),
        capacity_factor=None if plans.capacity_factor is None else float(plans.capacity_factor[row]),
        expert_imbalance=1.0 if plans.expert_imbalance is None else float(plans.expert_imbalance[row]), family=family,
    )  # fmt: skip


@lru_cache(maxsize=64)
def engine_of(name: str, chip: str) -> Engine:
    """Read a serving engine of the catalogue for a chip."""
    return load_engine(name, chip)


@lru_cache(maxsize=64)
def machine_of(system: str) -> System:
    """Read a machine of the catalogue."""
    return load_system(system)


def has_experts(model: str) -> bool:
    """Whether a model of the catalogue routes tokens."""
    return any(word in model for word in ("mixtral", "deepseek", "gpt-oss", "-a3b", "-a22b"))


def family_text(family: Family) -> str:
    """Return what differs from the usual family."""
    usual = Family()
    words = {name: getattr(family, name) for name in Family.__dataclass_fields__}
    return " ".join(f"{name}={value}" for name, value in words.items() if value != getattr(usual, name))


def plan_text(plans: PlanTable, row: int) -> str:
    """Return the numbers of a plan that are not one."""
    given = ((name, getattr(plans, name)) for name in PlanTable.__dataclass_fields__)
    columns = {name: column for name, column in given if isinstance(column, np.ndarray)}
    return " ".join(f"{name}={column[row]:g}" for name, column in columns.items() if column[row] not in (0.0, 1.0))
