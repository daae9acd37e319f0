"""Charts of a search: the plans that no other beats, and every plan of the answer as a line over what differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...driver.metrics import METRICS, format_metric
from .chart import BLUE, GREY, ORANGE, RULE, SOFT, Chart, Datum, Spec, metric_axis, metric_title
from .read import Document, number, records

# Words of a plan that are lines of parallel coordinates where rows differ in them.
_WORDS = (
    "gpus",
    "num_gpus",
    "tp",
    "pp",
    "cp",
    "ep",
    "dp",
    "dp_shard",
    "vpp",
    "mbs",
    "gbs",
    "zero",
    "recompute",
    "precision",
    "schedule",
    "system",
)
_MOST_AXES = 10


def search_charts(document: Document) -> Iterator[Chart]:
    """Yield the front of a search, and parallel coordinates of its rows."""
    said = document.get("objectives")
    goals = [
        str(one).lstrip("+-").split()[0] for one in (said if isinstance(said, list) else ()) if str(one).strip("+- ")
    ]
    goals = [name for name in goals if name in METRICS]
    front = records(document, "front")
    seen = {str(row) for row in front}
    rows, best = [*front, *(row for row in records(document, "best") if str(row) not in seen)], len(front)
    if goals:
        yield _front(goals, rows, best)
        yield from _parallel(goals, rows, best)


def _front(goals: Sequence[str], rows: Sequence[Document], best: int) -> Chart:
    first, second = (*goals, "usd_per_mtok" if goals[0] != "usd_per_mtok" else "step_time_s")[:2]
    data: list[Datum] = [
        {
            "x": number(row[first]),
            "y": number(row[second]),
            "plan": str(row.get("plan")),
            "class": "Pareto-optimal" if k < best else "best of the others",
            "tx": format_metric(first, number(row[first])),
            "ty": format_metric(second, number(row[second])),
        }
        for k, row in enumerate(rows)
        if number(row.get(first)) > 0 and number(row.get(second)) == number(row.get(second))
    ]
    told = [{"field": "plan"}, {"field": "tx", "title": first}, {"field": "ty", "title": second}]
    x, y = metric_axis("x", first), metric_axis("y", second)
    names = ["Pareto-optimal", "best of the others"]
    on: Spec = {"filter": {"field": "class", "equal": names[0]}}
    spec: Spec = {
        "layer": [
            {
                "transform": [on],
                "mark": {"type": "line", "color": BLUE, "interpolate": "step-after", "opacity": 0.5},
                "encoding": {"x": x, "y": y, "order": {"field": "x"}},
            },
            {
                "params": [{"name": "zoom", "select": "interval", "bind": "scales"}],
                "mark": {"type": "circle", "size": 110, "opacity": 0.9, "stroke": "#fff", "strokeWidth": 0.8},
                "encoding": {
                    "x": x,
                    "y": y,
                    "tooltip": told,
                    "color": {
                        "field": "class",
                        "scale": {"domain": names, "range": [BLUE, GREY]},
                        "legend": {"title": None, "orient": "top", "symbolType": "circle"},
                    },
                },
            },
        ]
    }
    axes = f"{metric_title(first)} and {metric_title(second)}"
    alt = f"Plans by {axes}: {best} Pareto-optimal, and the best of the others."
    return Chart("Pareto front", alt, spec, data, 320)


def _parallel(goals: Sequence[str], rows: Sequence[Document], best: int) -> Iterator[Chart]:
    """Yield every row as a line over the words that differ and the goals, each axis from its least to its most."""
    words = [name for name in _WORDS if len({str(row.get(name)) for row in rows}) > 1]
    axes = [*words, *goals][-_MOST_AXES:]
    if len(rows) < 2 or len(axes) < 2:
        return
    data, ends = _lines(axes, rows, best)
    alt = f"Each of {len(rows)} plans as a line over what it says of {', '.join(axes)}."
    yield Chart("Parallel coordinates", alt, {"layer": _beside(axes, ends)}, data, 300)


def _lines(axes: Sequence[str], rows: Sequence[Document], best: int) -> tuple[list[Datum], list[Datum]]:
    """Return where each row crosses each axis, and what stands at both ends of each axis."""
    data: list[Datum] = []
    ends: list[Datum] = []
    for name in axes:
        values = [row.get(name) for row in rows]
        known = [number(v) for v in values]
        steps = sorted({str(v) for v in values})
        if not all(v == v for v in known):
            known = [float(steps.index(str(v))) for v in values]
        low, high = min(known), max(known)
        shown = [
            format_metric(name, v) if name in METRICS else str(value) for v, value in zip(known, values, strict=True)
        ]
        ends += [{"axis": name, "at": at, "label": shown[known.index(end)]} for at, end in ((0.0, low), (1.0, high))]
        for k, (value, text) in enumerate(zip(known, shown, strict=True)):
            data.append(
                {
                    "row": k,
                    "axis": name,
                    "at": (value - low) / (high - low) if high > low else 0.5,
                    "value": text,
                    "plan": str(rows[k].get("plan")),
                    "class": "Pareto-optimal" if k < best else "best of the others",
                }
            )
    return data, ends


def _beside(axes: Sequence[str], ends: Sequence[Datum]) -> list[Spec]:
    """Return axes beside each other, lines across them, of which one lights up, and what stands at the ends."""
    x: Spec = {
        "field": "axis",
        "type": "nominal",
        "sort": axes,
        "scale": {"type": "point", "padding": 0.4},
        "axis": {
            "orient": "top",
            "title": None,
            "domain": False,
            "ticks": False,
            "labelAngle": 0,
            "labelFontWeight": "bold",
            "labelPadding": 18,
        },
    }
    y: Spec = {"field": "at", "type": "quantitative", "axis": None, "scale": {"domain": [0, 1]}}
    above: Spec = {"type": "text", "fontSize": 11, "color": SOFT, "dy": -8}
    below: Spec = {"type": "text", "fontSize": 11, "color": SOFT, "dy": 10}
    return [
        {"mark": {"type": "rule", "color": RULE}, "encoding": {"x": x}},
        {
            "params": [
                {
                    "name": "over",
                    "select": {"type": "point", "fields": ["row"], "on": "pointerover", "clear": "pointerout"},
                }
            ],
            "mark": {"type": "line", "strokeWidth": 2.4, "interpolate": "monotone"},
            "encoding": {
                "x": x,
                "y": y,
                "detail": {"field": "row"},
                "color": {
                    "field": "class",
                    "scale": {"domain": ["Pareto-optimal", "best of the others"], "range": [ORANGE, BLUE]},
                    "legend": {"title": None, "orient": "bottom"},
                },
                "opacity": {"condition": {"param": "over", "empty": False, "value": 1}, "value": 0.4},
                "tooltip": [{"field": "plan"}, {"field": "axis"}, {"field": "value"}],
            },
        },
        {
            "data": {"values": ends},
            "transform": [{"filter": "datum.at > 0.5"}],
            "mark": above,
            "encoding": {"x": x, "y": y, "text": {"field": "label"}},
        },
        {
            "data": {"values": ends},
            "transform": [{"filter": "datum.at < 0.5"}],
            "mark": below,
            "encoding": {"x": x, "y": y, "text": {"field": "label"}},
        },
    ]
