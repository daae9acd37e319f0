"""Cases that share a model, its types, degrees and machine share the times of its steps: a table, priced once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import field, replace

from ...backends.machine.software.engine import Engine
from ...backends.machine.system import System
from ...cost.serving.batching.times import StepTimes
from ...driver.estimate import Lowered, lower
from ...driver.serve.tables import ServedModel, step_times
from ...frontend import GraphCache, config_of, load_config
from ...ir.graph import Graph, Workload
from ...ir.plan import Family
from ...ir.records import dataclass
from ...ir.types import DType
from .cases import ServedCase
from .engines import EngineRoom
from .replicas import Replica

Report = Callable[[str], None]
# The longest request and the largest batch of a table are no less than these: neighbours then share one.
LONGEST, LARGEST = 4096, 512
# Tables of times that are kept while numbers of an engine move.
MOST_KEPT = 2000


@dataclass
class InferenceBench:
    """Records, lowers and prices what cases need, each once."""

    room: EngineRoom
    cache: GraphCache | None = None
    report: Report | None = None
    _graphs: dict[tuple[str, DType, Workload], Graph] = field(default_factory=dict)
    _lowered: dict[tuple[str, DType, Family], Lowered] = field(default_factory=dict)
    _times: dict[tuple[object, ...], StepTimes] = field(default_factory=dict)

    def engine(self, case: ServedCase) -> Engine:
        """Return the engine of a case on its chip, as it was started."""
        return case.settings.on(self.room.engine(case.engine, case.system))

    def system(self, case: ServedCase) -> System:
        """Return the system of a case as its engine runs it."""
        return self.room.system(case.system, case.engine)

    def times(self, case: ServedCase, replica: Replica) -> StepTimes:
        """Return the times of the steps of a replica of a case, for its lengths and batch at least.

        PlanError where a degree does not divide; other errors where the graph cannot be made.
        """
        system, engine = self.system(case), self.engine(case)
        longest = _next(float(case.lengths.total), LONGEST)
        most = max(engine.scheduler.max_num_seqs, _next(case.batch, LARGEST))
        scheduler = replace(engine.scheduler, max_num_seqs=most)
        key = (case.config, case.numerics, replica, case.system, case.engine, engine.tuned, scheduler, longest)
        if key not in self._times:
            plan = replica.plan(self._family(case, replica, Workload.DECODE), longest)
            self._times[key] = step_times(self._served(case, replica), system, plan, scheduler, longest)
        return self._times[key]

    def forget(self) -> None:
        """Give back memory of times that were priced under numbers that a fit has left behind."""
        if len(self._times) > MOST_KEPT:
            self._times.clear()

    def _served(self, case: ServedCase, replica: Replica) -> ServedModel:
        return ServedModel(*(self._lower(case, replica, phase) for phase in (Workload.PREFILL, Workload.DECODE)))

    def _family(self, case: ServedCase, replica: Replica, phase: Workload) -> Family:
        numerics, kernels = case.numerics, self.system(case).stack.decides.kernels
        served = Family(workload=phase, kernels=kernels, precision=numerics.precision, kv_dtype=numerics.kv_dtype)
        return replica.family(served, case.system)

    def _lower(self, case: ServedCase, replica: Replica, phase: Workload) -> Lowered:
        family = self._family(case, replica, phase)
        key = (case.config, case.numerics.dtype, family)
        if key not in self._lowered:
            self._lowered[key] = lower(self._graph(case, phase), family)
        return self._lowered[key]

    def _graph(self, case: ServedCase, phase: Workload) -> Graph:
        key = (case.config, case.numerics.dtype, phase)
        if key not in self._graphs:
            named = config_of(case.row.text("model"), json.loads(case.config))
            self._graphs[key] = load_config(named, phase, case.numerics.dtype, self.cache, self.report)
        return self._graphs[key]


def _next(size: float, least: int) -> int:
    """Return the next power of two."""
    found = least
    while found < size:
        found *= 2
    return found


def alike(cases: Sequence[ServedCase]) -> list[list[ServedCase]]:
    """Gather cases of one model, in the order in which their first ones come."""
    found: dict[str, list[ServedCase]] = {}
    for case in cases:
        found.setdefault(case.config, []).append(case)
    return list(found.values())
