"""The kinds of pictures that studies draw: stacked bars, bars beside one another, curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
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
    axes.legend(fontsize="x-small")


def _label(axes: Axes, names: Sequence[str]) -> None:
    axes.set_xticks(np.arange(len(names)), names, rotation=60, ha="right", fontsize="x-small")
    axes.legend(fontsize="x-small")
