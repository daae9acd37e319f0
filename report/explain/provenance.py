"""What the time of each operator of a step rests on, what share of the step it has, and how near light it comes.

An operator's time is measured where kernels of its kind were measured on this chip, and fitted where others of its
class were, or the same on relatives of the chip. Without any it goes by the numbers of its model: those of data sheets,
or a guess where one of its constants is one. Messages go by the protocol of the outermost level that they cross. What
no node makes (host, pipeline) goes by the software: measured where that is on this chip, fitted where it is elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from math import exp
from typing import TYPE_CHECKING

from ...backends.kernels.operands import unit_of
from ...backends.pricing.program import PricedEntry
from ...backends.pricing.timing import PricedGroup
from ...driver.estimate import Estimate
from ...driver.uncertainty.answers import evidence_of_step
from ...driver.uncertainty.evidence import ChipEvidence, SoftwareEvidence, silicon_named
from ...ir.errors import GateError
from ...ir.records import dataclass
from ...ir.units import format_time
from ..accuracy import ANY
from ..bounds import OTHER, chosen, node_seconds, part_of
from ..columns import in_columns
from ..numbers import records_at
from .beyond import beyond_fits
from .trust import accuracy_of

if TYPE_CHECKING:
    from ...driver.serve.answer import ServeEstimate


class Basis(StrEnum):
    """What a time rests on, the surest first."""

    MEASURED = "measured on this chip"
    FITTED = "fitted on relatives"
    DATASHEET = "data sheet"
    GUESS = "guess"


# Least share of a step that a table tells of.
_LEAST = 5e-4
# Characters of a source that a table has room for.
MOST_TOLD = 90
_OF_SOFTWARE = {SoftwareEvidence.MEASURED: Basis.MEASURED, SoftwareEvidence.ELSEWHERE: Basis.FITTED}
# Parts of a step that the software makes, by what their names begin with.
_SOFTWARE_PARTS = ("host", "checkpoint", "offload")
Seconds = defaultdict[tuple[str, str, Basis], float]


@dataclass(frozen=True, slots=True)
class Rests:
    """Operators of one kind in one part of the step.

    Attributes:
        part: of the breakdown.
        op: the operator.
        basis: what its time rests on.
        share: of the step, of what nothing hides.
        of_light: its time at the peaks of the chip over its time; 0 of messages.
        told: the measurements, or the constants, that it goes by.
    """

    part: str
    op: str
    basis: Basis
    share: float
    of_light: float
    told: str


def provenance(answer: Estimate) -> tuple[Rests, ...]:
    """Return what each kind of operator rests on, the largest shares first; the shares add up to one."""
    nodes: Seconds = defaultdict(float)
    light: Seconds = defaultdict(float)
    told: dict[tuple[str, str, Basis], str] = {}
    env = {name: float(column[0]) for name, column in answer.table.plans.columns.items()}
    for priced, row, entry, spent in node_seconds(answer):
        basis, by = _basis(answer, priced, row, entry)
        key = (part_of(entry) or OTHER, entry.op, basis)
        nodes[key] += spent
        light[key] += spent * _of_light(answer, priced, row, entry, env)
        told.setdefault(key, by)
    found = []
    parts: dict[str, float] = defaultdict(float)
    for (part, _, _), spent in nodes.items():
        parts[part] += spent
    step = answer.metrics["step_time_s"]
    for part, seconds in answer.breakdown_s.items():
        for key, spent in nodes.items():
            if key[0] == part and seconds:
                share = seconds * spent / parts[part] / step
                found.append(Rests(part, key[1], key[2], share, light[key] / spent, told[key]))
        if seconds and part not in parts:
            found.append(_without_nodes(answer, part, seconds / step))
    return tuple(sorted(found, key=lambda one: (-one.share, one.part, one.op)))


def shares_of(answer: Estimate) -> Mapping[Basis, float]:
    """Return the share of the step that rests on each basis; bubbles are as sure as what they wait for."""
    found = dict.fromkeys(Basis, 0.0)
    waits = 0.0
    for one in provenance(answer):
        if one.part.startswith("bubble"):
            waits += one.share
        else:
            found[one.basis] += one.share
    whole = sum(found.values()) or 1.0
    return {basis: share + waits * share / whole for basis, share in found.items()}


def shares_of_server(answer: ServeEstimate) -> Mapping[Basis, float]:
    """Return the same of the time of a request: its prompt's step and its decode steps, by their times."""
    prompt = answer.metrics["ttft_s"]
    weights = ((answer.prefill, prompt), (answer.decode, max(answer.metrics["e2el_s"] - prompt, 0.0)))
    whole = sum(weight for _, weight in weights)
    found = dict.fromkeys(Basis, 0.0)
    for step, weight in weights:
        for basis, share in shares_of(step).items():
            found[basis] += share * weight / whole
    return found


def shares_line(shares: Mapping[Basis, float]) -> str:
    """Say the shares in one line.

    >>> shares_line({Basis.MEASURED: 0.7, Basis.GUESS: 0.3})
    '70% measured on this chip, 30% guess'
    """
    return ", ".join(f"{share:.0%} {basis}" for basis, share in shares.items() if share >= 0.005)


def check_strict(shares: Mapping[Basis, float], most: float | None) -> None:
    """Refuse an answer of which more than a share rests on guesses; GateError with what would mend it."""
    share = shares[Basis.GUESS]
    if most is not None and share > most:
        raise GateError(
            f"{share:.0%} of the time rests on guesses, more than --strict {most:g}; --explain provenance lists them, "
            "`slipstick support` says what is measured, and `slipstick calibrate` measures it"
        )


def provenance_text(answer: Estimate) -> str:
    """Return what the step rests on as a table: one line a kind of operator."""
    step = answer.metrics["step_time_s"]
    lines = [["part", "operator", "seconds", "share", "of light", "rests on", "by"]]
    for one in provenance(answer):
        light = f"{one.of_light:.0%}" if one.of_light else "-"
        seconds, share = format_time(one.share * step), f"{one.share:.1%}"
        lines.append([one.part, one.op, seconds, share, light, one.basis, _short(one.told)])
    beyond = "".join(f"\nbeyond the measurements: {one}" for one in beyond_fits(answer) if one.share >= _LEAST)
    return f"step: {shares_line(shares_of(answer))}; {evidence_of_step(answer.table)}{beyond}\n\n{in_columns(lines)}"


def _short(told: str) -> str:
    """Cut a long source."""
    return told if len(told) <= MOST_TOLD else f"{told[: MOST_TOLD - 3]}..."


def provenance_record(answer: Estimate) -> dict[str, object]:
    """Return shares of the step by what they rest on, and each kind of operator."""
    return {
        "shares": {str(basis): share for basis, share in shares_of(answer).items()},
        "operators": [
            {"part": one.part, "op": one.op, "basis": str(one.basis), "share": one.share, "of_light": one.of_light}
            for one in provenance(answer)
        ],
        "beyond": [asdict(one) for one in beyond_fits(answer)],
    }


def _basis(answer: Estimate, priced: PricedGroup, row: int, entry: PricedEntry) -> tuple[Basis, str]:
    system = answer.table.system
    known = accuracy_of(answer, priced, row, entry)
    related = silicon_named(system.chip.name, system.chip.design, bool(system.chip.measured_as), kernels_only=True)
    if known is not None and (known.of_chip or related is not ChipEvidence.NONE):
        # Of a kind without measurements of its own those of its class say how near its model comes.
        measured = known.of_chip and known.kind != ANY
        if measured and system.beyond:
            return Basis.FITTED, f"its relative, {exp(system.beyond):.3g} x outside: {known}"
        return (Basis.MEASURED if measured else Basis.FITTED), str(known)
    if entry.message is not None or priced.backend is None:
        algorithm = chosen(priced, row)
        levels = [t.level for t in algorithm.terms if float(t.bandwidth_s)] if algorithm is not None else []
        paths: tuple[str, ...] = tuple(f"network.{level}." for level in levels)
    else:
        paths = tuple(path for path in priced.backend.numbers(entry, system) if path.startswith("calibration."))
    sources = list(records_at(system, paths))
    least = next((one for one in sources if one.confidence == "estimated"), sources[0] if sources else None)
    if least is None or least.confidence == "datasheet":
        return Basis.DATASHEET, "" if least is None else least.source
    return (Basis.GUESS if least.confidence == "estimated" else Basis.FITTED), f"{least.path}: {least.source}"


def _without_nodes(answer: Estimate, part: str, share: float) -> Rests:
    """A part that no node makes goes by the software."""
    evidence = evidence_of_step(answer.table)
    software = evidence.software
    if software is SoftwareEvidence.MEASURED and evidence.beyond:
        software = SoftwareEvidence.ELSEWHERE
    basis = _OF_SOFTWARE.get(software, Basis.GUESS if part.startswith(_SOFTWARE_PARTS) else Basis.FITTED)
    return Rests(part, "-", basis, share, 0.0, f"the stack {answer.table.system.stack.name}")


def _of_light(answer: Estimate, priced: PricedGroup, row: int, entry: PricedEntry, env: Mapping[str, float]) -> float:
    """The least time that peaks and memory allow, over the time of a kernel; 0 of a message."""
    if entry.message is not None:
        return 0.0
    chip, time_s = answer.table.system.chip, float(priced.time_s[row, int(priced.point[0])])
    flops = float(entry.work.tensor_flops.evaluate(env))
    peak = chip.peak_flop_per_s.by_dtype().get(unit_of(str(entry.dtype)), chip.peak_flop_per_s.fp32)
    moved = float(entry.work.num_bytes.evaluate(env)) / float(chip.hbm_bytes_per_s)
    return min(1.0, max(flops / float(peak), moved) / time_s) if time_s else 0.0
