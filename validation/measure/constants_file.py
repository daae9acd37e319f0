"""Constants fitted to a sweep, as a calibration beside the system file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from ...backends.kernels.limits import ConstantRange, limits_of
from ...backends.machine.files.catalogue import read_file
from ...backends.machine.files.system_tree import read_tree
from ...backends.machine.load import load_system
from ...backends.machine.system import System
from ...ir import __version__
from ...ir.text.files import write_whole
from ..fit.calibrate import KindFit
from ..fit.calibration_file import check, text_of, updated
from ..fit.fitting import fitted, log_errors, measured_of, with_fitted
from ..kernels.measured import CLASSES, MeasuredJudge
from ..results.statistics import Accuracy
from ..rows.cases import Judge
from ..rows.gather import CasePool
from ..rows.machine_room import base_layers
from ..rows.rows import Row
from ..rows.split import ALL, FittedKernel
from .device import Device
from .stopwatch import Tell


def start_calibration(path: Path, device: Device) -> None:
    """Write what a fit begins at: constants of eager PyTorch on a machine of the kind."""
    start = Path(__file__).parent / "starts" / f"{device.kind}.yaml"
    tree = read_tree(start.read_text(encoding="utf-8"), start.name)
    write_whole(path, text_of({**tree, "name": path.stem}, "What a fit begins at."))


def fit_sweep(
    tables: Mapping[str, Sequence[Mapping[str, str]]], system: Path, path: Path, tell: Tell
) -> tuple[KindFit, ...]:
    """Fit every kind of kernel to its rows and put the constants into the calibration of a system."""
    machine = load_system(system)
    fits = []
    for pool in _pools(tables, machine):
        tell(f"fitting {pool.cls} {pool.kind}: {len(pool.cases)} rows")
        fits.append(_fit(pool))
    tree = updated(
        {**read_file("calibration", path).tree, "name": path.stem}, fits, f"slipstick {__version__}", path.stem
    )
    check(tree, base_layers())
    heading = f"Constants of kernels as PyTorch runs them on {machine.chip.name}: `slipstick calibrate --device`."
    write_whole(path, text_of(tree, heading))
    return tuple(fits)


def _pools(tables: Mapping[str, Sequence[Mapping[str, str]]], machine: System) -> list[CasePool]:
    """Rows by class and kind; kinds that the start does not know are left to what carries over."""
    found: dict[tuple[str, str], CasePool] = {}
    for table, rows in tables.items():
        if table not in CLASSES:
            continue
        judge = cast("Judge[object]", MeasuredJudge(CLASSES[table]))
        for cells in rows:
            case = judge.case(Row(cells))
            constants: object = getattr(machine.kernels, case.cls)[case.kind]
            empty = CasePool(judge, machine, case.library, case.cls, case.kind, constants, (), ())
            pool = found.get((case.cls, case.kind), empty)
            found[case.cls, case.kind] = replace(pool, cases=(*pool.cases, case))
    return list(found.values())


def _all_of_one(pool: CasePool, limit: ConstantRange) -> str | None:
    """All constants are the machine's own: it is no part of a joint fit, and nothing is carried over from it."""
    return ""


def _fit(pool: CasePool) -> KindFit:
    done = with_fitted(pool, _all_of_one, fitted([pool], _all_of_one, to_the_ends=True))
    errors = np.expm1(log_errors(done, done.constants, measured_of(done)))
    sets = tuple(sorted({case.row.dataset for case in done.cases}))
    systems = tuple(sorted({case.system for case in done.cases}))
    names = list(limits_of(type(done.constants)))
    return KindFit(
        owner=done.system.chip.name,
        cls=done.cls,
        kind=done.kind,
        shared={name: getattr(done.constants, name) for name in names},
        by_library={},
        seen=FittedKernel(done.judge.name, sets, systems, ALL, joint=True),
        fit=Accuracy.of(errors.tolist()),
        judged=None,
        num_excluded=0,
    )
