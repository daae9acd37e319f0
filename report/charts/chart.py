"""A chart: what it shows in words, and how in the grammar of Vega-Lite; drawn without a browser where one is installed.

The grammar is https://vega.github.io/vega-lite/docs/. Altair gives a chart to notebooks, VlConvert draws it and brings
the scripts of pages; both are the extra `slipstick[report]`, and a page without them has the same numbers as tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from signal import Signals
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...driver.metrics import METRICS
from ...ir.errors import DrawingError, UsageError
from ...ir.records import dataclass
from ...ir.text.json_text import json_text
from ..results.table import Panel

if TYPE_CHECKING:
    from altair import TopLevelMixin

Spec = Mapping[str, object]
Datum = Mapping[str, object]

# The release of the grammar that charts are written in.
VERSION = "6.4"
_CLIPS = re.compile(r"\bclip[0-9]+\b")
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
# A chart that fills its page has so many pixels where nothing says how wide the page is.
_WIDTH = 720
NEEDED = "charts need slipstick[report]: pip install 'slipstick[report]'"
# Text as on the page around it; what is grey here, the page turns with the screen.
_FONT = "system-ui, Segoe UI, Helvetica, Arial, sans-serif"
INK, SOFT, RULE = "#1c2430", "#5b6675", "#d9dee5"
# Colours that tell apart on white and on black, for who sees red as green too (after Okabe and Ito).
BLUE, ORANGE, GREEN, RED, PURPLE, GREY, TEAL, YELLOW = (
    "#2f6fc4",
    "#e07b39",
    "#2f9e77",
    "#cf4f5f",
    "#8d6cc9",
    "#8b96a5",
    "#2aa5b8",
    "#d0a215",
)
CONFIG: Mapping[str, object] = MappingProxyType(
    {
        "font": _FONT,
        "background": "transparent",
        "view": {"stroke": None},
        "axis": {
            "labelColor": SOFT,
            "titleColor": SOFT,
            "gridColor": RULE,
            "domainColor": RULE,
            "tickColor": RULE,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "labelLimit": 320,
        },
        "axisQuantitative": {"tickCount": 8},
        "legend": {
            "labelColor": SOFT,
            "titleColor": SOFT,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "symbolType": "square",
            "labelLimit": 320,
        },
        "text": {"color": INK, "fontSize": 12},
        "rule": {"color": SOFT},
        "range": {"category": [BLUE, ORANGE, GREEN, PURPLE, TEAL, RED, YELLOW, GREY]},
    }
)


def metric_title(name: str) -> str:
    """Return what an axis says of a number: its label and unit, or its name in words.

    >>> metric_title("step_time_s"), metric_title("fp16_flop_per_s")
    ('step time, s', 'fp16 FLOP/s')
    """
    if name not in METRICS:
        words = name.replace("_per_", "/").replace("_", " ")
        return re.sub(r"\bflops?\b", "FLOP", words).replace("usd", "$").replace("hbm", "HBM").replace("bytes", "B")
    metric = METRICS[name]
    return f"{metric.label}, {metric.unit}" if metric.unit else metric.label


# A legend above its chart, which says nothing that its colours do not.
ABOVE: Spec = MappingProxyType({"title": None, "orient": "top"})
# An axis of names, which need no line.
NAMES: Spec = MappingProxyType({"title": None, "ticks": False, "domain": False})


def amount(field: str, axis: Spec | None, scale: Spec | None = None) -> dict[str, object]:
    """Return a place on an axis by a number of the data."""
    found: dict[str, object] = {"field": field, "type": "quantitative", "axis": axis}
    return found if scale is None else {**found, "scale": scale}


def metric_axis(field: str, name: str) -> Spec:
    """Return an axis of a chart that compares: a number of the data, not from zero, with three digits."""
    return amount(field, {"title": metric_title(name), "format": ".3~g"}, {"zero": False})


def colours(field: str, names: Sequence[object], colors: Sequence[str], legend: Spec | None = ABOVE) -> Spec:
    """Return the colour of each class of the data, by its name."""
    return {"field": field, "scale": {"domain": list(names), "range": list(colors)}, "legend": legend}


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of a page.

    Attributes:
        title: of its section.
        alt: what it shows, for who cannot see it; people read it below the title as well.
        spec: the chart in the grammar of Vega-Lite, without data, size and style of the house.
        data: the rows that it shows.
        height: in pixels.
        numbers: the same as a table.
    """

    title: str
    alt: str
    spec: Spec
    data: Sequence[Datum]
    height: int = 280
    numbers: Panel | None = None

    def whole(self, width: int | str = "container") -> dict[str, object]:
        """Return the chart with its data; `container` is as wide as what it stands in."""
        whole = {
            "$schema": _SCHEMA,
            "description": self.alt,
            "width": width,
            "height": self.height,
            "autosize": {"type": "fit-x" if isinstance(width, str) else "pad", "contains": "padding"},
            "data": {"values": self.data},
            "config": dict(CONFIG),
            **self.spec,
        }
        return {name: _plain(value) for name, value in whole.items()}

    def svg(self) -> str:
        """Return the chart as SVG; UsageError where nothing can draw it."""
        text = _drawn("svg", json_text(self._on_paper())).decode()
        # Counted on from one picture to the next: numbered anew, the same answer is the same bytes.
        numbers = {name: f"clip{k}" for k, name in enumerate(dict.fromkeys(_CLIPS.findall(text)))}
        return _CLIPS.sub(lambda found: numbers[found[0]], text)

    def png(self) -> bytes:
        """Return the chart as PNG, two pixels a pixel of the page; UsageError where nothing can draw it."""
        return _drawn("png", json_text(self._on_paper()))

    def figure(self) -> TopLevelMixin:
        """Return the chart as one of Altair, which notebooks show; UsageError where it is not installed."""
        if find_spec("altair") is None:
            raise UsageError(NEEDED)
        import altair

        return altair.Chart.from_dict(self.whole(_WIDTH))

    def _on_paper(self) -> dict[str, object]:
        """Return the chart with its title, on white."""
        whole = self.whole(_WIDTH)
        return {**whole, "title": {"text": self.title, "anchor": "start", "color": INK}, "background": "#ffffff"}


def _plain(value: object) -> object:
    """Return a value as JSON and XML have it: no number that is none, no letter that steers a terminal."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) and not value.isprintable():
        return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in value)
    return value


def drawable() -> bool:
    """Whether charts can be drawn here."""
    return find_spec("vl_convert") is not None


def _drawn(form: str, spec: str = "") -> bytes:
    """Return what a process of its own draws (`draw`).

    Raises:
        UsageError: nothing that draws is installed.
        DrawingError: the process ended before it had drawn, as where memory or processes are limited.
    """
    if not drawable():
        raise UsageError(NEEDED)
    from ...ir.host.children import run_program

    try:
        done = run_program(Path(__file__).with_name("draw.py"), json_text([form, VERSION, spec]).encode())
    except OSError as error:
        raise DrawingError.of(str(error)) from error
    if done.returncode < 0:
        raise DrawingError.of(f"ended by {Signals(-done.returncode).name}")
    if done.returncode:
        lines = done.stderr.decode(errors="replace").split("\n\n")[0].strip().splitlines()
        raise DrawingError.of(lines[-1] if lines else "without a word")
    return done.stdout


@cache
def scripts() -> str:
    """Return the scripts that draw charts on a page, as VlConvert has them: they ask no other host for anything.

    Putting them together takes two seconds: they are kept beside the graphs, one file for each release.
    """
    from ...ir.text.files import TextCache

    cache, name = TextCache.of("scripts"), f"vega-{version('vl-convert-python')}-{VERSION}.js"
    text = cache.get(name)
    if text is None:
        text = _drawn("scripts").decode()
        cache.put(name, text)
    return text
