"""A device from its name to files: sweep, tables, system, constants, and the step that judges them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...ir.errors import UsageError
from ..fit.calibrate import KindFit
from .check import Check, check, check_sizes
from .collectives import is_first
from .constants_file import fit_sweep, start_calibration
from .device import open_device
from .stopwatch import QUICK, Effort, Tell
from .sweep import run_sweep, write_sweep
from .tables import rows_of


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to measure: a kind of device, threads of the host, few sizes or all; whether a step judges the result."""

    device: str
    threads: int = 1
    quick: bool = False
    judged: bool = False


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What came of it: the files, how near each kind of kernel was fitted, and the steps that judge."""

    files: tuple[Path, ...]
    fits: tuple[KindFit, ...]
    checks: tuple[Check, ...]


def calibrate_device(wanted: Wanted, folder: Path, tell: Tell) -> Calibrated:
    """Measure the machine at hand and write what was found to a folder, each file whole.

    Under `torchrun` every rank takes part, and the first one fits and writes.

    Raises:
        UsageError: there is no such device, fewer than one thread, or no scipy to fit with.
    """
    if wanted.threads < 1:
        raise UsageError(f"--threads {wanted.threads}: 1 or more")
    device = open_device(wanted.device, wanted.threads, wanted.quick)
    effort = QUICK if wanted.quick else Effort()
    sweep = run_sweep(device, effort, tell)
    if not is_first():
        return Calibrated((), (), ())
    constants = folder / f"{device.kind}.calibration.yaml"
    start_calibration(constants, device)
    written = write_sweep(sweep, folder)
    fits = fit_sweep(rows_of(sweep.measured, written.origin), written.system, constants, tell)
    sizes = check_sizes(device, wanted.quick) if wanted.judged else ()
    checks = tuple(check(written.system, size, device, 5 if wanted.quick else 15, tell) for size in sizes)
    return Calibrated((written.system, constants, *written.tables), fits, checks)
