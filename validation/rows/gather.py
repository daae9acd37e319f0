"""Rows of tables of kernels into cases: those that can be judged, and those that cannot with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...backends.machine.system import System
from ...ir.errors import NotUnderstoodError, UnknownNameError, UsageError
from ...ir.records import dataclass
from ..kernels.measured import judge_of
from .cases import Case, Judge
from .machine_room import MachineRoom, is_file
from .rows import NotJudged, Row
from .tables import RowFault, Table


@dataclass(frozen=True, slots=True)
class CasePool:
    """Cases that one system, library and kind of kernel share; `places` are where their rows stand among those read."""

    judge: Judge[object]
    system: System
    library: str
    cls: str
    kind: str
    constants: object
    cases: tuple[Case[object], ...]
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Gathered:
    """Cases in pools, and the rows that are in none: their places and why."""

    pools: tuple[CasePool, ...]
    skipped: tuple[tuple[int, str], ...]


def gather(judge: Judge[object], table: Table, room: MachineRoom, faults: list[RowFault]) -> Gathered:
    """Read the rows of a table; rows that cannot be read at all are added to `faults`."""
    skipped: list[tuple[int, str]] = []
    found: dict[tuple[str, str, str, str], list[tuple[int, Case[object]]]] = {}
    for place, row in enumerate(table.rows):
        case = _case(judge, table, row, faults)
        if isinstance(case, str):
            skipped.append((place, case))
        elif case is not None:
            found.setdefault((case.system, case.library, case.cls, case.kind), []).append((place, case))
    pools = []
    for placed in found.values():
        pool = _pool(judge, placed, room)
        if isinstance(pool, str):
            skipped += [(place, pool) for place, _ in placed]
        else:
            pools.append(pool)
    return Gathered(tuple(pools), tuple(skipped))


def _case(judge: Judge[object], table: Table, row: Row, faults: list[RowFault]) -> Case[object] | str | None:
    try:
        case = judge_of(judge, row).case(row)
        # A table of one machine names the machine's own file, which lies beside it.
        return replace(case, system=str(table.path.parent / case.system)) if is_file(case.system) else case
    except (NotJudged, UnknownNameError) as reason:
        return str(reason).splitlines()[0]
    except UsageError as error:
        faults.append(RowFault(table.path, row, str(error)))
        return None


def _pool(judge: Judge[object], placed: Sequence[tuple[int, Case[object]]], room: MachineRoom) -> CasePool | str:
    case = placed[0][1]
    judge = judge_of(judge, case.row)
    try:
        system = room.system(case.system)
        constants = room.constants(case.system, case.library, case.cls, case.kind)
        judge.seconds([case], system, constants)
    except (NotJudged, NotUnderstoodError, UnknownNameError) as reason:
        return str(reason).splitlines()[0]
    cases, places = tuple(c for _, c in placed), tuple(place for place, _ in placed)
    return CasePool(judge, system, case.library, case.cls, case.kind, constants, cases, places)
