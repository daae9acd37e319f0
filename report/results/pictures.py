"""An estimate as a picture: where the step goes, and its operators under the roofline of the chip."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from ...driver.estimate import Estimate
from ...driver.metrics import METRICS
from ...ir.errors import UsageError
from ...ir.units import format_time
from ..costed import costed_rows
from ..labels import part_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What the picture shows, for who cannot see it.
ALT = (
    "Where the time of the step goes, and the rate of each operator by its FLOPs a byte, under the roofline of the chip"
)
# The largest dot, in square points, is what takes longest.
_LARGEST = 400.0
_SIZE_INCHES = (12.0, 4.6)


@dataclass(frozen=True, slots=True)
class Dot:
    """An operator under the roofline: FLOPs a byte, FLOP/s, seconds of all its runs, and what bounds it."""

    intensity: float
    flop_per_s: float
    time_s: float
    bound: str


def dots(answer: Estimate) -> Iterator[Dot]:
    """Yield the operators that compute and move something; others have no place under a roofline."""
    for row in costed_rows(answer):
        flops = row.tensor_flops + row.vector_flops
        if flops > 0 and row.num_bytes > 0 and row.time_s > 0 and row.bound != "network":
            yield Dot(flops / row.num_bytes, flops / row.time_s, row.time_s * row.count, row.bound)


def drawable() -> bool:
    """Whether there is what draws."""
    return find_spec("matplotlib") is not None


def figure(answer: Estimate) -> Figure:
    """Return the picture as a figure of matplotlib; UsageError where it is not installed."""
    if not drawable():
        raise UsageError("pictures need slipstick[plot]: pip install 'slipstick[plot]'")
    from matplotlib.figure import Figure

    # Made by itself: no window, no state of pyplot.
    drawn = Figure(figsize=_SIZE_INCHES, layout="constrained")
    left, right = drawn.subplots(1, 2)
    _parts(answer, left)
    _roofline(answer, right)
    return drawn


def figure_svg(answer: Estimate) -> str:
    """Return the picture as SVG whose text is text, the same bytes for the same answer."""
    drawn, out = figure(answer), io.StringIO()
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "slipstick"}):
        drawn.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _parts(answer: Estimate, axes: Axes) -> None:
    """Draw the parts of the step, the greatest above."""
    parts = sorted((seconds, part_label(name)) for name, seconds in answer.breakdown_s.items() if seconds > 0)
    bars = axes.barh([label for _, label in parts], [seconds for seconds, _ in parts], color="#3273b5")
    axes.bar_label(bars, [f" {format_time(seconds)}" for seconds, _ in parts])
    axes.margins(x=0.2)
    step_s = answer.metrics["step_time_s"]
    axes.set(title=f"{METRICS['step_time_s'].label}: {format_time(step_s)}", xlabel="s")
    axes.spines[["top", "right"]].set_visible(False)


def _roofline(answer: Estimate, axes: Axes) -> None:
    """Draw operators as dots, as large as the time that they take in all, under what the chip can do."""
    chip, graph = answer.table.system.chip, answer.table.lowered.source
    peak, hbm = float(chip.matmul_flop_per_s(str(graph.dtype))), float(chip.hbm_bytes_per_s)
    found = list(dots(answer))
    longest = max((dot.time_s for dot in found), default=1.0)
    for bound in sorted({dot.bound for dot in found}):
        own = [dot for dot in found if dot.bound == bound]
        sizes = [max(_LARGEST * dot.time_s / longest, 4.0) for dot in own]
        xs, ys = [dot.intensity for dot in own], [dot.flop_per_s for dot in own]
        axes.scatter(xs, ys, sizes, alpha=0.6, label=f"bound by {bound}")
    ridge = peak / hbm
    ends = np.array([min([dot.intensity for dot in found] + [ridge]) / 3, ridge, ridge * 30])
    axes.plot(ends, np.minimum(ends * hbm, peak), color="#666666", label=f"{chip.name}, {graph.dtype}")
    axes.set(xscale="log", yscale="log", xlabel="FLOP/byte", ylabel="FLOP/s", title="Operators under the roofline")
    axes.legend(loc="lower right", fontsize="small", markerscale=0.5)
    axes.grid(alpha=0.3)
