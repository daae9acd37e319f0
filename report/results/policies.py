"""The result of a search of memory policies: the best beside those that frameworks have, and what may be named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...driver.uncertainty.answers import ratio_bands
from ...explore.recompute.pricing import PricedPolicy
from ...explore.recompute.search import FoundPolicy, said, words_said_by
from ...explore.recompute.spaces import maxtext_settings
from ...ir.records import dataclass
from ...ir.text.json_text import json_text
from ...ir.units import format_bytes, format_time
from ..columns import in_columns
from ..explain.intervals import shares_between
from ..json_report import assumed_record
from ..labels import software_label
from .result import FILE_COLUMNS, Result
from .table import Line, Panel, Row

if TYPE_CHECKING:
    from ...backends.machine.system import System
    from ..pictures.picture import Picture

_SCHEMA = "slipstick/recompute/1"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PolicyResult(Result):
    """A memory policy that was found: `found.best` is the fastest that fits."""

    found: FoundPolicy
    model: str
    system: System
    runs_on: str | None = None

    def json(self) -> str:
        """Return the document."""
        found = self.found
        return json_text(
            {
                "schema": _SCHEMA,
                "model": self.model,
                "system": self.system.name,
                "stack": self.system.stack.name,
                **assumed_record(self.system),
                "limit_bytes": found.limit_bytes,
                "best": self._record(found.best),
                "known": [self._record(p) for p in found.known],
                "front": [self._record(p) for p in found.front],
                "results": [
                    {"name": name, "bytes": num_bytes, "recompute_s": seconds}
                    for name, (num_bytes, seconds) in found.names.items()
                ],
                "num_priced": len(found.priced),
                "settings": self._settings(),
            },
            indent=2,
        )

    def text(self, columns: int | None = None, color: bool = False) -> str:
        """Return the screen."""
        (title, told), *lines = self.summary()
        tables = (_text(panel) for panel in self.panels()[:2])
        return "\n".join((f"{title}  {told}", in_columns(lines, columns or FILE_COLUMNS), *tables))

    def pictures(self) -> Sequence[Picture]:
        """Return step time by memory of the front, of what frameworks have, and of the best."""
        from ..pictures.answers import memory_picture

        front, known, best = (
            [(p.peak_mem_bytes, p.step_time_s) for p in policies]
            for policies in (self.found.front, self.found.known, [self.found.best])
        )
        return [memory_picture(front, known, best)]

    def summary(self) -> Sequence[Line]:
        """Return the best policy, what it costs and what it saves."""
        found, best = self.found, self.found.best
        limit = format_bytes(found.limit_bytes)
        lines = [
            (
                self.model,
                f"training on {best.plan.num_gpus} x {self.system.name}, {software_label(self.system)}, "
                f"{best.plan.degrees}",
            ),
            ("best", said(best)),
            ("step", f"{format_time(best.step_time_s)}, {format_bytes(best.peak_mem_bytes)} of {limit} a GPU"),
        ]
        known = found.best_known
        if known is not None and known.step_time_s > best.step_time_s:
            gain = known.step_time_s / best.step_time_s - 1.0
            span = shares_between(1.0 + gain, ratio_bands(best.table)["step_time_s"])
            slower = f"{gain:.1%} slower (90 %: {span})"
            lines.append(("against", f"{known.label}: {format_time(known.step_time_s)}, {slower}"))
        if self.runs_on == "maxtext":
            lines.append(("MaxText", " ".join(f"{name}={place}" for name, place in self._settings().items())))
        return [*lines, ("priced", f"{len(found.priced)} policies")]

    def rows(self) -> Sequence[Row]:
        """Return every policy that was priced and that none beats, and those that frameworks have."""
        shown = {id(p): p for p in (self.found.best, *self.found.known, *self.found.front)}
        return [
            {
                "policy": p.label,
                "step_time_s": p.step_time_s,
                "peak_mem_bytes": p.peak_mem_bytes,
                "host_mem_bytes": p.host_mem_bytes,
                "fits": self._fits(p),
                "flags": said(p),
            }
            for p in shown.values()
        ]

    def panels(self) -> Sequence[Panel]:
        """Return the policies, what may be named, and the front."""
        best, found = self.found.best, self.found
        policies = [best, *(p for p in found.known if p is not best)]
        names = [
            (name, format_bytes(num_bytes), format_time(seconds)) for name, (num_bytes, seconds) in found.names.items()
        ]
        front = [(format_bytes(p.peak_mem_bytes), format_time(p.step_time_s), said(p)) for p in found.front]
        head = ("policy", "step", "memory/GPU", "host/GPU", "fits")
        return [
            Panel("Policies", head, [self._cells(p) for p in policies]),
            Panel("Results of all layers of a rank", ("name", "to keep", "to make again"), names),
            Panel("Pareto front", ("memory/GPU", "step", "flags"), front),
        ]

    def _settings(self) -> Mapping[str, str]:
        """The best policy in the words of MaxText; of other frameworks `slipstick export` writes them."""
        return maxtext_settings(words_said_by(self.found.best)) if self.runs_on == "maxtext" else {}

    def _fits(self, policy: PricedPolicy) -> bool:
        return policy.peak_mem_bytes <= self.found.limit_bytes

    def _cells(self, policy: PricedPolicy) -> tuple[str, ...]:
        host = format_bytes(policy.host_mem_bytes) if policy.host_mem_bytes else "-"
        fits = "yes" if self._fits(policy) else "no"
        return policy.label, format_time(policy.step_time_s), format_bytes(policy.peak_mem_bytes), host, fits

    def _record(self, policy: PricedPolicy) -> Mapping[str, object]:
        return {
            "policy": policy.label,
            "words": words_said_by(policy),
            "flags": said(policy),
            "metrics": {
                "step_time_s": policy.step_time_s,
                "peak_mem_bytes": policy.peak_mem_bytes,
                "host_mem_bytes": policy.host_mem_bytes,
            },
            "fits": self._fits(policy),
            "breakdown_s": policy.breakdown_s,
        }


def _text(panel: Panel) -> str:
    """A table of text: the first column to the left, the others to the right."""
    rows = [panel.head, *panel.rows]
    first, *widths = (max(len(row[k]) for row in rows) for k in range(len(panel.head)))
    aligned = ((name.ljust(first), *(c.rjust(w) for c, w in zip(cells, widths, strict=True))) for name, *cells in rows)
    return "\n".join("  ".join(row).rstrip() for row in aligned)
