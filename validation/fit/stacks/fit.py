"""Tables of measured steps to numbers of stacks: which rows are fitted, which profiles move, how near they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ....frontend import GraphCache
from ....ir.errors import UsageError
from ....ir.records import dataclass
from ...results.statistics import Accuracy
from ...rows.split import HALF
from ...rows.tables import RowFault, Table, raise_all
from ...training.cases import TrainingCase
from ...training.fitted import TABLE
from ...training.judge import PreparedCases, TrainingBench
from ...training.machine_shop import MachineShop
from ...training.outcomes import read_cases
from ..fitting import ROWS_PER_NUMBER, need_scipy
from ..problem import fit
from ..profiles import FittedNumber, MeasuredRows, Profile, ProfileFit, Report, is_fitted, report_unused, tables_of
from .problem import StackPricer, StackProblem
from .profiles import Profiles, ProfileSlot, profiles_of

Errors = Sequence[tuple[TrainingCase, float]]


def fit_stacks(
    paths: Sequence[Path], names: Sequence[str], report: Report, split: str = HALF, cache: GraphCache | None = None
) -> tuple[ProfileFit, ...]:
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
    tables = tables_of(paths, TABLE, "stacks are fitted to a table of training steps", profiles.data_sets)
    rows = _rows(tables, profiles, split, report)
    bench = TrainingBench(cache, report)
    problem = StackProblem(_pricers(bench, rows.seen, report), profiles)
    _check(problem, profiles, rows)
    num = len(problem.slots)
    report(f"fitting {num} number{'s'[: num > 1]} of {', '.join(names)} to {_size(problem)} rows")
    found = fit(problem, report)
    values = problem.values(found.numbers)
    unseen = StackProblem(_pricers(bench, rows.judging, report), profiles)
    untold = frozenset(slot for slot, idle in zip(problem.slots, found.idle, strict=True) if idle)
    ends = _Ends(profiles, problem, values, untold, _errors(problem, values), _errors(unseen, values), rows.excluded)
    return tuple(_fit_of(profile, ends, split) for profile in profiles.members)


@dataclass(frozen=True, slots=True)
class _Ends:
    """The results of a fit, of all its profiles."""

    profiles: Profiles
    problem: StackProblem
    values: Mapping[ProfileSlot, float]
    untold: frozenset[ProfileSlot]
    fitted: Errors
    judged: Errors
    excluded: Sequence[TrainingCase]

    def of(self, profile: Profile, case: TrainingCase) -> bool:
        """Whether a step takes numbers of a profile, or of one that is like it."""
        return profile.name in self.profiles.of(case).profiles


def _rows(tables: Sequence[Table], profiles: Profiles, split: str, report: Report) -> MeasuredRows[TrainingCase]:
    """Read the rows of the profiles' data sets; those of stacks that take no number of theirs are left."""
    rows, faults, why = MeasuredRows[TrainingCase](), list[RowFault](), Counter[str]()
    shop = MachineShop()
    for table in tables:
        cases, skipped = read_cases(table, shop, faults)
        for case in cases.values():
            if case.row.dataset in profiles.of(case).data_sets:
                rows.add(case, case.outlier, is_fitted(TABLE, case.group, split))
            else:
                why[f"their stack, {case.stack}, takes nothing of {', '.join(profiles.names)}"] += 1
        why.update(skipped.values())
    raise_all(faults)
    report_unused(why, report)
    return rows


def _pricers(bench: TrainingBench, cases: Sequence[TrainingCase], report: Report) -> list[StackPricer]:
    found, why = list[StackPricer](), Counter[str]()
    for table in bench.prepare(cases):
        if isinstance(table, PreparedCases):
            found.append(StackPricer.of(table))
        else:
            why[table.reason] += 1
    report_unused(why, report)
    return found


def _check(problem: StackProblem, profiles: Profiles, rows: MeasuredRows[TrainingCase]) -> None:
    """UsageError where rows cannot tell the numbers."""
    num = _size(problem)
    if num < ROWS_PER_NUMBER * max(len(problem.slots), 1):
        raise UsageError(
            f"too few rows for {', '.join(profiles.names)}: {num} for {len(problem.slots)} numbers, and each needs "
            f"{ROWS_PER_NUMBER} ({len(rows.judging)} more only judge)"
        )
    for one in profiles.members:
        lost = [path for path in one.free if ProfileSlot(one.name, path) not in problem.slots]
        if lost:
            raise UsageError(f"no row that is fitted takes {', '.join(lost)} of stack '{one.name}'")


def _fit_of(profile: Profile, ends: _Ends, split: str) -> ProfileFit:
    mine = [slot for slot in (ProfileSlot(profile.name, path) for path in profile.free) if slot in ends.values]
    seen = [(case, error) for case, error in ends.fitted if ends.of(profile, case)]
    sets = {case.row.dataset for case, _ in seen}
    judged = [error for case, error in ends.judged if ends.of(profile, case) and case.row.dataset in sets]
    before = ends.problem.values(ends.problem.start)
    return ProfileFit(
        profile=profile,
        numbers=tuple(FittedNumber(s.path, before[s], ends.values[s]) for s in mine if s not in ends.untold),
        untold=tuple(slot.path for slot in mine if slot in ends.untold),
        together=ends.profiles.names,
        data_sets=tuple(sorted(sets)),
        split=split,
        fit=Accuracy.of([error for _, error in seen]),
        judged=Accuracy.of(judged) if judged else None,
        num_excluded=sum(ends.of(profile, case) and case.row.dataset in sets for case in ends.excluded),
    )


def _errors(problem: StackProblem, values: Mapping[ProfileSlot, float]) -> Errors:
    """Return each step with predicted / measured - 1 under the numbers of a fit."""
    errors = problem.residuals(np.asarray([values[slot] for slot in problem.slots]))
    pairs = zip(problem.pricers, errors, strict=True)
    return [pair for one, of in pairs for pair in zip(one.table.cases, np.expm1(of).tolist(), strict=True)]


def _size(problem: StackProblem) -> int:
    return sum(len(pricer.table.cases) for pricer in problem.pricers)
