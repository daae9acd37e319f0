"""Bars one below the other, each with its name before it and its value behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..results.table import Panel
from .chart import NAMES, Chart, Datum, Spec, amount, colours
from .read import number

# Pixels of a bar with what is between it and the next.
ROW = 25


def bars(
    title: str,
    alt: str,
    data: Sequence[Datum],
    head: Sequence[str],
    colors: Mapping[str, str],
    heading: str = "",
) -> Chart:
    """Return bars, one a row of `data` in its order, with its label at its end: name, value, label, color, detail."""
    named = [name for name in colors if any(row["class"] == name for row in data)]
    most = max((abs(number(row["value"])) for row in data), default=0.0)
    told = [{"field": name, "type": "nominal"} for name in ("name", "label", "class")]
    shared: Spec = {
        "y": {"field": "name", "type": "nominal", "sort": None, "axis": NAMES},
        # Room for the label of the longest bar.
        "x": amount("value", None, {"domain": [0, most * 1.28 or 1.0], "nice": False}),
        "tooltip": told,
    }
    legend = None if len(named) < 2 else {"title": heading or None, "orient": "top"}
    color = {**colours("class", named, [colors[n] for n in named], legend), "type": "nominal"}
    spec: Spec = {
        "encoding": shared,
        "layer": [
            {"mark": {"type": "bar", "cornerRadiusEnd": 2, "height": {"band": 0.72}}, "encoding": {"color": color}},
            {"mark": {"type": "text", "align": "left", "dx": 6}, "encoding": {"text": {"field": "label"}}},
        ],
    }
    rows = [[str(row[name]) for name in ("name", "label", "class")] for row in data]
    return Chart(title, alt, spec, data, ROW * len(data), Panel("", head, rows))
