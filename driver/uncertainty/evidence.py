"""What an answer rests on as a whole: whether its chip and its software were ever measured, and what else is like them.

`backends/calibration/evidence.csv` has a line for each model, chip, software and precision of which there are
measurements; `make errors` writes it from the tables of `tests/validation`. Evidence is of a quantity: servers that
were measured say nothing of a training step, nor steps of the memory that they take.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType

from ... import backends
from ...backends.machine.chip import Chip, maker_of
from ...backends.machine.system import System
from ...ir.records import dataclass
from .quantities import MEMORY, alike

# Tables of kernels, which say of a chip what any software on it builds on.
KERNELS = frozenset({"attention", "elementwise", "gemm", "moe"})
# Tables of whole runs, which say of software how near its numbers come.
RUNS = frozenset({"inference", "memory", "runs", "training"})
# Names of software that costs nothing beside its kernels.
IDEAL = frozenset({"default", "ideal"})


class ChipEvidence(StrEnum):
    """How near measurements come to a chip, the nearest first."""

    MEASURED = "this chip"
    SISTER = "its design"
    MAKER = "its maker"
    NONE = "no relative"


class SoftwareEvidence(StrEnum):
    """How near measurements come to software on a chip, the nearest first: another software misleads more than none."""

    MEASURED = "this software on it"
    ELSEWHERE = "this software elsewhere"
    IDEAL = "no software"
    BORROWED = "other software"


@dataclass(frozen=True, slots=True)
class Backed:
    """What is measured of one model on one chip by one software.

    Attributes:
        table: the table of measurements.
        model: as its publication calls it; empty of kernels.
        chip: as its maker calls it.
        design: of its compute dies, where it shares them with others.
        software: stack or engine, of kernels their library.
        precision: as published.
        quantity: step, ttft, tpot, e2el, throughput, memory; of kernels their kind.
        rows: measurements with a prediction.
        judged: those of them to which nothing was fitted.
        median: of the size of the relative error of these, as a fraction; of all where none judges.
        p90: its 90th percentile, likewise.
        failed: rows without a prediction.
        why: the most frequent reason of these.
    """

    table: str
    model: str
    chip: str
    design: str
    software: str
    precision: str
    quantity: str
    rows: int
    judged: int
    median: float
    p90: float
    failed: int
    why: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What an answer rests on: how near measurements come to its chip and to its software.

    Attributes:
        silicon: of the chip.
        software: of the software.
        beyond: |ln| of the number of chip or network that is farthest from the machine that was measured.
    """

    silicon: ChipEvidence
    software: SoftwareEvidence
    beyond: float = 0.0

    @property
    def is_measured(self) -> bool:
        """Whether this software was measured on this chip."""
        return (self.silicon, self.software) == (ChipEvidence.MEASURED, SoftwareEvidence.MEASURED)

    def __str__(self) -> str:
        """As `this chip and this software on it`, and how far a number of the machine is outside."""
        return f"{self.silicon} and {self.software}{self.outside}"

    @property
    def outside(self) -> str:
        """Say how far the number that is farthest from the measured machine is; nothing where none is."""
        return f", {math.exp(self.beyond):.3g} x outside what was measured" if self.beyond else ""


@cache
def backed() -> tuple[Backed, ...]:
    """Return every line of what is measured."""
    file = Path(backends.__path__[0]) / "calibration" / "evidence.csv"
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    texts = {f.name for f in fields(Backed) if f.type == "str"}
    found = []
    for row in rows:
        words = {name: row[name] for name in texts}
        rows_, judged, failed = (int(row[name]) for name in ("rows", "judged", "failed"))
        median, p90 = float(row["median"]), float(row["p90"])
        found.append(Backed(**words, rows=rows_, judged=judged, median=median, p90=p90, failed=failed))
    return tuple(found)


def evidence_of(system: System, software: str, quantity: str = "") -> Evidence:
    """Return what an answer on a system rests on.

    Args:
        system: the machine.
        software: the name of its stack or, of a server, its engine.
        quantity: one of QUANTITIES, of which measurements have to be; empty for any.
    """
    # Rates of a machine move no byte of what it holds.
    beyond = 0.0 if quantity == MEMORY else system.beyond
    silicon = silicon_of(system.chip, bool(beyond), quantity)
    beyond = 0.0 if silicon is ChipEvidence.NONE else beyond
    return Evidence(silicon, software_of(software, system.chip.name, quantity), beyond)


def silicon_of(chip: Chip, changed: bool = False, quantity: str = "") -> ChipEvidence:
    """Return how near measurements come to a chip; one whose numbers were set by hand is at best a sister."""
    found = silicon_named(chip.name, chip.design, bool(chip.measured_as), quantity=quantity)
    return ChipEvidence.SISTER if changed and found is ChipEvidence.MEASURED else found


def silicon_named(
    name: str, design: str = "", has_sister: bool = False, kernels_only: bool = False, quantity: str = ""
) -> ChipEvidence:
    """Return how near measurements come to a chip.

    Args:
        name: as its maker calls it.
        design: of its compute dies; empty where it shares them with no other.
        has_sister: whether it is known to be the silicon of a measured chip.
        kernels_only: whether what whole runs say is left out.
        quantity: what whole runs have to be of; empty for any.
    """
    measured = _measured_chips(() if kernels_only else _runs_of(quantity))
    if name in measured:
        return ChipEvidence.MEASURED
    if has_sister or (design and design in measured.values()):
        return ChipEvidence.SISTER
    maker = maker_of(name)
    return ChipEvidence.MAKER if maker and maker in map(maker_of, measured) else ChipEvidence.NONE


def software_of(name: str, chip: str, quantity: str = "") -> SoftwareEvidence:
    """Return how near measurements come to a stack or an engine on a chip, the chip as its maker calls it."""
    if name in IDEAL:
        return SoftwareEvidence.IDEAL
    chips = _chips_of(name, _runs_of(quantity))
    if not chips:
        return SoftwareEvidence.BORROWED
    return SoftwareEvidence.MEASURED if chip in chips else SoftwareEvidence.ELSEWHERE


def are_sisters(chip: str, other: str) -> bool:
    """Whether two chips, as their maker calls them, are known to have the same compute dies."""
    designs = _measured_chips(None)
    return chip == other or (bool(designs.get(chip)) and designs[chip] == designs.get(other))


def forget() -> None:
    """Read what is measured again when it is next asked for."""
    for kept in (backed, _measured_chips, _chips_of):
        kept.cache_clear()


def _runs_of(quantity: str) -> tuple[str, ...] | None:
    """Quantities of whole runs that speak for one; None for any."""
    return alike(quantity) if quantity else None


@cache
def _measured_chips(quantities: tuple[str, ...] | None) -> Mapping[str, str]:
    """Chips with measurements of kernels, or of whole runs of some quantities, each with its design."""
    there = (one for one in backed() if one.rows and one.chip)
    kept = (one for one in there if quantities is None or one.table in KERNELS or one.quantity in quantities)
    return MappingProxyType({one.chip: one.design for one in kept})


@cache
def _chips_of(software: str, quantities: tuple[str, ...] | None) -> frozenset[str]:
    """Chips on which whole runs of a software were measured in some quantities."""
    whole = (one for one in backed() if one.software == software and one.table in RUNS and one.rows and one.chip)
    return frozenset(one.chip for one in whole if quantities is None or one.quantity in quantities)
