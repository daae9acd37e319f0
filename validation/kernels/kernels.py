"""Kernels judged: each row's prediction beside its measurement, rows that share constants at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..results.outcomes import Outcome, Part
from ..rows.cases import Case, Judge
from ..rows.gather import CasePool, gather
from ..rows.machine_room import MachineRoom
from ..rows.split import FittedKernel, seen
from ..rows.tables import RowFault, Table


def judge_kernels(judge: Judge[object], table: Table, room: MachineRoom, faults: list[RowFault]) -> list[Outcome]:
    """Return one outcome a row, in the order of the table."""
    gathered = gather(judge, table, room, faults)
    placed = [
        (place, Outcome(row=table.rows[place], table=judge.name, part=Part.SKIPPED, reason=why))
        for place, why in gathered.skipped
    ]
    for pool in gathered.pools:
        placed += zip(pool.places, _outcomes(judge.name, pool, room), strict=True)
    return [outcome for _, outcome in sorted(placed, key=lambda pair: pair[0])]


def _outcomes(name: str, pool: CasePool, room: MachineRoom) -> Iterator[Outcome]:
    fits = room.fits(pool.cases[0].system, pool.cls, pool.kind)
    seconds = pool.judge.seconds(pool.cases, pool.system, pool.constants)
    for case, predicted in zip(pool.cases, np.asarray(seconds, dtype=np.float64).tolist(), strict=True):
        if not (np.isfinite(predicted) and predicted > 0.0):
            why = f"the model of {case.cls} '{case.kind}' gives no time above 0 for its sizes"
            yield Outcome(row=case.row, table=name, part=Part.SKIPPED, reason=why)
        else:
            yield Outcome(
                row=case.row,
                table=name,
                part=_part(name, case, fits),
                predicted=predicted,
                measured=case.measured_s,
                system=case.system,
                library=case.library,
                kind=case.kind,
                group=case.group,
                reason=case.outlier,
            )


def _part(name: str, case: Case[object], fits: tuple[FittedKernel, ...]) -> Part:
    if case.outlier:
        return Part.EXCLUDED
    return Part.FIT if seen(fits, name, case.row.dataset, case.system, case.group) else Part.JUDGED
