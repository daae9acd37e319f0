"""Limits on what may change, read from text such as `step_time_s>+3%`, and judged."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from ...ir.errors import UnknownNameError, UsageError
from ...ir.records import dataclass
from ...ir.units import parse_quantity, parse_typed, units_of
from ..readable import shown_both, shown_change, shown_relative
from .comparison import Change, Comparison

GRAMMAR = (
    "a gate is METRIC[.PART], then > >= < or <=, then a limit: +3% or -3% of change against A, +0.5s of change, "
    "or 12s as the value of B; as in step_time_s>+3%, step_time_s.comm.tp>+100ms, peak_mem_bytes>70GiB, "
    "usd_per_gpu_hour>2USD, mfu<40%"
)
_GATE = re.compile(r"\s*([^<>=\s]+)\s*(>=|<=|>|<)\s*([^<>=\s][^<>=]*?)\s*")


@dataclass(frozen=True, slots=True)
class Gate:
    """A limit as the user wrote it, with the number that it is about."""

    text: str
    change: Change
    symbol: str
    limit: float
    kind: str

    @property
    def found(self) -> float:
        """What is held against the limit: the value of B, the change, or the change as a share of A."""
        return {"value": self.change.after, "change": self.change.difference, "relative": self.change.relative}[
            self.kind
        ]

    @property
    def failed(self) -> bool:
        """Whether the limit is broken; what is no number breaks each."""
        found, limit = self.found, self.limit
        if math.isnan(found):
            return True
        return {">": found > limit, ">=": found >= limit, "<": found < limit, "<=": found <= limit}[self.symbol]

    def __str__(self) -> str:
        """Say what was found."""
        c = self.change
        return f"{self.text}: {' to '.join(shown_both(c))} ({shown_change(c)}, {shown_relative(c)})"


def read_gate(text: str, found: Comparison) -> Gate:
    """Read a gate against a comparison.

    UsageError for text that is not a gate, with the grammar; UnknownNameError for a metric or part that is not there.
    """
    match = _GATE.fullmatch(text)
    if match is None:
        raise UsageError(f"'{text}' is not a gate: {GRAMMAR}")
    change = _number_named(match[1], found)
    limit, kind = _limit(match[3], change, text)
    return Gate(text.strip(), change, match[2], limit, kind)


def judged(texts: Iterable[str], found: Comparison) -> Sequence[Gate]:
    """Read and judge gates, in order."""
    return tuple(read_gate(text, found) for text in texts)


def _number_named(name: str, found: Comparison) -> Change:
    """Find a metric, or a part by its metric (`step_time_s.comm.tp`) or its section (`breakdown.comm.tp`)."""
    if name in found.metrics:
        return found.metrics[name]
    if name in found.alone:
        raise UsageError(f"only report {found.alone[name]} has '{name}', so there is nothing to hold it against")
    first, dot, part = name.partition(".")
    for section in found.sections if dot else ():
        if first in (section.name, section.whole.name):
            parts = {change.name: change for change in section.parts}
            if part not in parts:
                raise UnknownNameError.of(f"part of {first}", part, parts)
            return parts[part]
    raise UnknownNameError.of("metric" if not dot else "metric with parts", first, _names(found, bool(dot)))


def _names(found: Comparison, with_parts: bool) -> Iterable[str]:
    if with_parts:
        return {name for s in found.sections for name in (s.name, s.whole.name)}
    return found.metrics


def _limit(text: str, change: Change, gate: str) -> tuple[float, str]:
    """Read a limit in the unit of what it is about; a sign makes it one of change, % beside it a relative one."""
    signed = text[0] in "+-"
    if text.endswith("%"):
        if not signed and change.unit != "1":
            raise UsageError(f"'{gate}': {text} of what? +{text} is a change against A; {GRAMMAR}")
        return _parsed(text, "1", gate), "relative" if signed else "value"
    return _parsed(text, change.unit, gate), "change" if signed else "value"


def _parsed(text: str, unit: str, gate: str) -> float:
    if unit in ("s", "B", "FLOP", "FLOP/s", "USD", "J", "W", "kg", "1"):
        try:
            return parse_typed(text, unit)
        except UsageError as error:
            raise UsageError(f"'{gate}': {error}; {GRAMMAR}") from error
    try:
        return parse_quantity(text, "1").value_si
    except UsageError as error:
        raise UsageError(f"'{gate}': this number has no unit ({units_of('1')}): {error}; {GRAMMAR}") from error
