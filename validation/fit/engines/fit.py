"""Tables of served requests to numbers of engines: which rows are fitted, chip by chip, and how near they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

import numpy as np

from ....frontend import GraphCache
from ....ir.errors import UnknownNameError, UsageError
from ....ir.records import dataclass
from ...inference.bench import InferenceBench
from ...inference.cases import ServedCase
from ...inference.engines import EngineRoom, chip_of
from ...inference.fitted import TABLE
from ...inference.outcomes import read_cases
from ...judge import read_tables
from ...results.statistics import Accuracy
from ...rows.split import ALL, HALF, in_first_half
from ...rows.tables import RowFault, Table, raise_all
from ..fitting import ROWS_PER_NUMBER, need_scipy
from ..stacks.fit import FittedNumber
from ..stacks.problem import least
from .problem import EngineProblem, EngineSample, samples_of
from .profiles import EngineProfile, profile_of

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFit:
    """The numbers of one engine on one chip as fitted, and how near served requests with it come.

    Attributes:
        profile: whose numbers.
        chip: on which chip.
        numbers: what was fitted.
        untold: paths of numbers that no row depends on; they stay.
        data_sets: those of the rows that moved the numbers.
        split: `half` of the configurations, or `all` of them.
        fit: accuracy on the quantities that were fitted.
        judged: accuracy on the others of the same data sets, None where there are none.
        num_excluded: documented outliers among the rows, in no fit.
    """

    profile: EngineProfile
    chip: str
    numbers: tuple[FittedNumber, ...]
    untold: tuple[str, ...]
    data_sets: tuple[str, ...]
    split: str
    fit: Accuracy
    judged: Accuracy | None
    num_excluded: int


@dataclass(slots=True)
class _Rows:
    """Cases of one chip, by what becomes of them."""

    seen: list[ServedCase] = field(default_factory=list)
    judging: list[ServedCase] = field(default_factory=list)
    excluded: list[ServedCase] = field(default_factory=list)

    def add(self, case: ServedCase, split: str) -> None:
        if case.excluded:
            self.excluded.append(case)
        elif not case.in_no_fit and (split == ALL or in_first_half(TABLE, case.group)):
            self.seen.append(case)
        else:
            self.judging.append(case)


def fit_engine(
    paths: Sequence[Path], name: str, report: Report, split: str = HALF, cache: GraphCache | None = None
) -> tuple[EngineFit, ...]:
    """Fit the numbers that an engine leaves free to served requests of its data sets, on each chip by itself.

    Args:
        paths: tables of served requests.
        name: the engine, by name of the catalogue or path.
        report: told how far it is.
        split: `half` of the configurations, so that the others judge, or `all`.
        cache: where recorded graphs are kept.

    Raises:
        UsageError: tables that cannot be read or are of another kind, an engine that says nothing of a fit, data sets
            that are not there or only judge, too few rows on every chip; scipy is missing.
    """
    need_scipy()
    profile = profile_of(name)
    found = []
    tables, kinds = read_tables(paths)
    raise_all(
        [
            f"{table.path}: engines are fitted to a table of served requests, and this one is of kind {kind.name}"
            for table, kind in zip(tables, kinds, strict=True)
            if kind.name != TABLE
        ]
    )
    for chip, rows in _rows(tables, profile, split, report).items():
        fit = _fit_on(chip, rows, profile, InferenceBench(EngineRoom(), cache, report), split)
        found += [] if fit is None else [fit]
    if not found:
        raise UsageError(
            f"too few rows for engine '{name}': each of its {len(profile.free)} free numbers needs {ROWS_PER_NUMBER} "
            "on a chip"
        )
    return tuple(found)


def _rows(tables: Sequence[Table], profile: EngineProfile, split: str, report: Report) -> dict[str, _Rows]:
    """Read the rows of a profile's data sets, by chip."""
    sets = {row.dataset for table in tables for row in table.rows}
    for name in profile.data_sets:
        if name not in sets:
            raise UnknownNameError.of("data set to fit", name, sets)
    found: dict[str, _Rows] = {}
    faults: list[RowFault] = []
    for table in tables:
        wanted = tuple(row for row in table.rows if row.dataset in profile.data_sets)
        cases, skipped = read_cases(Table(table.path, table.columns, wanted), faults)
        for case in cases.values():
            if case.engine == profile.engine:
                found.setdefault(chip_of(case.system), _Rows()).add(case, split)
        _say(Counter(skipped.values()), report)
    raise_all(faults)
    return found


def _fit_on(chip: str, rows: _Rows, profile: EngineProfile, bench: InferenceBench, split: str) -> EngineFit | None:
    """Fit on one chip; None where its rows cannot tell the numbers."""
    report = bench.report or (lambda line: None)
    bench.room.put(next(case.system for case in (*rows.seen, *rows.judging, *rows.excluded)), profile.plain(chip))
    samples, why = samples_of(rows.seen, bench)
    _say(why, report)
    if len(samples) < ROWS_PER_NUMBER * len(profile.free):
        report(f"{chip}: {len(samples)} quantities for {len(profile.free)} numbers are too few: left as they are")
        return None
    problem = EngineProblem(bench, profile.plain(chip), samples, profile.free)
    report(f"fitting {len(profile.free)} numbers of {profile.name} on {chip} to {len(samples)} quantities")
    found, idle = least(problem, report)
    numbers = np.where(idle, problem.start, problem.written(found))
    fitted = np.expm1(problem.residuals(numbers))
    unseen, _ = samples_of(rows.judging, bench)
    judged = np.expm1(EngineProblem(bench, problem.plain, unseen, problem.paths).residuals(numbers)) if unseen else None
    moved = zip(problem.paths, problem.start.tolist(), numbers.tolist(), idle.tolist(), strict=True)
    each = list(moved)
    return EngineFit(
        profile=profile,
        chip=chip,
        numbers=tuple(FittedNumber(p, before, x) for p, before, x, alone in each if not alone),
        untold=tuple(p for p, _, _, alone in each if alone),
        data_sets=_sets(samples),
        split=split,
        fit=Accuracy.of(fitted.tolist()),
        judged=None if judged is None else Accuracy.of(judged.tolist()),
        num_excluded=len(rows.excluded),
    )


def _sets(samples: Sequence[EngineSample]) -> tuple[str, ...]:
    return tuple(sorted({sample.case.row.dataset for sample in samples}))


def _say(why: Mapping[str, int], report: Report) -> None:
    for reason, rows in why.items():
        report(f"{rows} rows in no fit: {reason}")
