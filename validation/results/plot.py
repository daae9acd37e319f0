"""Outcomes as one picture: predicted over measured, on logarithmic axes, by data set, with the band of 10 %."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from ...report.charts.chart import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, RULE, SOFT, TEAL, YELLOW, Chart, Datum, Spec
from .outcomes import Outcome, Part
from .statistics import Accuracy

# Most points of a picture, most data sets with a colour of their own, and the half width of the band.
POINTS, DATASETS, BAND = 240, 7, 0.10
OTHERS = "other data sets"
_UNITS = {"s": ("time", "s"), "B": ("memory", "GiB"), "/s": ("rate", "per s")}
_GIB = 2**30


def chart(outcomes: Sequence[Outcome]) -> Chart | None:
    """Return the picture of outcomes that judge or were fitted, of the unit that most of them have; None of none.

    Of many, some are drawn, evenly spread in the order of what was measured; the text says of how many.
    """
    shown = [o for o in outcomes if o.part in (Part.JUDGED, Part.FIT) and o.measured > 0 and o.predicted > 0]
    if not shown:
        return None
    unit = Counter(o.unit for o in shown).most_common(1)[0][0]
    shown = sorted((o for o in shown if o.unit == unit), key=lambda o: (o.measured, o.predicted, o.row.id))
    scale = _GIB if unit == "B" else 1.0
    named = sorted(name for name, _ in Counter(o.row.dataset for o in shown).most_common(DATASETS))
    step = -(-len(shown) // POINTS)
    data: list[Datum] = [
        {
            "m": _rounded(o.measured / scale),
            "p": _rounded(o.predicted / scale),
            "d": o.row.dataset if o.row.dataset in named else OTHERS,
        }
        for o in shown[::step]
    ]
    others = [OTHERS] if {o.row.dataset for o in shown} - set(named) else []
    what, told = _UNITS[unit]
    ends = shown[0].measured / scale, shown[-1].measured / scale
    judged = [o for o in shown if o.part is Part.JUDGED] or shown
    accuracy = Accuracy.of([o.predicted / o.measured - 1.0 for o in judged])
    alt = (
        f"Predicted over measured {what} of {len(data):,} of {len(shown):,} quantities; the band is 10 % around equal. "
        f"Median error of {accuracy.num:,} that judge: {accuracy.median:.1%}, p90 {accuracy.p90:.1%}."
    )
    spec: Spec = {"layer": list(_layers(ends, named, others, f"{what}, {told}"))}
    return Chart("Predicted over measured", alt, spec, data, 420)


def _layers(ends: tuple[float, float], named: Sequence[str], others: Sequence[str], told: str) -> Iterator[Spec]:
    """Yield the band, the line of equals, and the points."""
    line = [{"m": end, "low": end * (1.0 - BAND), "high": end * (1.0 + BAND), "p": end} for end in ends]
    decades = [10.0**k for k in range(math.floor(math.log10(ends[0])) - 1, math.ceil(math.log10(ends[1])) + 2)]
    log = {"type": "quantitative", "scale": {"type": "log", "nice": False}}
    axis = {"values": decades, "format": "~s"}
    x = {**log, "field": "m", "axis": {**axis, "title": f"measured {told}"}}
    y = {**log, "axis": {**axis, "title": f"predicted {told}"}}
    band = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
    yield {"data": {"values": line}, "mark": {"type": "area", "color": RULE, "opacity": 0.7}, "encoding": band}
    yield {
        "data": {"values": line},
        "mark": {"type": "line", "color": SOFT, "strokeWidth": 1},
        "encoding": {"x": x, "y": {**y, "field": "p"}},
    }
    colors = [BLUE, ORANGE, GREEN, PURPLE, TEAL, RED, YELLOW][: len(named)]
    color = {
        "field": "d",
        "scale": {"domain": [*named, *others], "range": [*colors, *[GREY] * len(others)]},
        "legend": {"title": None, "orient": "bottom", "columns": 2, "symbolType": "circle"},
    }
    yield {
        "mark": {"type": "circle", "size": 22, "opacity": 0.75, "aria": False},
        "encoding": {"x": x, "y": {**y, "field": "p"}, "color": color},
    }


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
