"""Cases to predictions: what they share is recorded once, lowered once and priced as one table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace

from ...backends.machine.system import System
from ...cost.step.stages import StageProgram
from ...driver.estimate import Estimates, Lowered, evaluate, lower
from ...frontend import GraphCache, config_of, load_config
from ...ir.errors import InternalError, SlipstickError
from ...ir.graph import Graph
from ...ir.plan import Family, PlanTable
from ...ir.plan.divisibility import check_divisibility
from ...ir.records import dataclass
from ...ir.types import DType
from .cases import TrainingCase, machine_of
from .machine_shop import MachineShop

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PreparedCases:
    """Cases that one lowered graph and one machine serve, as a table of plans."""

    cases: tuple[TrainingCase, ...]
    lowered: Lowered
    plans: PlanTable
    system: System


@dataclass(frozen=True, slots=True)
class RefusedCase:
    """A case that turned out to be impossible, and why."""

    case: TrainingCase
    reason: str


@dataclass
class TrainingBench:
    """Records and lowers what cases need, each once."""

    cache: GraphCache | None = None
    report: Report | None = None
    shop: MachineShop = field(default_factory=MachineShop)
    _graphs: dict[tuple[str, DType], Graph] = field(default_factory=dict)
    _lowered: dict[tuple[str, DType, Family], Lowered] = field(default_factory=dict)

    def prepare(self, cases: Sequence[TrainingCase]) -> Iterator[PreparedCases | RefusedCase]:
        """Yield cases in tables, in the order in which their first ones come."""
        for alike in _alike(cases):
            legal: list[TrainingCase] = []
            for case in alike:
                reason = self._reason(case)
                if reason:
                    yield RefusedCase(case, reason)
                else:
                    legal.append(case)
            if legal:
                yield self._prepared(legal)

    def _prepared(self, cases: Sequence[TrainingCase]) -> PreparedCases:
        first = cases[0]
        plans = PlanTable.of([c.plan for c in cases])
        return PreparedCases(tuple(cases), self._lower(first), plans, machine_of(first, self.shop))

    def _reason(self, case: TrainingCase) -> str:
        try:
            check_divisibility(self._lower(case).graph, case.plan)
        except InternalError:
            raise
        except SlipstickError as error:
            return str(error).splitlines()[0]
        return ""

    def _lower(self, case: TrainingCase) -> Lowered:
        return self._lowered_for(case, case.plan.family)

    def _lowered_for(self, case: TrainingCase, family: Family) -> Lowered:
        """Lower for a family; layouts on stages are numbers, so that all of them share one lowering."""
        key = (case.config, case.dtype, family)
        if key not in self._lowered:
            shared = replace(family, pp_layout="auto")
            same = family == shared
            self._lowered[key] = lower(self._graph(case), family) if same else self._laid(case, family, shared)
        return self._lowered[key]

    def _laid(self, case: TrainingCase, family: Family, shared: Family) -> Lowered:
        found = self._lowered_for(case, shared)
        return replace(found, stages=StageProgram.of(found.graph, family.pp_layout, family.recomputed_layers))

    def _graph(self, case: TrainingCase) -> Graph:
        key = (case.config, case.dtype)
        if key not in self._graphs:
            named = config_of(case.row.text("model") or case.row.id, json.loads(case.config))
            self._graphs[key] = load_config(named, element=case.dtype, cache=self.cache, report=self.report)
        return self._graphs[key]


def prepared(
    cases: Sequence[TrainingCase], cache: GraphCache | None = None, report: Report | None = None
) -> list[tuple[TrainingCase, Lowered, PlanTable, System]]:
    """Return what each case needs to be priced, alone; cases that turn out to be impossible are left out.

    Lowered graphs, systems and stacks are shared between cases, so that they may be used as keys by identity.
    """
    found = []
    for table in TrainingBench(cache, report).prepare(cases):
        if isinstance(table, PreparedCases):
            found += [(c, table.lowered, PlanTable.of([c.plan]), table.system) for c in table.cases]
    return found


def priced(table: PreparedCases) -> Estimates:
    """Return the estimates of the cases of a table, in their order."""
    return evaluate(table.lowered, table.system, table.plans)


def _alike(cases: Sequence[TrainingCase]) -> list[list[TrainingCase]]:
    found: dict[tuple[object, ...], list[TrainingCase]] = {}
    for case in cases:
        late = 0.0 if case.network is None else case.network.step_latency_s(case.plan.num_gpus)
        key = (case.config, case.dtype, case.plan.family, case.system, case.overrides, case.stack, late)
        found.setdefault(key, []).append(case)
    return list(found.values())
