"""Charts of a server: where the time of a request goes, and what its latencies become under more load."""

from __future__ import annotations

from collections.abc import Iterator

from ...driver.serve.answer import ServeEstimate
from ...driver.serve.load import Load
from ...driver.serve.serve import serve
from ...ir.errors import SlipstickError
from ...ir.units import format_time
from ..labels import request_part_label
from ..results.table import Panel
from .bars import bars
from .chart import BLUE, GREEN, GREY, ORANGE, PURPLE, Chart, Datum, Spec
from .read import Document, number, numbers, part, records
from .steps import memory_chart

# Shares of the most requests a second at which the curve is worked out: closer where it bends.
_SHARES = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.78, 0.85, 0.9, 0.94, 0.97)
_COLORS = {"prefill": BLUE, "decode": ORANGE, "waits": GREY, "host": GREEN, "transfer": PURPLE}


def load_record(answer: ServeEstimate) -> list[dict[str, float]]:
    """Return latencies of a server at more and less load than it was asked for, in the order of the load.

    Of simulated traffic and of pools there is none: the one has no closed form of a load, the other two servers.
    """
    used = answer.metrics.get("serve_utilization", 0.0)
    if answer.simulated is not None or answer.pools is not None or not 0.0 < used <= 1.0:
        return []
    most, found = answer.metrics["requests_per_s"] / used, []
    for share in _SHARES:
        try:
            m = serve(answer.server, answer.lengths, Load(requests_per_s=most * share)).metrics
        except SlipstickError:
            break
        names = ("requests_per_s", "ttft_s", "ttft_low_s", "ttft_high_s", "tpot_s", "concurrency")
        found.append({name: float(m[name]) for name in names if name in m})
    return found


def server_charts(document: Document) -> Iterator[Chart]:
    """Yield the charts of a server that its document has the numbers for."""
    yield _parts(document)
    rate = numbers(part(document, "metrics")).get("requests_per_s", 0.0)
    curve = records(document, "load_curve")
    if curve:
        yield _curve("First token under load", "TTFT", "ttft_s", curve, rate, BLUE)
        yield _curve("Each further token under load", "TPOT", "tpot_s", curve, rate, ORANGE)
    yield from _percentiles(document)
    yield memory_chart(document)


def _parts(document: Document) -> Chart:
    found = {name: seconds for name, seconds in numbers(part(document, "breakdown")).items() if seconds > 0}
    total = sum(found.values())
    data = [
        {
            "name": request_part_label(name),
            "value": seconds,
            "label": f"{format_time(seconds)}, {seconds / total:.1%}",
            "class": kind if (kind := name.partition(".")[0]) in _COLORS else "waits",
        }
        for name, seconds in sorted(found.items(), key=lambda one: -one[1])
    ]
    alt = f"The parts of a request of {format_time(total)}, from its arrival to its last token; they add up."
    return bars("Where the time of a request goes", alt, data, ("part", "time and share", "class"), _COLORS)


def _curve(title: str, short: str, name: str, curve: list[Document], rate: float, color: str) -> Chart:
    data: list[Datum] = [
        {
            "rate": number(row["requests_per_s"]),
            "ms": number(row[name]) * 1e3,
            "low": number(row.get(f"{name[:-2]}_low_s")) * 1e3,
            "high": number(row.get(f"{name[:-2]}_high_s")) * 1e3,
            "label": format_time(number(row[name])),
        }
        for row in curve
    ]
    data = [{k: v for k, v in row.items() if v == v} for row in data]
    x: Spec = {"field": "rate", "type": "quantitative", "axis": {"title": "requests a second", "grid": False}}
    y: Spec = {"field": "ms", "type": "quantitative", "axis": {"title": f"{short}, ms", "tickCount": 5}}
    here = {"values": [{"rate": rate, "label": "as asked"}]}
    # Its upper end is a worst case, which would press the curve to the ground.
    layers: list[Spec] = [
        {
            "mark": {"type": "line", "color": color, "strokeWidth": 2.5, "point": {"size": 44, "color": color}},
            "encoding": {
                "x": x,
                "y": y,
                "tooltip": [
                    {"field": "rate", "title": "requests/s", "format": ".3~r"},
                    {"field": "label", "title": short},
                ],
            },
        },
        {"data": here, "mark": {"type": "rule", "strokeDash": [4, 3]}, "encoding": {"x": x}},
        {
            "data": here,
            "mark": {"type": "text", "align": "left", "dx": 5, "baseline": "top"},
            "encoding": {"x": x, "y": {"value": 2}, "text": {"field": "label"}},
        },
    ]
    rows = [[f"{number(row['rate']):.3g}", str(row["label"])] for row in data]
    alt = f"{short} at so many requests a second, from {data[0]['label']} to {data[-1]['label']}."
    return Chart(title, alt, {"layer": layers}, data, 230, Panel("", ("requests/s", short), rows))


def _percentiles(document: Document) -> Iterator[Chart]:
    """Yield the percentiles of a simulated run."""
    run = numbers(part(document, "simulated"))
    data: list[Datum] = [
        {
            "metric": name.upper(),
            "which": which,
            "ms": run[f"{which}_{name}_ms"],
            "label": format_time(run[f"{which}_{name}_ms"] / 1e3),
        }
        for name in ("ttft", "tpot", "itl", "e2el")
        for which in ("median", "p90", "p95", "p99")
        if f"{which}_{name}_ms" in run
    ]
    if not data:
        return
    spec: Spec = {
        "mark": {"type": "bar", "cornerRadiusEnd": 2},
        "encoding": {
            "x": {"field": "metric", "sort": None, "axis": {"title": None, "labelAngle": 0}},
            "xOffset": {"field": "which", "sort": None},
            "y": {"field": "ms", "type": "quantitative", "scale": {"type": "symlog"}, "axis": {"title": "ms"}},
            "color": {"field": "which", "sort": None, "legend": {"title": None, "orient": "top"}},
            "tooltip": [{"field": "metric"}, {"field": "which"}, {"field": "label", "title": "time"}],
        },
    }
    rows = [[str(row["metric"]), str(row["which"]), str(row["label"])] for row in data]
    alt = "Latencies of the simulated requests: the median and higher percentiles."
    yield Chart("Percentiles", alt, spec, data, 240, Panel("", ("metric", "percentile", "time"), rows))
