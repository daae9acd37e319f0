"""Rows of a table of training steps to outcomes: read, judged in processes, put beside what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed

from ...frontend import GraphCache
from ...ir.errors import InternalError, SlipstickError
from ...ir.host.children import process_pool
from ...ir.records import dataclass
from ..results.outcomes import Outcome, Part
from ..rows.publications import reason
from ..rows.reading import read_rows
from ..rows.rows import Row
from ..rows.tables import RowFault, Table
from .cases import TrainingCase, training_case
from .fitted import TABLE, StackRecords
from .judge import PreparedCases, RefusedCase, TrainingBench, priced
from .machine_shop import MachineShop

# Cases judged in several processes: rows of one model go together, and come back by their places in the table.

Report = Callable[[str], None]
Placed = Mapping[int, TrainingCase]

# Loads a process: several, so that none waits long for the last, and few, so that what loads share is read few times.
LOADS = 4
# Recording and lowering a model take as long as judging so many rows.
MODEL_ROWS = 25


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a case came to: the seconds of its step, or why there are none."""

    step_s: float = float("nan")
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CaseLoad:
    """Some models with their cases, each with its place in the table, and what is needed to judge them anywhere."""

    models: tuple[Placed, ...]
    cache: GraphCache | None
    calibration: str | None

    @property
    def num_rows(self) -> int:
        """Cases of all its models."""
        return sum(map(len, self.models))


def answers(
    cases: Placed, cache: GraphCache | None, calibration: str | None, jobs: int, report: Report | None = None
) -> dict[int, StepOutcome]:
    """Return the answer of each case by its place; the same whatever the number of processes."""
    found: dict[tuple[str, str], dict[int, TrainingCase]] = {}
    for place, case in cases.items():
        found.setdefault((case.config, str(case.dtype)), {})[place] = case
    models = list(found.values())
    if jobs <= 1 or len(models) <= 1:
        return answer(CaseLoad(tuple(models), cache, calibration), report)
    loads = [CaseLoad(tuple(part), cache, calibration) for part in dealt(models, LOADS * jobs)]
    return {place: one for part in _parallel(loads, jobs, report) for place, one in part.items()}


def answer(load: CaseLoad, report: Report | None = None) -> dict[int, StepOutcome]:
    """Judge the cases of a load, model by model."""
    bench = TrainingBench(load.cache, None, MachineShop(load.calibration))
    found: dict[int, StepOutcome] = {}
    for model in load.models:
        if report is not None:
            report(f"judging {len(model)} rows of {_name(model)}")
        places = {id(case): place for place, case in model.items()}
        for table in bench.prepare(list(model.values())):
            found |= {places[id(case)]: one for case, one in _answered(table)}
    return found


def dealt(models: Sequence[Placed], number: int) -> list[list[Placed]]:
    """Deal models into so many parts or fewer that take about as long: the largest first, each to the lightest part."""
    parts: list[list[Placed]] = [[] for _ in range(min(number, len(models)))]
    weights = [0] * len(parts)
    for model in sorted(models, key=lambda one: -len(one)):
        lightest = weights.index(min(weights))
        parts[lightest].append(model)
        weights[lightest] += len(model) + MODEL_ROWS
    return parts


def _parallel(loads: Sequence[CaseLoad], jobs: int, report: Report | None) -> Iterator[Mapping[int, StepOutcome]]:
    whole, done = sum(load.num_rows for load in loads), 0
    with process_pool(min(jobs, len(loads))) as pool:
        running = {pool.submit(answer, load): load for load in loads}
        for future in as_completed(running):
            done += running[future].num_rows
            if report is not None:
                report(f"judged {done} of {whole} rows")
            yield future.result()


def _answered(table: PreparedCases | RefusedCase) -> Iterator[tuple[TrainingCase, StepOutcome]]:
    if isinstance(table, RefusedCase):
        yield table.case, StepOutcome(reason=table.reason)
        return
    try:
        found = priced(table).metrics["step_time_s"]
    except InternalError:
        raise
    except SlipstickError as error:
        yield from ((case, StepOutcome(reason=str(error).splitlines()[0])) for case in table.cases)
        return
    for number, case in enumerate(table.cases):
        yield case, StepOutcome(float(found[number]))


def _name(model: Placed) -> str:
    return next(iter(model.values())).row.text("model")


def read_cases(
    table: Table, shop: MachineShop, faults: list[RowFault]
) -> tuple[dict[int, TrainingCase], dict[int, str]]:
    """Return the cases of a table by the places of their rows, and why the other rows have none."""
    return read_rows(table, lambda row: training_case(row, shop), faults)


def step_outcomes(
    table: Table,
    cache: GraphCache | None,
    calibration: str | None,
    jobs: int,
    report: Report | None,
    faults: list[RowFault],
) -> list[Outcome]:
    """Return the outcome of every row, in order."""
    cases, skipped = read_cases(table, MachineShop(calibration), faults)
    found = answers(cases, cache, calibration, jobs, report)
    placed = {place: _skipped(table.rows[place], why) for place, why in skipped.items()}
    records = StackRecords()
    for place, one in found.items():
        row = table.rows[place]
        placed[place] = outcome(cases[place], one, records, reason(row.source.causes, row.cells))
    return [placed[place] for place in sorted(placed)]


def outcome(case: TrainingCase, answer: StepOutcome, records: StackRecords, cause: str = "") -> Outcome:
    """Return one step beside its measurement; what was assumed stands as its reason."""
    if answer.reason:
        return _skipped(case.row, answer.reason)
    return Outcome(
        row=case.row,
        table=TABLE,
        part=part_of(case, records),
        predicted=answer.step_s,
        measured=case.measured_s,
        system=case.system,
        library=case.stack,
        kind="step",
        group=case.group,
        reason=case.outlier or "; ".join(case.assumed),
        cause=cause,
    )


def part_of(case: TrainingCase, records: StackRecords) -> Part:
    """Return whether numbers of its stack were fitted to a case, whether it judges them, or whether it is left out."""
    if case.outlier:
        return Part.EXCLUDED
    return Part.FIT if records.saw(case.stack, case.row.dataset, case.group) else Part.JUDGED


def _skipped(row: Row, why: str) -> Outcome:
    return Outcome(row=row, table=TABLE, part=Part.SKIPPED, reason=why)
