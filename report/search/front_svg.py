"""The front as a picture: an SVG by itself, with a tooltip a point, for dark and light screens and for paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from ...explore.goals import Goal
from ..readable import shown, shown_column
from .chart_scale import Scale
from .front import Array, Front

WIDTH, HEIGHT = 800, 470
# Bars of a picture of one goal.
MOST_BARS = 20
# From so many plans on a front its points are small.
CROWD = 60
_LEFT, _TOP, _BOTTOM = 92.0, 46.0, 58.0
_RIGHT, _KEY = 26.0, 118.0
_BAR, _LETTER, _LONGEST = 20.0, 6.7, 52
# From dark to bright at even steps to the eye (viridis, its brightest end left out).
_COLORS = ("#440154", "#3b528b", "#21918c", "#5ec962", "#c8d22a")
# Share of the cloud that the axes make room for: the slowest plans would press all others into a corner.
_NEAR = 0.9
STYLE = """
.paper{fill:#ffffff}.ink{fill:#1c2430}.dim{fill:#5b6675}.grid{stroke:#d9dee5}.axis{stroke:#5b6675}
.cloud{fill:#8a94a3;opacity:.28}.other{fill:#8a94a3}.best{fill:#1666b0}.line{stroke:#1666b0;fill:none}
.best,.other,.key{stroke:#1c2430;stroke-width:.6}.bar{fill:#8a94a3}.bar.best{fill:#1666b0;stroke:none}
text{font:12px system-ui,"Segoe UI",Helvetica,Arial,sans-serif}.mono{font:11px ui-monospace,Menlo,Consolas,monospace}
.title{font-size:14px;font-weight:600}g.point:hover circle,g.point.on circle{stroke-width:2.4}
@media screen and (prefers-color-scheme:dark){.paper{fill:#14181f}.ink{fill:#e6eaf0}.dim{fill:#9aa5b4}
.grid{stroke:#2b323d}.axis{stroke:#9aa5b4}.cloud,.other,.bar{fill:#7d8897}.best,.bar.best{fill:#5aa9ee}.line{stroke:#5aa9ee}
.best,.other,.key{stroke:#e6eaf0}}
"""


def front_svg(front: Front, titled: bool = True) -> str:
    """Return a picture of the front as SVG.

    The first two goals are the axes, a third is the colour of points; all others of a sample lie faint behind. With one
    goal the best plans are bars. A page that has a title of its own leaves that of the picture out.
    """
    parts = list(_bars(front) if len(front.goals) == 1 else _scatter(front))
    height = HEIGHT if len(front.goals) > 1 else _TOP + _BAR * min(len(front.labels), MOST_BARS) + _BOTTOM
    title = escape(front.title or "Pareto-optimal plans")
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" '
        f'height="{height:g}" role="img" aria-label="{title}">'
    )
    paper = f'<rect class="paper" width="{WIDTH}" height="{height:g}"/>'
    named = _text(_LEFT if len(front.goals) > 1 else 16, 22, title, "ink title")
    above = [named] if titled else []
    return "\n".join([head, f"<style>{STYLE}</style>", paper, *above, *parts, "</svg>"]) + "\n"


def _scatter(front: Front) -> Iterator[str]:
    """Axes, the cloud, the steps of the front, its points."""
    x, y = front.goals[:2]
    right = WIDTH - (_KEY if len(front.goals) > 2 else _RIGHT)
    rows = [k for k in front.order if _is_there(front, k)]
    if not rows:
        yield _text(_LEFT, HEIGHT / 2, "no plan has all goals", "dim")
        return
    xs = Scale.of([*_column(front, x, rows), *_near(front, x)], _LEFT, right, x.unit)
    ys = Scale.of([*_column(front, y, rows), *_near(front, y)], HEIGHT - _BOTTOM, _TOP, y.unit)
    yield from _axes(xs, ys, x, y, right)
    yield from _cloud(front, xs, ys)
    if len(front.goals) == 2:
        yield _steps(front, xs, ys)
    colors = _colors(front, rows)
    for k in sorted(rows, key=lambda k: bool(front.is_best[k])):
        yield _point(front, k, xs, ys, colors.get(k, ""))
    if len(front.goals) > 2:
        yield from _key(front, rows, right + 26)


def _is_there(front: Front, k: int) -> bool:
    return all(np.isfinite(front.columns[goal.name][k]) for goal in front.goals[:3])


def _column(front: Front, goal: Goal, rows: Sequence[int]) -> list[float]:
    return [float(front.columns[goal.name][k]) for k in rows]


def _near(front: Front, goal: Goal) -> list[float]:
    """The range of the cloud, but for those that are worst in a goal."""
    cloud = front.cloud.get(goal.name)
    if cloud is None or not np.isfinite(cloud).any():
        return []
    found = cloud[np.isfinite(cloud)]
    share = (1 - _NEAR, 1.0) if goal.better == "more" else (0.0, _NEAR)
    return [float(value) for value in np.quantile(found, share)]


def _axes(xs: Scale, ys: Scale, x: Goal, y: Goal, right: float) -> Iterator[str]:
    low = HEIGHT - _BOTTOM
    for value, text in xs.ticks():
        at = xs.at(value)
        yield _line(at, _TOP, at, low, "grid") + _text(at, low + 18, text, "dim", "middle")
    for value, text in ys.ticks():
        at = ys.at(value)
        yield _line(_LEFT, at, right, at, "grid") + _text(_LEFT - 8, at + 4, text, "dim", "end")
    yield _line(_LEFT, low, right, low, "axis") + _line(_LEFT, _TOP, _LEFT, low, "axis")
    yield _text((_LEFT + right) / 2, low + 42, _axis(x), "ink", "middle")
    middle = (_TOP + low) / 2
    turned = f'transform="rotate(-90 18 {middle:.1f})"'
    yield _text(18, middle, _axis(y), "ink", "middle", turned)


def _shown(goal: Goal, value: float) -> str:
    return "-" if np.isnan(value) else shown(value, goal.unit)


def _axis(goal: Goal) -> str:
    return escape(f"{goal.label}: {goal.better} is better")


def _cloud(front: Front, xs: Scale, ys: Scale) -> Iterator[str]:
    """All points as one path of dots: small, and without a name of their own."""
    x, y = (front.cloud.get(goal.name) for goal in front.goals[:2])
    if x is None or y is None:
        return
    dots = [
        f'<circle cx="{xs.at(a):.1f}" cy="{ys.at(b):.1f}" r="1.8"/>'
        for a, b in zip(x.tolist(), y.tolist(), strict=True)
        if xs.holds(a) and ys.holds(b)
    ]
    left_out = len(x) - len(dots)
    if dots:
        yield f'<g class="cloud">{"".join(dots)}</g>'
    if left_out:
        yield _text(WIDTH - 8, HEIGHT - 8, f"{left_out:,} of {len(x):,} sampled plans lie outside", "dim", "end")


def _steps(front: Front, xs: Scale, ys: Scale) -> str:
    """Return the stairs behind which every other plan lies."""
    best = [k for k in front.best if _is_there(front, k)]
    x, y = front.goals[:2]
    points = [(xs.at(float(front.columns[x.name][k])), ys.at(float(front.columns[y.name][k]))) for k in best]
    path = "".join(f"M{a:.1f},{b:.1f}" if n == 0 else f"H{a:.1f}V{b:.1f}" for n, (a, b) in enumerate(points))
    return f'<path class="line" stroke-width="1.4" d="{path}"/>'


def _colors(front: Front, rows: Sequence[int]) -> dict[int, str]:
    """The colour of each row by the third goal, none where there is no third."""
    if len(front.goals) < 3:
        return {}
    values = front.columns[front.goals[2].name][list(rows)]
    low, high = float(values.min()), float(values.max())
    return {
        k: color_at((float(v) - low) / (high - low) if high > low else 0.0) for k, v in zip(rows, values, strict=True)
    }


def color_at(share: float) -> str:
    """Return a colour between the first and the last.

    >>> color_at(0.0), color_at(0.25), color_at(1.0)
    ('#440154', '#3b528b', '#c8d22a')
    """
    place = min(max(share, 0.0), 1.0) * (len(_COLORS) - 1)
    k = min(int(place), len(_COLORS) - 2)
    pairs = zip(_parts(_COLORS[k]), _parts(_COLORS[k + 1]), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * (place - k)):02x}" for a, b in pairs)


def _parts(color: str) -> list[int]:
    return [int(color[n : n + 2], 16) for n in (1, 3, 5)]


def _point(front: Front, k: int, xs: Scale, ys: Scale, color: str) -> str:
    x, y = (float(front.columns[goal.name][k]) for goal in front.goals[:2])
    best = bool(front.is_best[k])
    style = f' style="fill:{color}"' if color else ""
    circle = f'<circle class="{"best" if best else "other"}" cx="{xs.at(x):.1f}" cy="{ys.at(y):.1f}" '
    radius = 3.2 if not best or front.is_best.sum() > CROWD else 5.0
    return f'<g class="point" data-row="{k}"><title>{_told(front, k)}</title>{circle}r="{radius:g}"{style}/></g>'


def _told(front: Front, k: int) -> str:
    """What a tooltip says: the plan, then each goal."""
    goals = [f"{goal.label} {_shown(goal, float(front.columns[goal.name][k]))}" for goal in front.goals]
    return escape("\n".join([front.labels[k], *goals]))


def _key(front: Front, rows: Sequence[int], left: float) -> Iterator[str]:
    """The colours of the third goal, and what they stand for."""
    goal, top, low = front.goals[2], _TOP + 34, HEIGHT - _BOTTOM - 30
    values: Array = front.columns[goal.name][list(rows)]
    steps = 24
    tall = (low - top) / steps
    for n in range(steps):
        share = 1 - (n + 0.5) / steps
        place = f'x="{left:g}" y="{top + n * tall:.1f}" width="14" height="{tall + 0.5:.1f}"'
        yield f'<rect {place} fill="{color_at(share)}"/>'
    yield _text(WIDTH - 8, top - 24, escape(goal.label), "ink", "end")
    yield _text(WIDTH - 8, top - 9, f"{goal.better} is better", "dim", "end")
    yield _text(left + 20, top + 8, _shown(goal, float(values.max())), "dim")
    yield _text(left + 20, low, _shown(goal, float(values.min())), "dim")


def _bars(front: Front) -> Iterator[str]:
    """The best plans by the one goal there is, from the top."""
    goal = front.goals[0]
    rows = [int(k) for k in front.order[:MOST_BARS] if _is_there(front, int(k))]
    if not rows:
        yield _text(16, _TOP + 10, "no plan has this goal", "dim")
        return
    names = [_short(front.labels[k]) for k in rows]
    left = 24 + _LETTER * max(map(len, names))
    xs = Scale.of(_column(front, goal, rows), left, WIDTH - _KEY, goal.unit, from_zero=True)
    low = _TOP + _BAR * len(rows)
    for value, text in xs.ticks(5):
        yield _line(xs.at(value), _TOP, xs.at(value), low, "grid") + _text(
            xs.at(value), low + 18, text, "dim", "middle"
        )
    texts = shown_column(front.columns[goal.name][rows].tolist(), goal.unit)
    for n, (k, name, text) in enumerate(zip(rows, names, texts, strict=True)):
        value, top = float(front.columns[goal.name][k]), _TOP + n * _BAR
        kind = "bar best" if front.is_best[k] else "bar"
        place = f'x="{left:.1f}" y="{top + 3:g}" width="{xs.at(value) - left:.1f}" height="{_BAR - 6:g}"'
        bar = f'<rect class="{kind}" {place}/>'
        yield (
            f'<g class="point" data-row="{k}"><title>{_told(front, k)}</title>{bar}'
            f"{_text(left - 8, top + 14, escape(name), 'ink mono', 'end')}"
            f"{_text(xs.at(value) + 6, top + 14, text, 'dim')}</g>"
        )
    yield _line(left, _TOP, left, low, "axis")
    yield _text((left + WIDTH - _KEY) / 2, low + 42, _axis(goal), "ink", "middle")


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…"


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start", more: str = "") -> str:
    space = f" {more}" if more else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{space}>{text}</text>'
