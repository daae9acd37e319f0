"""Charts of chip designs: the two goals, lines of equal worth over two axes, yield, NRE over volume."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...driver.metrics import METRICS, format_metric
from ...ir.units import format_bytes, format_si
from .chart import RULE, Chart, Datum, Spec, amount, metric_axis, metric_title
from .read import Document, number, records

# Designs that a chart has room for, the best first.
_MOST = 1500
# What a space may vary, with what an axis says of it and by how much its numbers are divided.
_AXES = {
    "die_mm2": ("die, mm2", 1.0),
    "package_w": ("power of the package, W", 1.0),
    "num_stacks": ("stacks of memory", 1.0),
    "hbm_bytes_per_s": ("memory bandwidth, TB/s", 1e12),
    "link_bytes_per_s": ("links, TB/s", 1e12),
    "d2d_bytes_per_s": ("between dies, TB/s", 1e12),
}
# Production volumes over which NRE is spread, and the designs that are drawn over them.
_VOLUMES = (1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6, 3e6)
_MOST_LINES = 6
_WORDS = ("node", "unit", "memory", "link", "joint", "d2d", "join")


def designs_charts(document: Document) -> Iterator[Chart]:
    """Yield the charts of a sweep."""
    rows = records(document, "designs")[:_MOST]
    goals = [name for name in str(document.get("objective", "")).replace("+", "").split(",") if name]
    if len(goals) > 1:
        yield _goals(goals, rows)
    yield from _lines(goals[0] if goals else "usd_per_gpu", rows)
    if any(number(row.get("package_yield")) > 0 for row in rows):
        yield _yields(rows)
    if any(number(row.get("nre_usd")) > 0 for row in rows):
        yield _volumes(rows)


def _goals(goals: Sequence[str], rows: Sequence[Document]) -> Chart:
    first, second = goals[0], goals[1]
    word = _differs(rows)
    data: list[Datum] = [
        {
            "x": number(row.get(first)),
            "y": number(row.get(second)),
            "word": str(row.get(word)),
            "best": bool(row.get("pareto")),
            "tx": _told(first, number(row.get(first))),
            "ty": _told(second, number(row.get(second))),
            "design": _design(row),
        }
        for row in rows
    ]
    x, y = metric_axis("x", first), metric_axis("y", second)
    spec: Spec = {
        "params": [{"name": "zoom", "select": "interval", "bind": "scales"}],
        "mark": {"type": "circle", "size": 90},
        "encoding": {
            "x": x,
            "y": y,
            "color": {
                "field": "word",
                "legend": {"title": word.replace("_", " "), "orient": "top", "symbolType": "circle"},
            },
            "opacity": {"condition": {"test": "datum.best", "value": 1}, "value": 0.35},
            "stroke": {"condition": {"test": "datum.best", "value": "#1c2430"}, "value": None},
            "tooltip": [{"field": "design"}, {"field": "tx", "title": first}, {"field": "ty", "title": second}],
        },
    }
    num = sum(bool(row["best"]) for row in data)
    axes = f"{metric_title(first)} and {metric_title(second)}"
    alt = f"{len(data)} designs by {axes}; the {num} in full colour are Pareto-optimal."
    return Chart("Pareto front", alt, spec, data, 320)


def _lines(goal: str, rows: Sequence[Document]) -> Iterator[Chart]:
    """Yield the best design at each place of the two axes that differ first, in bands of equal worth."""
    axes = [name for name in _AXES if len({number(row.get(name)) for row in rows}) > 1][:2]
    if len(axes) < 2:
        return
    first, second = axes
    # Rows are in the order of the first goal: the first at a place is its best.
    best: dict[tuple[float, float], Document] = {}
    for row in rows:
        best.setdefault((number(row.get(first)), number(row.get(second))), row)
    xs, ys = sorted({x for x, _ in best}), sorted({y for _, y in best})
    if len(best) * 4 < len(xs) * len(ys):
        return
    (x_title, x_unit), (y_title, y_unit) = _AXES[first], _AXES[second]
    data: list[Datum] = [
        {
            "x": f"{x / x_unit:.4g}",
            "y": f"{y / y_unit:.4g}",
            "value": number(row.get(goal)),
            "label": _told(goal, number(row.get(goal))),
            "design": _design(row),
        }
        for (x, y), row in sorted(best.items(), key=lambda one: one[0])
    ]
    across = [f"{x / x_unit:.4g}" for x in xs]
    up = [f"{y / y_unit:.4g}" for y in reversed(ys)]
    place: Spec = {
        "x": {"field": "x", "sort": across, "axis": {"title": x_title, "labelAngle": 0, "labelOverlap": True}},
        "y": {"field": "y", "sort": up, "axis": {"title": y_title, "labelOverlap": True}},
    }
    alt = f"{metric_title(goal)} of the best design at each {x_title} and {y_title}; one colour is one band of values."
    yield Chart("Best design by two axes", alt, {"layer": _bands(goal, place, data)}, data, 34 * len(ys))


def _bands(goal: str, place: Spec, data: Sequence[Datum]) -> list[Spec]:
    """Return squares in bands of equal worth; few of them say it, and more have a legend."""
    few = len(data) <= 60
    worth: Spec = {
        "field": "value",
        "type": "quantitative",
        "scale": {"type": "quantize", "scheme": "tealblues", "nice": True},
        "legend": None if few else {"title": metric_title(goal), "orient": "top", "format": ".3~g"},
    }
    told = [{"field": "design"}, {"field": "label", "title": goal}]
    squares: Spec = {
        "mark": {"type": "rect", "stroke": RULE},
        "encoding": {**place, "color": worth, "tooltip": told},
    }
    if not few:
        return [squares]
    # The darkest band takes white letters.
    darkest = {"test": f"datum.value > {max(number(r['value']) for r in data) * 0.9}", "value": "#fff"}
    letters = {"condition": darkest, "value": "#12313a"}
    mark = {"type": "text", "style": "inside"}
    return [squares, {"mark": mark, "encoding": {**place, "text": {"field": "label"}, "color": letters}}]


def _yields(rows: Sequence[Document]) -> Chart:
    word = _differs(rows, "node")
    data: list[Datum] = [
        {
            "area": number(row.get("silicon_mm2")),
            "share": number(row.get("package_yield")),
            "word": str(row.get(word)),
            "cost": f"${number(row.get('package_usd')):,.0f}",
            "told": f"{number(row.get('package_yield')):.1%}",
            "design": _design(row),
        }
        for row in rows
    ]
    spec: Spec = {
        "mark": {"type": "circle", "size": 60, "opacity": 0.8},
        "encoding": {
            "x": amount("area", {"title": "silicon of a package, mm2"}, {"zero": False}),
            "y": amount("share", {"title": "yield of packages", "format": ".0%"}, {"zero": False}),
            "color": {"field": "word", "legend": {"title": word, "orient": "top", "symbolType": "circle"}},
            "tooltip": [
                {"field": "design"},
                {"field": "told", "title": "yield"},
                {"field": "cost", "title": "a package"},
            ],
        },
    }
    least, most = (end(number(row["share"]) for row in data) for end in (min, max))
    return Chart(
        "Yield", f"The share of good packages, from {least:.1%} to {most:.1%}, by their silicon.", spec, data, 240
    )


def _volumes(rows: Sequence[Document]) -> Chart:
    """Return what a package costs with its share of NRE, over production volume: those of least cost, node by node."""
    word = _differs(rows, "node")
    first: dict[str, Document] = {}
    for row in rows:
        if number(row.get("nre_usd")) > 0:
            first.setdefault(str(row.get(word)), row)
    data: list[Datum] = []
    for name, row in list(first.items())[:_MOST_LINES]:
        once = number(row.get("nre_usd"))
        # Without a volume, the cost of a package has no NRE in it.
        made = number(row.get("package_usd")) - (number(row["package_nre_usd"]) if "package_nre_usd" in row else 0.0)
        data += [
            {
                "volume": volume,
                "usd": made + once / volume,
                "word": name,
                "design": _design(row),
                "share": f"{once / volume / (made + once / volume):.0%}",
                "told": f"${made + once / volume:,.0f}",
                "nre": f"${once / 1e6:,.0f}M",
            }
            for volume in _VOLUMES
        ]
    spec: Spec = {
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": amount(
                "volume", {"title": "packages made", "format": "~s", "values": list(_VOLUMES)}, {"type": "log"}
            ),
            "y": amount("usd", {"title": "cost of a package with its NRE, $", "format": "~s"}, {"type": "log"}),
            "color": {"field": "word", "legend": {"title": word.replace("_", " "), "orient": "top"}},
            "tooltip": [
                {"field": "design"},
                {"field": "volume", "title": "packages made", "format": ",.0f"},
                {"field": "told", "title": "a package"},
                {"field": "share", "title": "share of NRE"},
                {"field": "nre", "title": "NRE"},
            ],
        },
    }
    ends = (
        f"{row['word']}: {row['told']} at {number(row['volume']):,.0f}"
        for row in data
        if row["volume"] in (_VOLUMES[0], _VOLUMES[-1])
    )
    return Chart("NRE over production volume", f"Cost of a package; {'; '.join(ends)}.", spec, data, 280)


def _differs(rows: Sequence[Document], usual: str = "") -> str:
    """Return the word in which designs differ."""
    found = [name for name in _WORDS if len({str(row.get(name)) for row in rows}) > 1]
    return found[0] if found else usual or "node"


def _told(name: str, value: float) -> str:
    if name in METRICS:
        return format_metric(name, value)
    return format_bytes(value) if name.endswith("_bytes") else format_si(value, "")


def _design(row: Document) -> str:
    """Say what a design is in a line."""
    area, power = number(row.get("die_mm2")), number(row.get("package_w"))
    dies = f"{row.get('num_dies')} x " if number(row.get("num_dies")) > 1 else ""
    stacks = f"{number(row.get('num_stacks')):.0f} x {row.get('memory')}"
    return f"{row.get('node')} {dies}{area:.4g} mm2 {power:.4g} W, {stacks}"
