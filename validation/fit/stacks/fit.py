"""Tables of measured steps to numbers of stacks: which rows are fitted, which profiles move, how near they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

import numpy as np

from ....frontend import GraphCache
from ....ir.errors import UnknownNameError, UsageError
from ....ir.records import dataclass
from ...judge import read_tables
from ...results.statistics import Accuracy
from ...rows.split import ALL, HALF, in_first_half
from ...rows.tables import RowFault, Table, raise_all
from ...training.cases import TrainingCase
from ...training.fitted import TABLE
from ...training.judge import PreparedCases, TrainingBench
from ...training.machine_shop import MachineShop
from ...training.outcomes import read_cases
from ..fitting import ROWS_PER_NUMBER, need_scipy
from .pricer import StackPricer
from .problem import Solution, StackProblem, solve
from .profiles import Profiles, ProfileSlot, StackProfile, profiles_of

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class FittedNumber:
    """One number that was fitted: its path, what it was before, what it is now, in base units."""

    path: str
    before: float
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StackFit:
    """The numbers of one profile as fitted, and how near steps with it come.

    Attributes:
        profile: whose numbers.
        numbers: what was fitted.
        untold: paths of numbers that no step depends on; they stay.
        together: names of the profiles that shared the fit.
        data_sets: those of the rows that moved the numbers.
        split: `half` of the configurations, or `all` of them.
        fit: accuracy on the rows that were fitted.
        judged: accuracy on the others of the same data sets, None where there are none.
        num_excluded: documented outliers among the rows, in no fit.
    """

    profile: StackProfile
    numbers: tuple[FittedNumber, ...]
    untold: tuple[str, ...]
    together: tuple[str, ...]
    data_sets: tuple[str, ...]
    split: str
    fit: Accuracy
    judged: Accuracy | None
    num_excluded: int


@dataclass(slots=True)
class _Rows:
    """Steps that a fit is about, by what becomes of them."""

    seen: list[TrainingCase] = field(default_factory=list)
    judging: list[TrainingCase] = field(default_factory=list)
    excluded: list[TrainingCase] = field(default_factory=list)

    def add(self, case: TrainingCase, split: str) -> None:
        if case.outlier:
            self.excluded.append(case)
        elif split == ALL or in_first_half(TABLE, case.group):
            self.seen.append(case)
        else:
            self.judging.append(case)


def fit_stacks(
    paths: Sequence[Path], names: Sequence[str], report: Report, split: str = HALF, cache: GraphCache | None = None
) -> tuple[StackFit, ...]:
    """Fit the numbers that profiles leave free to measured steps of their data sets, all profiles together.

    Args:
        paths: tables of training steps.
        names: profiles, by name of the catalogue or path.
        report: told how far it is.
        split: `half` of the configurations, so that the others judge, or `all`.
        cache: where recorded graphs are kept.

    Raises:
        UsageError: tables that cannot be read or are of another kind, profiles that say nothing of a fit, data sets
            that are not there or only judge, too few rows; scipy is missing.
    """
    need_scipy()
    profiles = profiles_of(names)
    tables, kinds = read_tables(paths)
    raise_all(
        [
            f"{table.path}: stacks are fitted to a table of training steps, and this one is of kind {kind.name}"
            for table, kind in zip(tables, kinds, strict=True)
            if kind.name != TABLE
        ]
    )
    rows = _rows(tables, profiles, split, report)
    bench = TrainingBench(cache, report)
    pricers = _pricers(bench, rows.seen, report)
    problem = StackProblem.of(pricers, profiles)
    _check(problem, profiles, rows)
    num = len(problem.slots)
    report(f"fitting {num} number{'s'[: num > 1]} of {', '.join(names)} to {sum(map(_size, pricers))} rows")
    found = solve(problem, report)
    unseen = StackProblem.of(_pricers(bench, rows.judging, report), profiles)
    ends = _Ends(profiles, problem, found, tuple(_errors(problem, found)), tuple(_errors(unseen, found)), rows)
    return tuple(_fit_of(profile, ends, split) for profile in profiles.members)


@dataclass(frozen=True, slots=True)
class _Ends:
    """What a fit came to, of all its profiles."""

    profiles: Profiles
    problem: StackProblem
    found: Solution
    fitted: tuple[tuple[TrainingCase, float], ...]
    judged: tuple[tuple[TrainingCase, float], ...]
    rows: _Rows

    def of(self, profile: StackProfile, case: TrainingCase) -> bool:
        """Whether a step takes numbers of a profile, or of one that is like it."""
        return profile.name in self.profiles.of(case).profiles


def _rows(tables: Sequence[Table], profiles: Profiles, split: str, report: Report) -> _Rows:
    """Read the rows of the profiles' data sets; those of stacks that take no number of theirs are left."""
    sets = {row.dataset for table in tables for row in table.rows}
    for name in profiles.data_sets:
        if name not in sets:
            raise UnknownNameError.of("data set to fit", name, sets)
    rows, faults, why = _Rows(), list[RowFault](), dict[str, int]()
    shop = MachineShop()
    for table in tables:
        wanted = tuple(row for row in table.rows if row.dataset in profiles.data_sets)
        cases, skipped = read_cases(Table(table.path, table.columns, wanted), shop, faults)
        for case in cases.values():
            if case.row.dataset in profiles.of(case).data_sets:
                rows.add(case, split)
            else:
                _count(why, f"their stack, {case.stack}, takes nothing of {', '.join(profiles.names)}")
        for reason in skipped.values():
            _count(why, reason)
    raise_all(faults)
    _say(why, report)
    return rows


def _pricers(bench: TrainingBench, cases: Sequence[TrainingCase], report: Report) -> list[StackPricer]:
    found, why = list[StackPricer](), dict[str, int]()
    for table in bench.prepare(cases):
        if isinstance(table, PreparedCases):
            found.append(StackPricer.of(table))
        else:
            _count(why, table.reason)
    _say(why, report)
    return found


def _check(problem: StackProblem, profiles: Profiles, rows: _Rows) -> None:
    """UsageError where rows cannot tell the numbers."""
    num = sum(map(_size, problem.pricers))
    if num < ROWS_PER_NUMBER * max(len(problem.slots), 1):
        raise UsageError(
            f"too few rows for {', '.join(profiles.names)}: {num} for {len(problem.slots)} numbers, and each needs "
            f"{ROWS_PER_NUMBER} ({len(rows.judging)} more only judge)"
        )
    for one in profiles.members:
        lost = [path for path in one.free if ProfileSlot(one.name, path) not in problem.slots]
        if lost:
            raise UsageError(f"no row that is fitted takes {', '.join(lost)} of stack '{one.name}'")


def _fit_of(profile: StackProfile, ends: _Ends, split: str) -> StackFit:
    mine = [slot for slot in (ProfileSlot(profile.name, path) for path in profile.free) if slot in ends.found.values]
    seen = [(case, error) for case, error in ends.fitted if ends.of(profile, case)]
    sets = {case.row.dataset for case, _ in seen}
    judged = [error for case, error in ends.judged if ends.of(profile, case) and case.row.dataset in sets]
    before = ends.problem.values(ends.problem.start)
    return StackFit(
        profile=profile,
        numbers=tuple(
            FittedNumber(s.path, before[s], ends.found.values[s]) for s in mine if s not in ends.found.untold
        ),
        untold=tuple(slot.path for slot in mine if slot in ends.found.untold),
        together=ends.profiles.names,
        data_sets=tuple(sorted(sets)),
        split=split,
        fit=Accuracy.of([error for _, error in seen]),
        judged=Accuracy.of(judged) if judged else None,
        num_excluded=sum(ends.of(profile, case) and case.row.dataset in sets for case in ends.rows.excluded),
    )


def _errors(problem: StackProblem, found: Solution) -> Iterator[tuple[TrainingCase, float]]:
    """Each step with predicted / measured - 1."""
    for pricer, errors in zip(problem.pricers, problem.by_table(found.values), strict=True):
        yield from zip(pricer.table.cases, np.expm1(errors).tolist(), strict=True)


def _size(pricer: StackPricer) -> int:
    return len(pricer.table.cases)


def _count(why: dict[str, int], reason: str) -> None:
    why[reason] = why.get(reason, 0) + 1


def _say(why: Mapping[str, int], report: Report) -> None:
    for reason, rows in why.items():
        report(f"{rows} rows in no fit: {reason}")
