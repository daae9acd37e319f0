"""The result of a step on several systems: its stages, what it takes and costs, and what else there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...driver.fleet_step import MixedStep
from ...driver.metrics import METRICS, format_metric
from ...ir.records import dataclass
from ...ir.text.json_text import json_text
from ...ir.units import format_bytes, format_time
from ..columns import in_columns
from ..json_report import assumed_record
from ..labels import part_label, software_label
from ..pictures.picture import Bar, Bars, Picture
from .result import FILE_COLUMNS, Result
from .table import Line, Panel, Row

_SCHEMA = "slipstick/mixed/1"
# The link that joins two systems is nobody's part.
_LINK = "what joins the systems has no price here: each has the network of its own devices"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class MixedResult(Result):
    """A step on several systems: `best.metrics`, `best.stages`; `others` are the same plan in other ways, by name."""

    best: MixedStep
    others: Mapping[str, MixedStep]

    @property
    def warnings(self) -> Sequence[str]:
        """What to know of the answer and of its money."""
        missing = dict.fromkeys(line for one in self.best.money for line in one.money.unpriced)
        return (*self.best.warnings, *missing, *((_LINK,) if len(self.best.money) > 1 else ()))

    @property
    def shortage(self) -> str | None:
        """Why it does not fit, stage by stage; None where it does."""
        short = [
            f"stage {k} on {s.system} needs {format_bytes(s.peak_mem_bytes)} of {format_bytes(s.limit_bytes)}"
            for k, s in enumerate(self.best.stages)
            if s.peak_mem_bytes > s.limit_bytes
        ]
        return f"DOES NOT FIT: {'; '.join(short[:3])}" if short else None

    def json(self) -> str:
        """Return the document."""
        best = self.best
        return json_text(
            {
                "schema": _SCHEMA,
                "model": best.model,
                "workload": str(best.workload),
                "degrees": best.plan.degrees,
                "num_gpus": best.plan.num_gpus,
                "groups": list(self._groups()),
                **_record(best),
                "breakdown_s": dict(best.breakdown_s),
                "hidden_comm_s": dict(best.hidden_comm_s),
                "stages": [
                    {
                        "system": s.system,
                        "layers": list(s.layers),
                        "forward_s": s.forward_s,
                        "backward_s": s.backward_s,
                        "memory_bytes": dict(s.memory_bytes),
                        "peak_mem_bytes": s.peak_mem_bytes,
                        "limit_bytes": s.limit_bytes,
                    }
                    for s in best.stages
                ],
                "others": {name: _record(other) for name, other in self.others.items()},
                "warnings": list(self.warnings),
            },
            indent=2,
        )

    def text(self, columns: int | None = None, color: bool = False) -> str:
        """Return the screen."""
        (title, told), *lines = self.summary()
        tables = (f"{panel.title}\n{in_columns([panel.head, *panel.rows])}" for panel in self.panels())
        warnings = [f"warning: {line}" for line in self.warnings]
        head = "".join(f"{line}\n" for line in (self.shortage, f"{title}  {told}") if line is not None)
        return "\n\n".join((f"{head}{in_columns(lines, columns or FILE_COLUMNS)}", *tables, *warnings))

    def pictures(self) -> Sequence[Picture]:
        """Return what each stage takes of a micro-batch."""
        bars = [
            Bar(f"{k} {s.system}", s.forward_s + s.backward_s, format_time(s.forward_s + s.backward_s))
            for k, s in enumerate(self.best.stages)
        ]
        return [Bars("A micro-batch on each stage", bars)]

    def summary(self) -> Sequence[Line]:
        """Return what was estimated, and its first numbers."""
        best, m = self.best, self.best.metrics
        software = " or ".join(dict.fromkeys(map(software_label, best.fleet.systems)))
        names = ("mfu", "tokens_per_s_per_gpu", "samples_per_s_per_gpu", "bubble_fraction")
        shown = (f"{METRICS[name].label} {format_metric(name, m[name])}" for name in names if name in m)
        lines = [
            (best.model, f"{best.workload}, {best.plan.num_gpus} GPUs: {best.fleet.name}, {software}"),
            ("plan", f"{best.plan.degrees}  mbs {best.plan.micro_batch}  gbs {best.plan.global_batch}"),
            ("step", f"{format_time(m['step_time_s'])}, {', '.join(shown)}"),
        ]
        if best.money:
            money = ("usd_per_gpu_hour", "usd_per_mtok", "usd_per_mtok_input", "usd_per_mtok_output", "average_power_w")
            lines.append(("cost", ", ".join(f"{METRICS[n].label} {format_metric(n, m[n])}" for n in money if n in m)))
        return lines

    def rows(self) -> Sequence[Row]:
        """Return the step, and the same plan in other ways, each with its metrics."""
        return [
            {"name": name, "fits": one.fits, "layers": _layers(one), **one.metrics} for name, one in self._all().items()
        ]

    def panels(self) -> Sequence[Panel]:
        """Return the stages, the parts of the step, and the same plan in other ways."""
        best = self.best
        return [
            Panel(
                "Stages",
                ("stage", "system", "layers", "forward", "backward", "memory/GPU"),
                [
                    (
                        str(k),
                        s.system,
                        "+".join(map(str, s.layers)),
                        format_time(s.forward_s),
                        format_time(s.backward_s),
                        f"{format_bytes(s.peak_mem_bytes)} of {format_bytes(s.limit_bytes)}",
                    )
                    for k, s in enumerate(best.stages)
                ],
            ),
            Panel(
                "Step, of the stage that sets the pace",
                ("part", "time", "share"),
                [
                    (part_label(name), format_time(s), f"{s / best.metrics['step_time_s']:.1%}")
                    for name, s in sorted(best.breakdown_s.items(), key=lambda one: -one[1])
                    if s > 0.0
                ],
            ),
            Panel(
                "The same plan in other ways",
                ("stages", "step", "MFU", "$/GPU-hour", "fits", "layers"),
                [_cells(name, one) for name, one in self._all().items()],
            ),
        ]

    def _all(self) -> Mapping[str, MixedStep]:
        return {self.best.fleet.name: self.best, **self.others}

    def _groups(self) -> Iterator[Mapping[str, object]]:
        best = self.best
        for g, (system, num) in enumerate(zip(best.fleet.systems, best.fleet.stages, strict=True)):
            money = {} if not best.money else {"money": dict(best.money[g].metrics)}
            about = {"system": system.name, "stack": system.stack.name, "chip": system.chip.name}
            yield {**about, **assumed_record(system), "stages": num, "num_gpus": best.num_gpus(g), **money}


def _record(one: MixedStep) -> Mapping[str, object]:
    return {
        "fleet": one.fleet.name,
        "layers": list(one.layers),
        "fits": one.fits,
        "metrics": dict(one.metrics),
    }


def _layers(one: MixedStep) -> str:
    return ",".join(map(str, one.layers))


def _cells(name: str, one: MixedStep) -> tuple[str, ...]:
    m = one.metrics
    usd = format_metric("usd_per_gpu_hour", m["usd_per_gpu_hour"]) if "usd_per_gpu_hour" in m else "-"
    fits = "yes" if one.fits else "no"
    return name, format_time(m["step_time_s"]), format_metric("mfu", m["mfu"]), usd, fits, _layers(one)
