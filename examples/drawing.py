"""The kinds of pictures that studies draw: stacked bars, bars beside one another, curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from picture import BLACK, BLUE, GREY, ORANGE, SKY
from study import Table

WIDTH = 0.8


def stacked(axes: Axes, names: Sequence[str], parts: Mapping[str, Sequence[float]]) -> None:
    """Draw a bar a name, made of its parts."""
    places, below = np.arange(len(names)), np.zeros(len(names))
    for part, sizes in parts.items():
        axes.bar(places, sizes, WIDTH, bottom=below, label=part)
        below = below + np.asarray(sizes, dtype=np.float64)
    _label(axes, names)


def beside(axes: Axes, names: Sequence[str], series: Mapping[str, Sequence[float]]) -> None:
    """Draw a group of bars a name, one of each series."""
    places, width = np.arange(len(names)), WIDTH / len(series)
    for k, (label, sizes) in enumerate(series.items()):
        axes.bar(places + (k - (len(series) - 1) / 2) * width, sizes, width, label=label)
    _label(axes, names)


def curves(axes: Axes, tables: Mapping[str, Table], x: str, y: str) -> None:
    """Draw a curve a table, one of its columns over another."""
    for label, table in tables.items():
        axes.plot(table.numbers(x), table.numbers(y), marker="o", markersize=3, label=label)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.legend()


def _label(axes: Axes, names: Sequence[str]) -> None:
    axes.set_xticks(np.arange(len(names)), names, rotation=60, ha="right")
    axes.legend()


def waterfall(axes: Axes, table: Table) -> None:
    """Draw factors that multiply, one bar a change from where the last one ended, on a logarithmic axis.

    Whiskers reach from the least to the most that a change brings in other orders.
    """
    names, factors = [str(name) for name in table.column("change")], table.numbers("factor")
    ends = np.cumprod(factors)
    starts = ends / np.asarray(factors)
    places = np.arange(len(names))[::-1]
    axes.barh(places[1:], (ends - starts)[1:], WIDTH, left=starts[1:], color=BLUE)
    for place, start, least, most, factor in zip(
        places[1:], starts[1:], table.numbers("least")[1:], table.numbers("most")[1:], factors[1:], strict=True
    ):
        axes.plot([start * least, start * most], [place, place], color=BLACK, linewidth=0.8)
        axes.annotate(
            f"{factor:.2f}", (start * max(most, factor), place), (3, 0), textcoords="offset points", va="center"
        )
    axes.annotate(f"{ends[-1]:.1f} in all", (ends[-1], 0), (0, -11), textcoords="offset points", ha="center", va="top")
    axes.set(xscale="log", xlabel="speed over A100 of 2022", xlim=(0.9, 1.6 * ends[-1]), ylim=(-1.2, len(names) - 1.4))
    axes.set_yticks(places[1:], names[1:])
    plain_ticks(axes.xaxis)


def plain_ticks(axis: Axis) -> None:
    """Put ticks of a logarithmic axis at 1, 2 and 5 of each decade, written as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axis.set_minor_locator(NullLocator())


def matrix(axes: Axes, rows: Sequence[str], columns: Sequence[Sequence[str]], words: Sequence[Sequence[str]]) -> None:
    """Draw a field of words, coloured by word and marked with its first letter; columns have labels of two lines."""
    kinds = {"compute": ORANGE, "memory": SKY, "overhead": GREY}
    for y, line in enumerate(words):
        for x, word in enumerate(line):
            axes.add_patch(Rectangle((x, y), 0.94, 0.9, color=kinds[word], linewidth=0))
            axes.text(x + 0.47, y + 0.47, word[0], ha="center", va="center")
    axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
    axes.set_xticks(np.arange(len(columns)) + 0.47, ["\n".join(column) for column in columns])
    axes.set_yticks(np.arange(len(rows)) + 0.47, rows)
    axes.tick_params(length=0)


def dots(axes: Axes, rows: Sequence[str], points: Mapping[str, Sequence[tuple[int, float]]]) -> None:
    """Draw marks on named rows, the first row on top: of each series its places, row and number."""
    for (label, places), mark in zip(points.items(), "osD^vP", strict=False):
        axes.plot([x for _, x in places], [y for y, _ in places], mark, label=label)
    axes.set_yticks(np.arange(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="y", linewidth=0.3)


def spans(axes: Axes, rows: Sequence[str], series: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Draw a bar from least to most on named rows, the first row on top, those of several series below one another."""
    places, height = np.arange(len(rows)), WIDTH / len(series)
    for k, (label, ends) in enumerate(series.items()):
        low, high = (np.array([pair[end] for pair in ends]) for end in (0, 1))
        above = places + (k - (len(series) - 1) / 2) * height
        axes.barh(above, np.maximum(high - low, 0.4), 0.8 * height, left=low, label=label)
    axes.axvline(0.0, color=BLACK, linewidth=0.6)
    axes.set_yticks(places, rows)
    axes.set_ylim(len(rows) - 0.5, -0.5)
