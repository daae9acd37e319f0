"""What rows of a search rest on: the evidence of their machines, intervals of the first goal, ties with the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from ...backends.machine.files.many_systems import Systems
from ...driver.estimate import Estimate
from ...driver.serve.answer import ServeEstimate
from ...driver.uncertainty.answers import server_bands, step_bands
from ...driver.uncertainty.bands import Band, is_tie
from ...driver.uncertainty.evidence import Evidence, evidence_of
from ...explore.best import Columns
from ...ir.records import dataclass
from .answer import SearchAnswer, num_rows
from .ties import band_of_differences


@dataclass(frozen=True, slots=True)
class Backing:
    """What a row rests on.

    Attributes:
        evidence: measurements of its chip and software.
        band: of the first goal; None where there is none.
        is_tie: whether the first may not beat it.
    """

    evidence: Evidence
    band: Band | None
    is_tie: bool


def backings_of(answer: SearchAnswer, rows: Columns) -> Sequence[Backing]:
    """Return what each row rests on; machines of equal evidence have one band."""
    files, goal = Systems(), answer.rows.goals[0].name
    bands: dict[Evidence, tuple[Band | None, Band | None]] = {}
    evidence: dict[str, Evidence] = {}
    found = list[Backing]()
    for at in range(num_rows(rows)):
        machine = answer.rows.machine(rows, at)
        name = f"{machine} {float(rows['engine'][at]) if 'engine' in rows else ''}"
        if name not in evidence:
            system = machine.load(files)
            engine = answer.rows.words["engine"][int(rows["engine"][at])] if "engine" in rows else system.stack.name
            evidence[name] = evidence_of(system, engine)
        own = evidence[name]
        if own not in bands:
            bands[own] = _bands_of(answer.rows.answer(rows, at), goal)
        band, within = bands[own]
        first = found[0].band if found else None
        if first is None or band is None:
            found.append(Backing(own, band, is_tie=False))
            continue
        # Errors that plans on one machine share cancel.
        pair = (within, within) if within is not None and machine == answer.rows.machine(rows, 0) else (first, band)
        tie = is_tie(float(rows[goal][0]), float(rows[goal][at]), *pair)
        found.append(Backing(own, band, tie))
    return found


def _bands_of(answer: Estimate | ServeEstimate, goal: str) -> tuple[Band | None, Band | None]:
    """Return the band of a goal, and that of its differences between plans on one machine."""
    if not isinstance(answer, Estimate):
        return server_bands(answer).get(goal), None
    return step_bands(answer).get(goal), band_of_differences(answer, goal)


def backing_record(backing: Backing, value: float) -> dict[str, object]:
    """Return what a row rests on as JSON: its evidence, and the interval of the first goal."""
    evidence, band = backing.evidence, backing.band
    return {
        "evidence": {"chip": str(evidence.silicon), "software": str(evidence.software)},
        "interval": None if band is None else asdict(band.around(value)),
        "ties_with_first": backing.is_tie,
    }
