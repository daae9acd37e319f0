"""Tables of kernels to fitted constants: which rows are fitted, which constants move, and how near they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...backends.kernels.limits import ConstantRange, Scope, limits_of
from ...ir.errors import UnknownNameError, UsageError
from ...ir.records import dataclass
from ..judge import read_tables
from ..kinds import KernelTable
from ..results.statistics import Accuracy
from ..rows.gather import CasePool, gather
from ..rows.machine_room import MachineRoom
from ..rows.split import ALL, HALF, FittedKernel, in_first_half
from ..rows.tables import RowFault, raise_all
from ..rows.where import conditions, selected
from .fitting import Owners, fitted, log_errors, measured_of, tells, with_fitted, with_values

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitChoice:
    """What a calibration is fitted to, and how.

    Attributes:
        where: conditions on rows, as `COLUMN=VALUE`.
        leave_out: systems whose rows are not used at all.
        split: `half` of the configurations, the others judge; or `all` of them.
        joint: every constant over all chips at once, in place of those of each chip by itself.
    """

    where: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()
    split: str = HALF
    joint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFit:
    """The constants of one kind of kernel as fitted, and how near they come.

    Attributes:
        owner: the chip, or nothing where it is for all.
        cls: the class of constants.
        kind: the kind.
        shared: constants for every library.
        by_library: constants of one library.
        seen: what was fitted.
        fit: accuracy on the rows that were fitted.
        judged: accuracy on the others, None where there are none.
        num_excluded: documented outliers among the rows, in no fit.
    """

    owner: str
    cls: str
    kind: str
    shared: dict[str, float]
    by_library: dict[str, dict[str, float]]
    seen: FittedKernel
    fit: Accuracy
    judged: Accuracy | None
    num_excluded: int


@dataclass(frozen=True, slots=True)
class CalibrationFits:
    """All fits, and why rows are in none: reason to number of rows."""

    fits: tuple[KindFit, ...]
    skipped: dict[str, int]


def calibrate(paths: Sequence[Path], choice: FitChoice, report: Report) -> CalibrationFits:
    """Fit the constants of kernels to the rows of tables; what is not fitted keeps the values of `default`.

    Raises:
        UsageError: files that cannot be read, are no tables of kernels or leave nothing to fit; scipy is missing.
    """
    room = MachineRoom("default", plain=choice.joint)
    pools, skipped = _pools(paths, choice, room)
    groups: dict[tuple[str, str, str], list[CasePool]] = {}
    for pool in pools:
        owner = "" if choice.joint else room.chip(pool.cases[0].system)
        groups.setdefault((owner, pool.cls, pool.kind), []).append(pool)
    found = []
    for (owner, cls, kind), of in groups.items():
        seen = [p for p in (_part(pool, choice.split, True) for pool in of) if p.cases]
        if not seen or not tells(seen, _together):
            rows = sum(len(pool.cases) for pool in seen)
            whose = f" of {owner}" if owner else ""
            skipped[f"the half to fit has {rows} rows, too few for the constants of {cls} '{kind}'{whose}"] = sum(
                len(p.cases) for p in of
            )
            continue
        report(f"fitting {cls} {kind}{f' of {owner}' if owner else ''}: {sum(len(p.cases) for p in seen)} rows")
        found.append(_kind_fit(owner, of, seen, choice, room))
    if not found:
        raise UsageError("nothing to fit: " + "; ".join(f"{n} rows: {why}" for why, n in skipped.items()))
    return CalibrationFits(tuple(found), skipped)


def _pools(paths: Sequence[Path], choice: FitChoice, room: MachineRoom) -> tuple[list[CasePool], dict[str, int]]:
    tables, kinds = read_tables(paths)
    faults: list[RowFault | str] = []
    pools: list[CasePool] = []
    skipped: dict[str, int] = {}
    for table, kind in zip(selected(tables, conditions(choice.where)), kinds, strict=True):
        if not isinstance(kind, KernelTable):
            faults.append(f"{table.path}: no constants are fitted to a table of kind {kind.name}")
            continue
        bad: list[RowFault] = []
        gathered = gather(kind.judge, table, room, bad)
        faults += bad
        pools += gathered.pools
        for _, why in gathered.skipped:
            skipped[why] = skipped.get(why, 0) + 1
    raise_all(faults)
    return _kept(pools, choice.leave_out), skipped


def _kept(pools: Sequence[CasePool], leave_out: Sequence[str]) -> list[CasePool]:
    systems = {pool.cases[0].system for pool in pools}
    for name in leave_out:
        if name not in systems:
            raise UnknownNameError.of("system to leave out", name, systems)
    return [pool for pool in pools if pool.cases[0].system not in leave_out]


def _part(pool: CasePool, split: str, seen: bool) -> CasePool:
    """Return the part of a pool that a fit sees, or the part that it does not; outliers are in neither."""
    name = pool.judge.name
    cases = tuple(
        case for case in pool.cases if not case.outlier and (split == ALL or in_first_half(name, case.group)) is seen
    )
    return replace(pool, cases=cases, places=())


def _kind_fit(
    owner: str, pools: Sequence[CasePool], seen: Sequence[CasePool], choice: FitChoice, room: MachineRoom
) -> KindFit:
    done = _joint(seen, room) if choice.joint else _fit(seen, _together)
    found = {(pool.system.name, pool.library): pool.constants for pool in done}
    unseen = [part for part in (_part(pool, choice.split, False) for pool in pools) if part.cases]
    judged = [replace(p, constants=found.get((p.system.name, p.library), p.constants)) for p in unseen]
    shared, by_library = _values(done, choice.joint)
    rows = [case for pool in done for case in pool.cases]
    sets, systems = (tuple(sorted(set(names))) for names in ([c.row.dataset for c in rows], [c.system for c in rows]))
    return KindFit(
        owner=owner,
        cls=done[0].cls,
        kind=done[0].kind,
        shared=shared,
        by_library=by_library,
        seen=FittedKernel(done[0].judge.name, sets, systems, choice.split, choice.joint),
        fit=_accuracy(done),
        judged=_accuracy(judged) if judged else None,
        num_excluded=sum(bool(case.outlier) for pool in pools for case in pool.cases),
    )


def _fit(pools: Sequence[CasePool], owners: Owners, alike: bool = False) -> list[CasePool]:
    values = fitted(pools, owners, alike)
    return [with_fitted(pool, owners, values) for pool in pools]


def _joint(pools: Sequence[CasePool], room: MachineRoom) -> list[CasePool]:
    """Fit what carries over while every chip and library has its own constants, then one of those for all chips.

    Rows tell the first, machines the second: there each library on each system has the same weight.
    """

    def apart(pool: CasePool, limit: ConstantRange) -> str:
        chip = room.chip(pool.cases[0].system)
        return {Scope.KERNEL: "", Scope.CHIP: chip, Scope.LIBRARY: f"{chip}/{pool.library}"}[limit.scope]

    carried = _fit(pools, apart)[0].constants
    kept = {name: getattr(carried, name) for name in _of_scope(carried, Scope.KERNEL)}
    return _fit([replace(pool, constants=with_values(pool.constants, kept)) for pool in pools], _together, alike=True)


def _together(pool: CasePool, limit: ConstantRange) -> str | None:
    """Return whom a constant belongs to when there is one chip, or no difference between chips."""
    return {Scope.KERNEL: None, Scope.CHIP: "", Scope.LIBRARY: pool.library}[limit.scope]


def _of_scope(constants: object, scope: Scope) -> list[str]:
    return [name for name, limit in limits_of(type(constants)).items() if limit.scope is scope]


def _values(pools: Sequence[CasePool], joint: bool) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Return the constants to write: those for every library, and those of each; libraries without rows keep theirs."""
    first = pools[0]
    kept = first.judge.fixed(first.cls, first.kind)
    moved = {scope: [n for n in _of_scope(first.constants, scope) if n not in kept] for scope in Scope}
    shared = [*(moved[Scope.KERNEL] if joint else ()), *moved[Scope.CHIP]]
    by_library = {
        pool.library: {name: getattr(pool.constants, name) for name in moved[Scope.LIBRARY]} for pool in pools
    }
    values = {name: getattr(first.constants, name) for name in shared}
    return values, {library: of for library, of in sorted(by_library.items()) if of}


def _accuracy(pools: Iterable[CasePool]) -> Accuracy:
    errors = [np.expm1(log_errors(pool, pool.constants, measured_of(pool))) for pool in pools]
    return Accuracy.of(np.concatenate(errors).tolist())
