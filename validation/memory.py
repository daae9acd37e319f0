"""Peak memory: what a GPU is predicted to hold beside what was measured, row by row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import field, replace

from ..backends.machine.load import load_stack
from ..cost.memory.peak import Holding
from ..cost.step.stages import StageProgram
from ..driver.estimate import Lowered, lower
from ..frontend import GraphCache, config_of, load_config
from ..ir.errors import InternalError, SlipstickError
from ..ir.graph import Graph
from ..ir.plan import Family, PlanTable
from ..ir.plan.divisibility import check_divisibility
from ..ir.records import dataclass
from ..ir.sizes.points import Points
from .plans import plan_of, stack_of
from .results.outcomes import Label, Outcome, Part
from .rows.models import architecture
from .rows.rows import NotJudged, Row

# Part of a device's memory that a configuration may fill and still be said to fit: beyond it allocators thrash.
SAFE_SHARE = 0.9
# How the note of a row says that the values are those of the last rank, which is on the last stage.
LAST_RANK = "rank that logs"
_CAPACITY = re.compile(r"([0-9]+) ?GB")


@dataclass(frozen=True, slots=True)
class Judged:
    """One row with its prediction; `quantity` says which of the two peaks both are."""

    row: Row
    quantity: str
    predicted_bytes: float
    measured_bytes: float
    assumed: tuple[str, ...]

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.predicted_bytes / self.measured_bytes - 1.0


@dataclass(frozen=True, slots=True)
class FitsRow:
    """One row that says whether a configuration ran."""

    row: Row
    predicted_bytes: float
    capacity_bytes: float
    fitted: bool

    @property
    def fits(self) -> bool:
        """Whether it is predicted to run."""
        return self.predicted_bytes <= SAFE_SHARE * self.capacity_bytes


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One row without a prediction, and why."""

    row: Row
    reason: str


Verdict = Judged | FitsRow | LeftOut


@dataclass
class MemoryJudge:
    """Judges rows one by one; what rows have in common is recorded and lowered once."""

    cache: GraphCache | None = None
    report: Callable[[str], None] | None = None
    _graphs: dict[str, Graph] = field(default_factory=dict)
    _lowered: dict[tuple[str, Family], Lowered] = field(default_factory=dict)

    def judge(self, rows: Iterable[Row]) -> list[Verdict]:
        """Return the verdicts of the rows, several for a row that says several things."""
        return [verdict for row in rows for verdict in self._verdicts(row)]

    def _verdicts(self, row: Row) -> list[Verdict]:
        try:
            if row.text("measured_or_analytical").startswith("analytical"):
                raise NotJudged("its values are computed in its source, not measured")
            return self._predicted(row)
        except InternalError:
            raise
        except SlipstickError as reason:
            return [LeftOut(row, str(reason).splitlines()[0])]

    def _predicted(self, row: Row) -> list[Verdict]:
        held, assumed = self._bytes(row)
        found: list[Verdict] = []
        quantity, measured = _measured(row)
        if measured is not None:
            found.append(Judged(row, quantity, held[quantity], measured, assumed))
        if row.text("fits"):
            found.append(FitsRow(row, held["reserved"], _capacity_bytes(row), row.flag("fits")))
        return found

    def _bytes(self, row: Row) -> tuple[dict[str, float], tuple[str, ...]]:
        """Return the peaks a row is predicted to have: what tensors take, and what the allocator holds for them."""
        row, _ = row.completed()
        stack = load_stack(stack_of(row))
        model = architecture(row)
        plan = plan_of(row, stack)
        family = replace(plan.family, pp_layout="auto")
        lowered = self._lower(row, config_of(row.text("model") or "model", model.fields).text, family)
        check_divisibility(lowered.graph, plan)
        plans = PlanTable.of([plan])
        points = Points(plans)
        staging = StageProgram.of(lowered.graph, plan.family.pp_layout).evaluate(plans, points)
        found = {}
        for quantity, packing in (("allocated", 1.0), ("reserved", stack.memory_packing)):
            holding = Holding(packing, stack.gradient_copy, last=row.text("note").startswith(LAST_RANK))
            parts = lowered.memory.evaluate(points, stack.workspace_bytes, plans, staging, holding)
            found[quantity] = float(sum(part[0] for part in parts.values()))
        return found, model.assumed

    def _lower(self, row: Row, config: str, family: Family) -> Lowered:
        key = (config, family)
        if key not in self._lowered:
            self._lowered[key] = lower(self._graph(row, config), family)
        return self._lowered[key]

    def _graph(self, row: Row, config: str) -> Graph:
        if config not in self._graphs:
            import json

            named = config_of(row.text("model") or row.id, json.loads(config))
            self._graphs[config] = load_config(named, cache=self.cache, report=self.report)
        return self._graphs[config]


def memory_outcome(verdict: Verdict) -> Outcome:
    """Return a verdict as judging any table gives it; no constant is fitted to these rows, so all of them judge."""
    row = verdict.row
    if isinstance(verdict, LeftOut):
        return Outcome(row=row, table="memory", part=Part.SKIPPED, unit="B", reason=verdict.reason)
    if isinstance(verdict, FitsRow):
        label = Label(verdict.fitted, verdict.fits)
        return Outcome(
            row=row,
            table="memory",
            part=Part.JUDGED,
            unit="B",
            predicted=verdict.predicted_bytes,
            kind="reserved",
            label=label,
        )
    return Outcome(
        row=row,
        table="memory",
        part=Part.JUDGED,
        unit="B",
        predicted=verdict.predicted_bytes,
        measured=verdict.measured_bytes,
        kind=verdict.quantity,
        reason="; ".join(verdict.assumed),
    )


def _measured(row: Row) -> tuple[str, float | None]:
    """Return which peak a row gives, and its bytes; what tensors take goes before what is held for them."""
    allocated = row.measured("peak_allocated_bytes")
    if allocated is not None:
        return "allocated", allocated
    reserved, gib = row.measured("peak_reserved_bytes"), row.measured("peak_reserved_gib")
    if reserved is None and gib is None and not row.text("fits"):
        raise NotJudged("it gives no peak memory")
    return "reserved", gib * 2**30 if reserved is None and gib is not None else reserved


def _capacity_bytes(row: Row) -> float:
    """Read the size of a device off its name: `H100-SXM-80GB`."""
    found = _CAPACITY.search(row.text("accelerator"))
    if found is None:
        raise NotJudged(f"the accelerator '{row.text('accelerator')}' does not say its memory, as in H100-80GB")
    return float(found.group(1)) * 2**30
