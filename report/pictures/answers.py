"""What a terminal shows of each answer beside its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...driver.metrics import METRICS
from ...explore.goals import MEMORY, Goal
from ...ir.units import format_bytes, format_time, format_usd
from ..designs.designs_table import label, told
from ..labels import part_label, request_part_label
from ..readable import shown_change
from .picture import Axis, Bar, Bars, Picture, Scatter, Series, Shades, StackedBar

if TYPE_CHECKING:
    from ...cost.bill import Bill
    from ...cost.serving.slo import SLO
    from ...driver.estimate import Estimate
    from ...driver.serve.answer import ServeEstimate
    from ...explore.best import Best, Columns
    from ..compare.comparison import Comparison
    from ..designs.designs import Ranking
    from ..search.front import Front

# Bars of changes and of bills that a picture has room for.
_MOST_BARS = 12
# Share of a cloud that a picture makes room for: the slowest plans would press all others into a corner.
_NEAR = 0.9
# What a sweep may vary: the factor of its numbers, and what an axis says of it.
_AXES: Mapping[str, tuple[float, str]] = {
    "die_mm2": (1.0, "die, mm2"),
    "package_w": (1.0, "power of the package, W"),
    "num_dies": (1.0, "dies"),
    "num_stacks": (1.0, "stacks of memory"),
    "d2d_bytes_per_s": (1e12, "between dies, TB/s"),
}


def step_pictures(answer: Estimate) -> Iterator[Picture]:
    """Yield the time of a step and the memory of a device, each as one bar of its parts."""
    parts = {part_label(name): seconds for name, seconds in answer.breakdown_s.items() if seconds > 0}
    total, room = answer.metrics["step_time_s"], float(answer.table.system.chip.hbm_bytes)
    yield _stack(f"A step of {format_time(total)}", parts, total)
    held = {name.replace("_", " "): b for name, b in answer.memory_bytes.items() if b > 0}
    used = sum(held.values())
    yield _stack(f"Memory of a GPU, {format_bytes(used)} of {format_bytes(room)}", held, room)


def _stack(title: str, parts: Mapping[str, float], whole: float) -> StackedBar:
    greatest = sorted(parts.items(), key=lambda one: -one[1])
    return StackedBar(title, [Bar(name, value, "") for name, value in greatest], whole)


def server_pictures(answer: ServeEstimate, limits: SLO) -> Iterator[Picture]:
    """Yield where a request spends its time, and latencies over the load, with limits on their means."""
    from ..charts.servers import load_record, replica_levels
    from ..serving.json import scaling_record

    parts = {request_part_label(name): seconds for name, seconds in answer.breakdown_s.items() if seconds > 0}
    total = answer.metrics["e2el_s"]
    yield _stack(f"A request of {format_time(total)}", parts, total)
    if scaling := scaling_record(answer):
        marks = zip(replica_levels(scaling).items(), "rg", strict=True)
        series = [Series(kind, points, mark, joined=True) for (kind, points), mark in marks]
        yield Scatter("Replicas over time", Axis("minutes", "", from_zero=True), Axis("replicas", ""), series)
    curve = load_record(answer)
    if not curve:
        return
    rates = [row["requests_per_s"] for row in curve]
    series = list[Series]()
    for name, mark, limit, share in (
        ("ttft_s", "F", limits.ttft_s, limits.ttft_share),
        ("tpot_s", "T", limits.tpot_s, limits.tpot_share),
    ):
        metric = METRICS[name].label
        # The curve is of means: a limit on a percentile is of something else.
        if limit is not None and share is None:
            series.append(
                Series(f"limit of {metric}", [(rates[0], limit), (rates[-1], limit)], mark.lower(), joined=True)
            )
        points = [(row["requests_per_s"], row.get(name, math.nan)) for row in curve]
        series.append(Series(metric, points, mark, joined=True))
    here = answer.metrics["requests_per_s"]
    series.append(Series("as asked", [(here, answer.metrics["ttft_s"]), (here, answer.metrics["tpot_s"])], "@"))
    yield Scatter("Latencies under load", Axis("requests/s", "", from_zero=True), Axis("", "s"), series)


def front_picture(front: Front) -> Picture:
    """Return the front before the cloud of other plans, over its first two goals."""
    x, y = front.goals[:2]
    rows = {goal.name: front.columns[goal.name][front.best] for goal in (x, y)}
    return _goals(
        "Pareto front",
        x,
        y,
        [Series("other plans", _near(x, y, front.cloud)), Series("Pareto-optimal", _pairs(x, y, rows), "o")],
    )


def _pairs(x: Goal, y: Goal, rows: Columns) -> list[tuple[float, float]]:
    return list(zip(rows[x.name].tolist(), rows[y.name].tolist(), strict=True))


def _near(x: Goal, y: Goal, cloud: Columns) -> list[tuple[float, float]]:
    """The rows of a cloud that are not among the worst of a goal."""
    if x.name not in cloud or y.name not in cloud:
        return []
    aims = [goal.aim(cloud[goal.name]) for goal in (x, y)]
    near = np.all(np.isfinite(aims), axis=0)
    if near.any():
        near &= np.all([aim <= np.quantile(aim[near], _NEAR) for aim in aims], axis=0)
    return _pairs(x, y, {goal.name: cloud[goal.name][near] for goal in (x, y)})


def _goals(title: str, x: Goal, y: Goal, series: Sequence[Series]) -> Scatter:
    return Scatter(title, Axis(_better(x), x.unit), Axis(_better(y), y.unit), series)


def rows_picture(goal: Goal, best: Best, names: Sequence[str]) -> Picture | None:
    """Return the best rows of one goal before the cloud of others, over memory, else over the next of their metrics."""
    top = best.top
    others = [name for name in (MEMORY, *names) if name in top and name != goal.name]
    if not others or len(top[goal.name]) < 2:
        return None
    y = Goal(others[0], -1.0 if METRICS[others[0]].better == "more" else 1.0)
    rows = _pairs(goal, y, top)
    series = [
        Series("other plans", _near(goal, y, best.cloud)),
        Series(f"the {len(rows)} best", rows, "o"),
        Series("the first", rows[:1], "1"),
    ]
    return _goals(f"{goal.label} by {y.label}", goal, y, series)


def designs_picture(ranking: Ranking) -> Picture | None:
    """Return the first goal over what designs differ in: a line, shades of two axes, else the first two goals."""
    order, goal = ranking.order, ranking.goals[0]
    if len(order) < 2:
        return None
    axes = _axes(ranking)
    if len(axes) == 1 and axes[0] in _AXES:
        factor, name = _AXES[axes[0]]
        values = ranking.columns[goal.name][order].tolist()
        points = sorted((float(x) / factor, y) for x, y in zip(_axis(ranking, axes[0]), values, strict=True))
        return Scatter(
            _better(goal), Axis(name, ""), Axis("", goal.unit), [Series("designs", points, "o", joined=True)]
        )
    if len(axes) == 2:
        return _shaded(ranking, axes)
    if len(ranking.goals) < 2:
        return None
    x, y = ranking.goals[:2]
    best = ranking.best[order]
    series = [
        Series(name, _pairs(x, y, {g.name: ranking.columns[g.name][order][rows] for g in (x, y)}), mark)
        for name, rows, mark in (("other designs", ~best, ""), ("Pareto-optimal", best, "o"))
    ]
    return _goals("Designs", x, y, series)


def _better(goal: Goal) -> str:
    return f"{goal.label if goal.name in METRICS else label(goal.name)}, {goal.better} is better"


def _axes(ranking: Ranking) -> list[str]:
    """What designs differ in, without what follows from what is named before it, as stacks from the area of a die."""
    found, places = list[str](), list[tuple[float | str, ...]]([()] * len(ranking.order))
    for name in (*_AXES, *(word for word in ranking.words if word not in _AXES)):
        longer: list[tuple[float | str, ...]] = [
            (*place, value) for place, value in zip(places, _axis(ranking, name), strict=True)
        ]
        if len(set(longer)) > len(set(places)):
            found.append(name)
            places = longer
    return found


def _axis(ranking: Ranking, name: str) -> Sequence[float | str]:
    """The values of an axis of the designs in order; 0 where a design has none, as of links between dies."""
    if name not in _AXES:
        return [str(ranking.words[name][k]) for k in ranking.order]
    if name in ranking.words:
        return [float(ranking.words[name][k]) for k in ranking.order]
    column = ranking.columns.get(name, np.zeros(len(ranking.reason)))
    return [float(value) for value in np.nan_to_num(column[ranking.order])]


def _shaded(ranking: Ranking, names: Sequence[str]) -> Shades:
    """The best design at each place of two axes; rows are in the order of the first goal, so the first is the best."""
    goal = ranking.goals[0]
    across, down = (_axis(ranking, name) for name in names)
    found = dict[tuple[float | str, float | str], float]()
    for place, value in zip(zip(across, down, strict=True), ranking.columns[goal.name][ranking.order], strict=True):
        found.setdefault(place, float(value))
    xs, ys = sorted(set(across)), sorted(set(down), reverse=True)
    heads = [
        [str(v) if isinstance(v, str) else f"{v / _AXES[name][0]:.4g}" for v in vs]
        for name, vs in zip(names, (xs, ys), strict=True)
    ]
    titles = [_AXES[name][1] if name in _AXES else name for name in names]
    return Shades(
        f"{_better(goal)}: {titles[1]} (down) by {titles[0]} (across)",
        x=heads[0],
        y=heads[1],
        values=[[found.get((x, y)) for x in xs] for y in ys],
        texts=[[told(goal.name, found[x, y]) if (x, y) in found else "" for x in xs] for y in ys],
        less_is_better=goal.better == "less",
    )


def changes_picture(found: Comparison) -> Picture | None:
    """Return the parts of what changed, the greatest change first; None where no part did."""
    sections = (one for one in found.sections if one.whole.name == found.headline.name and one.add_up)
    section = next(sections, None)
    changed = [] if section is None else [one for one in section.parts if one.difference][:_MOST_BARS]
    if section is None or not changed:
        return None
    bars = [Bar(part_label(one.name), one.difference, shown_change(one)) for one in changed]
    return Bars(f"Change of {section.title.lower() or section.whole.name} from A to B", bars)


def bill_picture(bill: Bill) -> Picture:
    """Return the greatest lines of a bill as bars."""
    lines = sorted(((line.name, float(line.usd)) for line in bill.parts if line.usd), key=lambda one: -one[1])
    bars = [Bar(name, usd, format_usd(usd)) for name, usd in lines[:_MOST_BARS]]
    return Bars(f"{bill.name}, {format_usd(float(bill.usd))}", bars)


def memory_picture(
    front: Sequence[tuple[float, float]], known: Sequence[tuple[float, float]], best: Sequence[tuple[float, float]]
) -> Picture:
    """Return policies by the bytes and the seconds of their step."""
    series = [
        Series(name, points, mark, joined)
        for name, points, mark, joined in (
            ("Pareto-optimal", front, "", True),
            ("of frameworks", known, "x", False),
            ("best", best, "1", False),
        )
        if points
    ]
    return Scatter("Step time by memory", Axis.of(MEMORY), Axis.of("step_time_s"), series)
