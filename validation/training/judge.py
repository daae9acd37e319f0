"""Cases to predictions: what they share is recorded once, lowered once and priced as one table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

from ...backends.machine.system import System
from ...driver.estimate import Estimates, Lowered, evaluate
from ...explore.plans.lowerings import Lowerings
from ...frontend import GraphCache, config_of, load_config
from ...ir.errors import InternalError, SlipstickError
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
    _models: dict[tuple[str, DType], Lowerings] = field(default_factory=dict)
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
        key = (case.config, case.dtype, case.plan.family)
        if key not in self._lowered:
            self._lowered[key] = self._lowerings(case).of(case.plan.family)
        return self._lowered[key]

    def _lowerings(self, case: TrainingCase) -> Lowerings:
        key = (case.config, case.dtype)
        if key not in self._models:
            named = config_of(case.row.text("model") or case.row.id, json.loads(case.config))
            graph = load_config(named, element=case.dtype, cache=self.cache, report=self.report)
            self._models[key] = Lowerings(graph)
        return self._models[key]


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
