"""Plans that the error of the model does not tell apart: the simplest kind within a band, the best of usual kinds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Protocol

import numpy as np

from ...backends.machine.files.many_systems import Systems
from ...driver.estimate import Estimate
from ...driver.metrics import METRICS, format_metric
from ...driver.uncertainty.answers import evidence_of_step, has_experts, ratio_bands, server_bands, step_bands
from ...driver.uncertainty.bands import Band, band_within, is_tie
from ...driver.uncertainty.evidence import Evidence, evidence_of
from ...driver.uncertainty.quantities import THROUGHPUT
from ...explore.best import Columns
from ...explore.kinds import Kinds, simplest
from ...explore.machine import MachineChoice
from ...ir.graph import Workload
from ...ir.records import dataclass
from ..columns import in_columns
from .answer import SearchAnswer, num_rows


class Ranked(Protocol):
    """A search that is over, as far as ties go."""

    @property
    def kinds(self) -> Kinds | None:
        """The best of each kind of plan."""
        ...

    @property
    def rows(self) -> RankedRows:
        """What rows stand for."""
        ...


class RankedRows(Protocol):
    """What rows of a search stand for."""

    @property
    def words(self) -> Mapping[str, Sequence[str]]:
        """Of columns whose numbers stand for words, the words."""
        ...

    def machine(self, rows: Columns, at: int) -> MachineChoice:
        """Return the machine of a row."""
        ...

    def label(self, rows: Columns, at: int) -> str:
        """Return what a row is, as people write it."""
        ...

    def others(self, rows: Columns, at: int) -> Mapping[str, str]:
        """Return what else differs between rows."""
        ...

    def answer(self, rows: Columns, at: int) -> object:
        """Return the whole answer of a row."""
        ...


# Goals that are as far off as the time of a step is: shares of it, or its inverse.
OF_TIME = frozenset(
    {
        "step_time_s",
        "tokens_per_s",
        "tokens_per_s_per_gpu",
        "samples_per_s",
        "samples_per_s_per_gpu",
        "mfu",
        "hfu",
        "usd_per_mtok",
        "usd_per_step",
    }
)


def band_of_differences(answer: Estimate, goal: str) -> Band | None:
    """Return the band of differences between plans on one machine; None of what follows from no training step."""
    table = answer.table
    if goal not in OF_TIME or table.lowered.source.workload is not Workload.TRAIN:
        return None
    return band_within(evidence_of_step(table), has_experts(table))


def band_of(answer: Estimate, goal: str) -> float | None:
    """Return the share by which two plans on one machine may differ and be taken as equal: see `is_tie`.

    None for a goal that does not follow the time of a training step.
    """
    table = answer.table
    if goal not in OF_TIME or table.lowered.source.workload is not Workload.TRAIN:
        return None
    return math.expm1(ratio_bands(table)["step_time_s"].high)


def ties_of(answer: Ranked) -> tuple[float, Columns] | None:
    """Return the band of the first row, and the best of each kind of plan within it; None where there is no band."""
    if answer.kinds is None or not answer.kinds.rows:
        return None
    first = answer.rows.answer(answer.kinds.rows, 0)
    band = band_of(first, answer.kinds.goal.name) if isinstance(first, Estimate) else None
    return None if band is None else (band, answer.kinds.within(band))


def ties_text(answer: Ranked, width: int | None = None) -> Iterator[str]:
    """Yield how many kinds of plan are as good as the first, the simplest of them, and the best of usual kinds."""
    found = ties_of(answer)
    if found is None or answer.kinds is None:
        return
    band, rows = found
    num, kinds = len(rows["tp"]), answer.kinds
    if num > 1:
        yield ""
        yield (
            f"{num:,} kinds of plan are within {band:.1%} of the first, the error of differences between plans: take "
            "them as equal"
        )
        lines = [("simplest of them", rows, _simplest(answer, rows))]
    else:
        lines = []
    lines += [(name, kinds.rows, at) for name, at in _usual(answer, kinds)]
    if lines:
        yield in_columns(
            [
                ["", "kind", "plan", METRICS[kinds.goal.name].label, "beside the first"],
                *(["", *_line(answer, kinds, *line)] for line in lines),
            ],
            width,
        )


def ties_record(answer: Ranked) -> Mapping[str, object]:
    """Return the same as JSON: the band, ties by kind with the simplest named, the best of usual kinds."""
    found = ties_of(answer)
    if found is None or answer.kinds is None:
        return {}
    band, rows = found
    goal, kinds = answer.kinds.goal.name, answer.kinds

    def told(columns: Columns, at: int) -> dict[str, object]:
        return {"plan": answer.rows.label(columns, at), goal: float(columns[goal][at])}

    at = _simplest(answer, rows)
    return {
        "ties": {
            "band": band,
            "num_kinds": len(rows["tp"]),
            "simplest": told(rows, at),
            "kinds": [told(rows, k) for k in range(min(len(rows["tp"]), 50))],
            "usual": {name: told(kinds.rows, k) for name, k in _usual(answer, kinds)},
        }
    }


def _simplest(answer: Ranked, rows: Columns) -> int:
    words = answer.rows.words
    return simplest(rows, words.get("schedule", ()), words.get("recompute", ()))


def _usual(answer: Ranked, kinds: Kinds) -> Iterator[tuple[str, int]]:
    """Yield the best of kinds that people ask for, where the best of all is not one."""
    rows, inside = kinds.rows, answer.rows.machine(kinds.rows, 0).load().node_size
    words = list(answer.rows.words.get("recompute", ("none",)))
    none = words.index("none") if "none" in words else -1
    tests: Mapping[str, Callable[[Columns], np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]] = {
        "no context parallelism": lambda r: r["cp"] == 1,
        "no pipeline": lambda r: r["pp"] == 1,
        "TP inside the node": lambda r: r["tp"] <= inside,
        "no recomputation": lambda r: r["recompute"] == none,
    }
    for name, test in tests.items():
        good = np.flatnonzero(test(rows))
        if len(good) and good[0] > 0:
            yield name, int(good[0])


def _line(answer: Ranked, kinds: Kinds, name: str, rows: Columns, at: int) -> list[str]:
    goal = kinds.goal.name
    value, first = float(rows[goal][at]), float(kinds.rows[goal][0])
    label = " ".join(filter(None, (answer.rows.label(rows, at), *answer.rows.others(rows, at).values())))
    return [name, label, format_metric(goal, value), f"{value / first - 1.0:+.1%}"]


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
            served = "engine" in rows
            engine = answer.rows.words["engine"][int(rows["engine"][at])] if served else system.stack.name
            evidence[name] = evidence_of(system, engine, THROUGHPUT if served else "")
        own = evidence[name]
        if own not in bands:
            one = answer.rows.answer(rows, at)
            if isinstance(one, Estimate):
                bands[own] = step_bands(one).get(goal), band_of_differences(one, goal)
            else:
                bands[own] = server_bands(one).get(goal), None
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


def backing_record(backing: Backing, value: float) -> dict[str, object]:
    """Return what a row rests on as JSON: its evidence, and the interval of the first goal."""
    evidence, band = backing.evidence, backing.band
    return {
        "evidence": {"chip": str(evidence.silicon), "software": str(evidence.software)},
        "interval": None if band is None else asdict(band.around(value)),
        "ties_with_first": backing.is_tie,
    }
