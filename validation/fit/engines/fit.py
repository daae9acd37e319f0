"""Tables of served requests to numbers of engines: which rows are fitted, chip by chip, and how near they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ....frontend import GraphCache
from ....ir.errors import UsageError
from ...inference.bench import InferenceBench
from ...inference.cases import ServedCase
from ...inference.engines import EngineRoom, chip_of
from ...inference.fitted import TABLE
from ...inference.outcomes import read_cases
from ...results.statistics import Accuracy
from ...rows.split import HALF
from ...rows.tables import RowFault, Table, raise_all
from ..fitting import ROWS_PER_NUMBER, need_scipy
from ..problem import fit
from ..profiles import FittedNumber, MeasuredRows, Profile, ProfileFit, Report, is_fitted, report_unused, tables_of
from .problem import EngineProblem, samples_of
from .profiles import engine_of, plain_engine, profile_of

Rows = MeasuredRows[ServedCase]


def fit_engine(
    paths: Sequence[Path], name: str, report: Report, split: str = HALF, cache: GraphCache | None = None
) -> tuple[ProfileFit, ...]:
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
    tables = tables_of(paths, TABLE, "engines are fitted to a table of served requests", profile.data_sets)
    for chip, rows in _rows(tables, profile, split, report).items():
        on_chip = _fit_on(chip, rows, profile, InferenceBench(EngineRoom(), cache, report), split)
        found += [] if on_chip is None else [on_chip]
    if not found:
        raise UsageError(
            f"too few rows for engine '{name}': each of its {len(profile.free)} free numbers needs {ROWS_PER_NUMBER} "
            "on a chip"
        )
    return tuple(found)


def _rows(tables: Sequence[Table], profile: Profile, split: str, report: Report) -> dict[str, Rows]:
    """Read the rows of a profile's data sets, by chip."""
    found: dict[str, Rows] = {}
    faults: list[RowFault] = []
    for table in tables:
        cases, skipped = read_cases(table, faults)
        for case in cases.values():
            if case.engine == engine_of(profile):
                fits = not case.in_no_fit and is_fitted(TABLE, case.group, split)
                found.setdefault(chip_of(case.system), Rows()).add(case, case.excluded, fits)
        report_unused(Counter(skipped.values()), report)
    raise_all(faults)
    return found


def _fit_on(chip: str, rows: Rows, profile: Profile, bench: InferenceBench, split: str) -> ProfileFit | None:
    """Fit on one chip; None where its rows cannot tell the numbers."""
    report, plain = bench.report or (lambda line: None), plain_engine(profile, chip)
    bench.room.put(next(case.system for case in (*rows.seen, *rows.judging, *rows.excluded)), plain)
    samples, why = samples_of(rows.seen, bench)
    report_unused(why, report)
    if len(samples) < ROWS_PER_NUMBER * len(profile.free):
        report(f"{chip}: {len(samples)} quantities for {len(profile.free)} numbers are too few: left as they are")
        return None
    problem = EngineProblem(bench, plain, samples, profile.free)
    report(f"fitting {len(profile.free)} numbers of {profile.name} on {chip} to {len(samples)} quantities")
    found = fit(problem, report)
    fitted = problem.residuals(found.numbers)[0]
    unseen, _ = samples_of(rows.judging, bench)
    judged = EngineProblem(bench, plain, unseen, problem.paths).residuals(found.numbers)[0]
    before, idle = problem.start.tolist(), dict(zip(problem.paths, found.idle.tolist(), strict=True))
    moved = map(FittedNumber, problem.paths, before, found.numbers.tolist())
    return ProfileFit(
        profile=profile,
        chip=chip,
        numbers=tuple(number for number in moved if not idle[number.path]),
        untold=tuple(path for path in problem.paths if idle[path]),
        data_sets=tuple(sorted({sample.case.row.dataset for sample in samples})),
        split=split,
        fit=Accuracy.of(np.expm1(fitted).tolist()),
        judged=Accuracy.of(np.expm1(judged).tolist()) if unseen else None,
        num_excluded=len(rows.excluded),
    )
