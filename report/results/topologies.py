"""The result of a comparison of topologies: what each network is built of, costs and draws, and a step on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...driver.metrics import METRICS, format_metric
from ...explore.topologies import TopologyStep
from ...ir.records import dataclass
from ...ir.text.json_text import json_text
from ...ir.units import format_si, format_time, format_usd
from ..bounds import bound_seconds
from ..columns import in_columns
from ..labels import bound_label
from .result import FILE_COLUMNS, Result
from .table import Line, Panel, Row

_SCHEMA = "slipstick/topologies/1"
_PER_USD = "tokens_per_s_per_usd_capex"
_NOTE = (
    "a network costs and draws in proportion to the rate of its links; node levels are part of the servers",
    "placement: the fastest that the network has, of groups of the plan",
)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class TopologyResult(Result):
    """Topologies of equal cost, power or bandwidth, in the order in which they were asked for."""

    steps: Sequence[TopologyStep]
    model: str
    system: str
    num_gpus: int
    equal: str

    def json(self) -> str:
        """Return the document."""
        about = {"model": self.model, "system": self.system, "num_gpus": self.num_gpus, "equal": self.equal}
        return json_text({"schema": _SCHEMA, **about, "topologies": list(self.rows()), "notes": list(_NOTE)}, indent=2)

    def text(self, columns: int | None = None, color: bool = False) -> str:
        """Return the screen."""
        (title, told), *lines = self.summary()
        (panel,) = self.panels()
        notes = "\n".join(f"note: {line}" for line in _NOTE)
        told_lines = in_columns(lines, columns or FILE_COLUMNS)
        return f"{title}  {told}\n{told_lines}\n{in_columns([panel.head, *panel.rows])}\n{notes}"

    def summary(self) -> Sequence[Line]:
        """Return what is compared, and the fastest."""
        first = self.steps[0].network
        each = {
            "cost": f"{format_usd(first.usd / self.num_gpus)} a GPU",
            "power": f"{_watts(first.power_w / self.num_gpus)} a GPU",
            "bandwidth": f"{first.bytes_per_s / 1e9:.4g} GB/s a GPU",
        }[self.equal]
        known = [(float(s.answer.metrics["step_time_s"]), s.network.name) for s in self.steps if s.answer is not None]
        lines = [(self.model, f"{self.num_gpus} GPUs of {self.system}, networks of equal {self.equal}: {each}")]
        if known:
            ranked = ", ".join(f"{name} {format_time(step_s)}" for step_s, name in sorted(known)[:3])
            lines.append(("fastest", ranked))
        return lines

    def rows(self) -> Sequence[Row]:
        """Return a row a topology."""
        return [{**self._network(step), **_step(step)} for step in self.steps]

    def panels(self) -> Sequence[Panel]:
        """Return the topologies."""
        head = (
            "topology",
            "link",
            "GB/s/GPU",
            "network/GPU",
            "power/GPU",
            "plan",
            "placement",
            "step time",
            METRICS[_PER_USD].label,
            "bound by",
        )
        return [Panel("Topologies", head, [self._cells(row) for row in self.rows()])]

    def _network(self, step: TopologyStep) -> Row:
        network = step.network
        return {
            "topology": network.name,
            "link_bytes_per_s": network.link_bytes_per_s,
            "bytes_per_s_per_gpu": network.bytes_per_s,
            "network_usd": network.usd,
            "network_w": network.power_w,
            "capex_usd": step.capex_usd,
        }

    def _cells(self, row: Mapping[str, object]) -> Sequence[str]:
        link, rate, usd, watts = (
            float(str(row[k])) for k in ("link_bytes_per_s", "bytes_per_s_per_gpu", "network_usd", "network_w")
        )
        built = (
            str(row["topology"]),
            f"{link * 8e-9:.4g} Gbit/s",
            f"{rate / 1e9:.4g}",
            format_usd(usd / self.num_gpus),
            _watts(watts / self.num_gpus),
        )
        if row["step_time_s"] is None:
            return (*built, "no plan fits", "", "", "", "")
        step_s, per_usd = float(str(row["step_time_s"])), float(str(row[_PER_USD]))
        told = (str(row["plan"]), str(row["placement"]), format_time(step_s), format_metric(_PER_USD, per_usd))
        return (*built, *told, str(row["bound"]))


def _step(step: TopologyStep) -> Row:
    answer = step.answer
    if answer is None:
        return dict.fromkeys(("plan", "placement", "step_time_s", "exposed_comm_s", _PER_USD, "bound"))
    m, bounds = answer.metrics, bound_seconds(answer)
    name, seconds = next(iter(bounds.items()))
    return {
        "plan": answer.plan.degrees,
        "placement": answer.plan.placement,
        "step_time_s": float(m["step_time_s"]),
        "exposed_comm_s": float(m["exposed_comm_s"]),
        _PER_USD: float(m["tokens_per_s"]) / step.capex_usd,
        "bound": f"{bound_label(name)} {seconds / float(m['step_time_s']):.0%}",
    }


def _watts(watts: float) -> str:
    return format_si(watts, "W")
