"""Charts of a server: where the time of a request goes, and what its latencies become under more load."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from ...driver.serve.answer import ServeEstimate
from ...ir.units import format_time
from ..labels import request_part_label
from ..results.table import Panel
from ..serving.load_curve import latency_columns, load_curve
from .bars import bars
from .chart import ABOVE, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, Chart, Datum, Spec, amount, colours
from .read import Document, number, numbers, part, records
from .steps import memory_chart

_COLORS = {"prefill": BLUE, "decode": ORANGE, "waits": GREY, "host": GREEN, "transfer": PURPLE}


def load_record(answer: ServeEstimate) -> list[dict[str, float]]:
    """Return `load_curve` in rows, without numbers that are none or infinite."""
    curve = load_curve(answer)
    rows = zip(*curve.values(), strict=True)
    return [{name: float(v) for name, v in zip(curve, row, strict=True) if math.isfinite(v)} for row in rows]


def server_charts(document: Document) -> Iterator[Chart]:
    """Yield the charts of a server that its document has the numbers for."""
    yield _parts(document)
    rate = numbers(part(document, "metrics")).get("requests_per_s", 0.0)
    curve = records(document, "load_curve")
    if curve:
        target = part(document, "target")
        yield _curve("Time to first token (TTFT) over load", "TTFT", curve, rate, target)
        yield _curve("Time per output token (TPOT) over load", "TPOT", curve, rate, target)
    yield from _percentiles(document)
    yield from _replicas(part(document, "autoscaling"))
    yield memory_chart(document)


def size_charts(document: Document) -> Iterator[Chart]:
    """Yield the charts of the first plan of a sizing, with the limits that it was sized for."""
    for best in records(document, "choices")[:1]:
        yield from server_charts({**best, "target": part(document, "target")})


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


def _curve(title: str, short: str, curve: list[Document], rate: float, target: Document) -> Chart:
    """Return the mean and percentiles of a latency over the rate of requests, with the limit of a target."""
    keys = latency_columns(short)
    data: list[Datum] = [
        {
            "rate": number(row["requests_per_s"]),
            "which": which,
            "ms": number(row[key]) * 1e3,
            "label": format_time(number(row[key])),
        }
        for which, key in keys.items()
        for row in curve
        if key in row
    ]
    x = amount("rate", {"title": "requests/s", "grid": False})
    y = amount("ms", {"title": f"{short}, ms", "tickCount": 5}, {"type": "log"})
    which: Spec = {**colours("which", list(keys), [BLUE, GREEN, ORANGE, PURPLE]), "sort": None}
    here = {"values": [{"rate": rate, "label": "as asked"}]}
    layers: list[Spec] = [
        {
            "mark": {"type": "line", "strokeWidth": 2, "point": {"size": 36}},
            "encoding": {
                "x": x,
                "y": y,
                "color": which,
                "tooltip": [
                    {"field": "which", "title": "of the requests"},
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
    limits = _limits(short, y, target)
    rows = [
        [f"{number(row['requests_per_s']):.3g}", *(format_time(number(row[key])) for key in keys.values())]
        for row in curve
        if set(keys.values()) <= set(row)
    ]
    ends = [row["label"] for row in data if row["which"] == "mean"]
    alt = f"{short} over requests/s: mean, p50, p90 and p99." + (f" Mean from {ends[0]} to {ends[-1]}." if ends else "")
    panel = Panel("", ("requests/s", *(f"{short} {which}" for which in keys)), rows)
    return Chart(title, alt, {"layer": [*layers, *limits]}, data, 230, panel)


def _limits(short: str, y: Spec, target: Document) -> list[Spec]:
    """Return the line of a target's limit and what it says; nothing where it has none."""
    limit_s, share = (number(target.get(f"{short.lower()}_{name}")) for name in ("s", "share"))
    if not limit_s > 0:
        return []
    of = f"p{share * 100:g}" if share > 0 else "mean"
    line = {"values": [{"ms": limit_s * 1e3, "label": f"limit: {of} {short} {format_time(limit_s)}"}]}
    text = {"type": "text", "align": "right", "baseline": "bottom", "dy": -3, "color": RED}
    at: Spec = {"x": {"value": "width"}, "y": y, "text": {"field": "label"}}
    return [
        {"data": line, "mark": {"type": "rule", "strokeDash": [5, 3], "color": RED}, "encoding": {"y": y}},
        {"data": line, "mark": text, "encoding": at},
    ]


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
            "y": amount("ms", {"title": "ms"}, {"type": "symlog"}),
            "color": {"field": "which", "sort": None, "legend": ABOVE},
            "tooltip": [{"field": "metric"}, {"field": "which"}, {"field": "label", "title": "time"}],
        },
    }
    rows = [[str(row["metric"]), str(row["which"]), str(row["label"])] for row in data]
    alt = "Latencies of the simulated requests: the median and higher percentiles."
    yield Chart("Percentiles", alt, spec, data, 240, Panel("", ("metric", "percentile", "time"), rows))


def replica_levels(scaling: Document) -> Mapping[str, list[tuple[float, float]]]:
    """Return replicas over minutes as lines of two kinds: those that take requests, and all that have GPUs.

    Every change has two points, so that a line is level between changes.
    """
    rows, end_s = records(scaling, "replicas"), number(scaling.get("span_s"))
    ends = [*(number(row["at_s"]) for row in rows[1:]), end_s]
    kinds = {"take requests": "serving", "have GPUs": "with_gpus"}
    return {
        kind: [
            (at_s / 60.0, number(row[key]))
            for row, until_s in zip(rows, ends, strict=True)
            for at_s in (number(row["at_s"]), until_s)
        ]
        for kind, key in kinds.items()
    }


def _replicas(scaling: Document) -> Iterator[Chart]:
    """Yield the replicas over the run, where they come and go."""
    if not records(scaling, "replicas"):
        return
    levels = replica_levels(scaling)
    data: list[Datum] = [
        {"min": at, "which": kind, "num": num, "order": k}
        for kind, points in levels.items()
        for k, (at, num) in enumerate(points)
    ]
    most = number(scaling.get("most"))
    spec: Spec = {
        "layer": [
            {
                "mark": {"type": "line", "strokeWidth": 2},
                "encoding": {
                    "x": amount("min", {"title": "minutes", "grid": False}),
                    "y": amount("num", {"title": "replicas", "tickMinStep": 1}),
                    "order": {"field": "order"},
                    "color": {**colours("which", list(levels), [GREEN, ORANGE]), "sort": None},
                    "tooltip": [{"field": "which"}, {"field": "min", "format": ".3~r"}, {"field": "num"}],
                },
            },
            {
                "data": {"values": [{"num": most}]},
                "mark": {"type": "rule", "strokeDash": [4, 3]},
                "encoding": {"y": {"field": "num", "type": "quantitative"}},
            },
        ]
    }
    rows = [
        [f"{number(row['at_s']) / 60.0:.3g}", f"{number(row['serving']):.0f}", f"{number(row['with_gpus']):.0f}"]
        for row in records(scaling, "replicas")
    ]
    alt = f"Replicas over the run: those that take requests and all that have GPUs; a fixed fleet has {most:.0f}."
    yield Chart("Replicas over time", alt, spec, data, 200, Panel("", ("minutes", *levels), rows))
