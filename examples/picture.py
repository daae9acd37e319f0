"""Pictures that fit a column of a paper: 3.3 inches wide, no text below 7 points, colours that everyone can tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

# Panels with long names below their bars are taller.
WIDTH_IN, PANEL_IN, TALL_IN, TEXT_PT = 3.3, 2.3, 4.4, 7.0
# Okabe and Ito's palette, which people with any colour vision can tell apart, without its yellow.
BLACK, ORANGE, SKY, GREEN, BLUE, RED, PINK, GREY = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#999999",
)  # fmt: skip
COLOURS: Sequence[str] = (BLUE, ORANGE, GREEN, RED, SKY, PINK, BLACK, GREY)
_STYLE = {
    "font.size": TEXT_PT,
    "axes.labelsize": TEXT_PT,
    "axes.titlesize": TEXT_PT,
    "axes.prop_cycle": f"cycler('color', {list(COLOURS)})",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": TEXT_PT,
    "ytick.labelsize": TEXT_PT,
    "legend.fontsize": TEXT_PT,
    "legend.frameon": False,
    "legend.handlelength": 1.2,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.0,
    "svg.fonttype": "none",
}


def column_figure(title: str, panels: int, panel_in: float = PANEL_IN) -> tuple[Figure, list[Axes]]:
    """Return a figure of a column's width and its panels, one below the other; equal tables give equal files."""
    rcParams.update({**_STYLE, "svg.hashsalt": title})  # pyright: ignore[reportCallIssue, reportArgumentType]
    figure = Figure(figsize=(WIDTH_IN, panel_in * panels), layout="constrained")
    return figure, [figure.add_subplot(panels, 1, k + 1) for k in range(panels)]


def faults(figure: Figure) -> Iterator[str]:
    """Yield what makes a figure unfit for a column: its width, small text, text outside of it or over other text."""
    if figure.get_figwidth() != WIDTH_IN:
        yield f"{figure.get_figwidth():g} in wide instead of {WIDTH_IN:g}"
    FigureCanvasAgg(figure).draw()
    texts = list(_texts(figure))
    boxes = [(text.get_text(), text.get_window_extent().padded(-0.5)) for text in texts]
    yield from (f"{t.get_text()!r} has {t.get_fontsize():g} pt" for t in texts if float(t.get_fontsize()) < TEXT_PT)
    inside = figure.bbox.padded(1.0)
    for words, box in boxes:
        if not all(inside.contains(x, y) for x, y in (box.p0, box.p1)):
            yield f"{words!r} leaves the figure"
    for (words, box), (others, other) in combinations(boxes, 2):
        if box.overlaps(other):
            yield f"{words!r} lies over {others!r}"


def _texts(figure: Figure) -> Iterator[Text]:
    """Yield all text that is drawn: labels of ticks beyond their axis are not."""
    beyond = {
        id(tick.label1)
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
    }
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip() and id(text) not in beyond:
            yield text
