"""How far each part of an estimate is to be trusted: how near such kernels came to measurements on this chip.

A kernel is looked up by what its model says it rests on, `calibration.CLASS.KIND`, and a message by the protocol of the
outermost level that it crosses: first rows of this chip and library, then of this chip, then of other chips. A part has
the mean over its seconds of the medians and of the 90th percentiles: kernels of one part may err alike, so that errors
are not taken to cancel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from ...backends.machine.system import System
from ...backends.pricing.program import PricedEntry
from ...backends.pricing.roofline import Backend
from ...backends.pricing.timing import PricedGroup
from ...driver.estimate import Estimate
from ...ir.graph import Workload
from ...ir.records import dataclass
from ..accuracy import ANY, RowAccuracy, nearest
from ..bounds import OTHER, chosen, node_seconds, part_of

# Classes of constants and the tables of measurements that judge them; the others have none.
_TABLES = MappingProxyType(
    {
        "gemm": "gemm",
        "attention": "attention",
        "decode": "attention",
        "unfused_attention": "attention",
        "additive_attention": "attention",
        "rowwise": "elementwise",
        "experts": "moe",
        "grouped": "moe",
    }
)
# Part of its seconds that must rest on rows of this chip for a part to count as checked on it.
MOST = 0.5


@dataclass(frozen=True, slots=True)
class Trust:
    """How near the kernels of a part came to measurements.

    Attributes:
        median: of the size of the relative error, a mean over the seconds that are judged at all.
        p90: its 90th percentile, likewise.
        judged: share of the seconds for whose kind of kernel there are measurements.
        on_chip: share of the seconds for whose kind of kernel there are measurements on this chip.
        lines: the accuracies that it rests on, the one with most seconds first.
    """

    median: float
    p90: float
    judged: float
    on_chip: float
    lines: tuple[RowAccuracy, ...]

    @property
    def num_rows(self) -> int:
        """Measurements that it rests on, each once: a line over all kinds has those of one kind in it."""
        whole = {(a.table, a.chip) for a in self.lines if a.kind == ANY}
        return sum(a.num_rows for a in self.lines if a.kind == ANY or (a.table, a.chip) not in whole)

    @property
    def is_of_chip(self) -> bool:
        """Whether most of what it says was measured on this chip."""
        return self.on_chip >= MOST


def trust_of_parts(answer: Estimate) -> Mapping[str, Trust]:
    """Return what is known of each part of the breakdown; parts that no measurement judges are left out."""
    seconds: dict[str, dict[RowAccuracy | None, float]] = {}
    for priced, row, entry, spent in node_seconds(answer):
        by_line = seconds.setdefault(part_of(entry) or OTHER, {})
        line = accuracy_of(answer, priced, row, entry)
        by_line[line] = by_line.get(line, 0.0) + spent
    return {part: found for part, by_line in seconds.items() if (found := _trust(by_line)) is not None}


def accuracy_of(answer: Estimate, priced: PricedGroup, row: int, entry: PricedEntry) -> RowAccuracy | None:
    """Return what is known of kernels, or messages, like this one."""
    system, decode = answer.table.system, answer.table.lowered.source.workload is Workload.DECODE
    if entry.message is None:
        return None if priced.backend is None else accuracy_of_kernel(entry, priced.backend, system, decode)
    # The protocol of the outermost level that a message crosses; empty where it has none.
    algorithm = chosen(priced, row)
    if algorithm is None:
        protocol = ""
    else:
        crossed = [t.level for t in algorithm.terms if float(t.latency_s) or float(t.bandwidth_s)]
        protocol = next((v.protocol for v in reversed(system.levels) if v.name in crossed), "")
    return nearest("collectives", system.chip.name, system.stack.library, [protocol]) if protocol else None


def accuracy_of_kernel(entry: PricedEntry, backend: Backend, system: System, decode: bool) -> RowAccuracy | None:
    """Return what is known of kernels like the one of an entry that a backend prices."""
    kinds = kinds_of(entry, backend, system, decode)
    found = (nearest(table, system.chip.name, system.stack.library, names) for table, names in kinds.items())
    return next((line for line in found if line is not None), None)


def kinds_of(entry: PricedEntry, backend: Backend, system: System, decode: bool) -> Mapping[str, list[str]]:
    """Return kinds of constants that a kernel rests on, by the table that judges them."""
    found = dict[str, list[str]]()
    # Operands of two types are in none of the tables.
    if entry.mixed:
        return found
    for cls, kind in _constants(backend.numbers(entry, system)):
        if kind in getattr(system.kernels, cls) and cls in _TABLES and (cls == "decode") <= decode:
            # In decode the kernel over a cache is the one that runs.
            found.setdefault(_TABLES[cls], []).insert(0 if cls == "decode" else len(found), kind)
    return found


def _constants(paths: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Class and kind of `calibration.CLASS.KIND.CONSTANT`."""
    for path in paths:
        place, *rest = path.split(".")
        if place == "calibration" and len(rest) >= 2:
            yield rest[0], rest[1]


def _trust(by_line: Mapping[RowAccuracy | None, float]) -> Trust | None:
    whole = sum(by_line.values())
    known = [(line, s) for line, s in sorted(by_line.items(), key=lambda kv: -kv[1]) if line is not None]
    judged = sum(s for _, s in known)
    if not judged:
        return None
    median = sum(line.median * s for line, s in known) / judged
    p90 = sum(line.p90 * s for line, s in known) / judged
    on_chip = sum(s for line, s in known if line.of_chip)
    return Trust(median, p90, judged / whole, on_chip / whole, tuple(line for line, _ in known))
