"""Draw cases, try every law, and keep count: plans, violations, the worst and where it is."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from time import monotonic

import numpy as np

from slipstick import GraphCache, load, load_system
from slipstick.backends.machine.system import System
from slipstick.driver import Lowered, lower
from slipstick.ir.errors import SlipstickError
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.plan import Family, PlanTable

from .draw import drawn_family, drawn_plans
from .laws import Case, Outcome, of_answers, of_machines, of_more_gpus, of_more_work, of_tables
from .structure import of_families

# Plans drawn of a family; about a third are legal.
_DRAWN = 300


@dataclass(slots=True)
class Tally:
    """What was seen of one law."""

    plans: int = 0
    violations: int = 0
    worst: float = 0.0
    where: str = ""

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
    seen: dict[str, set[str]] = field(default_factory=dict)

    def run(self, num_plans: int, seconds: float) -> None:
        """Try laws until so many plans were tried, or the time is over."""
        end = monotonic() + seconds
        while self.plans < num_plans and monotonic() < end:
            try:
                self.one()
            except SlipstickError as error:
                told = str(error).split(":")[0][:90]
                self.refused[told] = self.refused.get(told, 0) + 1

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
        for found in self.outcomes(case, model, experts):
            self.tallies.setdefault(found.law, Tally()).count(found, told, case.ready.plans)

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
