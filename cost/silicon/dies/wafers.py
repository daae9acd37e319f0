"""How many dies a wafer has, and what it takes to expose a large one. Lengths in mm, areas in mm2."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ....backends.prices.silicon_schema import SiliconSection
from ....ir.records import dataclass
from ....ir.sizes.expr import Num

Array: TypeAlias = NDArray[np.float64]

# Where the middle of a die may lie against that of the wafer, in parts of a pitch; the rest is the same from behind.
_OFFSETS = (0.0, 0.25, 0.5)


@dataclass(frozen=True, slots=True)
class DieShape:
    """Sides of a die: as square as its aspect and the field of lithography allow."""

    width_mm: Num
    height_mm: Num


def formula(area_mm2: Num, diameter_mm: float, edge_mm: float, scribe_mm: float) -> Num:
    """N = pi (D/2 - e)^2 / A' - pi (D - 2e) / sqrt(2 A'), A' = A + 2 s sqrt(A) + s^2.

    Source: Chiplet Actuary, DAC 2022. No less than zero.

    >>> [round(float(formula(a, 300.0, 5.0, 0.2)), 1) for a in (814.0, 800.0, 400.0, 200.0)]
    [57.6, 58.8, 130.0, 276.2]
    """
    laned = np.square(np.sqrt(area_mm2) + scribe_mm)
    across = diameter_mm - 2.0 * edge_mm
    return np.maximum(math.pi * (across / 2.0) ** 2 / laned - math.pi * across / np.sqrt(2.0 * laned), 0.0)


def placed(width_mm: Num, height_mm: Num, lane_mm: float, radius_mm: float, shifted: bool) -> Num:
    """Count whole rectangles inside a circle, in the best of several places of the pattern.

    Args:
        width_mm: of a die.
        height_mm: of a die.
        lane_mm: between dies.
        radius_mm: of what is usable of the wafer.
        shifted: whether each row is laid by itself; else columns run through.

    >>> [placed(10.0, 10.0, 0.0, radius, False) for radius in (10.0, 15.0)]
    [1.0, 4.0]
    """
    width, height = np.broadcast_arrays(np.asarray(width_mm, float), np.asarray(height_mm, float))
    sizes, back = np.unique(np.stack([width.ravel(), height.ravel()]), axis=1, return_inverse=True)
    counts = _most(sizes[0], sizes[1], lane_mm, radius_mm, shifted)[back.ravel()]
    return counts.reshape(width.shape) if width.shape else float(counts[0])


def _most(width: Array, height: Array, lane: float, radius: float, shifted: bool) -> Array:
    """The best of all offsets: those up and down, and unless rows are shifted one for all columns."""
    best: Array = np.zeros(np.shape(width))
    for up in _OFFSETS:
        rows = _half_chords(height, lane, radius, up)
        if shifted:
            best = np.maximum(best, _total([np.floor((2.0 * half + lane) / (width + lane)) for half in rows]))
            continue
        for along in _OFFSETS:
            places = [(half - width / 2.0) / (width + lane) for half in rows]
            best = np.maximum(best, _total([_columns(most, along) for most in places]))
    return best


def _total(rows: list[Array]) -> Array:
    return np.asarray(np.sum(rows, axis=0))


def _half_chords(height: Array, lane: float, radius: float, up: float) -> list[Array]:
    """Half the length that each row of dies may take, of every row that can be inside of the circle."""
    rows = int(radius / float(np.min(height + lane))) + 2
    ends = [np.abs(k + up) * (height + lane) + height / 2.0 for k in range(-rows, rows)]
    return [np.sqrt(np.maximum(radius**2 - np.square(end), 0.0)) for end in ends]


def _columns(most: Array, along: float) -> Array:
    """Whole dies with their middles between -most and most pitches, of a pattern that starts `along` one."""
    return np.asarray(np.maximum(np.floor(most - along) + np.floor(most + along) + 1.0, 0.0))


def shape(area_mm2: Num, aspect: float, book: SiliconSection) -> DieShape:
    """Draw a die: of its aspect, or as near to it as one field allows; larger dies keep their aspect."""
    wide, high = field_mm(book)
    longer = np.sqrt(np.multiply(area_mm2, aspect))
    shorter = np.sqrt(np.divide(area_mm2, aspect))
    fitting = np.clip(shorter, np.divide(area_mm2, high), wide)
    width = np.where(np.less_equal(area_mm2, wide * high), fitting, shorter)
    return DieShape(width, np.where(np.less_equal(area_mm2, wide * high), np.divide(area_mm2, width), longer))


def field_mm(book: SiliconSection) -> tuple[float, float]:
    """Return the shorter and the longer side of what is exposed at once; high-NA halves the longer (`models.field`)."""
    height = book.wafer.field_height.si / (2.0 if book.model("field") == "half" else 1.0)
    return min(book.wafer.field_width.si, height), max(book.wafer.field_width.si, height)


def stitches(die: DieShape, book: SiliconSection) -> Num:
    """Count the lines along which fields of a large die meet: zero for a die within one field."""
    wide, high = field_mm(book)
    one_way = _lines(die.width_mm, wide) + _lines(die.height_mm, high)
    return np.minimum(one_way, _lines(die.width_mm, high) + _lines(die.height_mm, wide))


def fields(die: DieShape, book: SiliconSection) -> Num:
    """Count the fields of a large die, laid with the fewest `stitches`: (lines across + 1) (lines along + 1)."""
    wide, high = field_mm(book)
    across, along = _lines(die.width_mm, wide), _lines(die.height_mm, high)
    turned_across, turned_along = _lines(die.width_mm, high), _lines(die.height_mm, wide)
    return np.where(
        np.less_equal(across + along, turned_across + turned_along),
        (across + 1.0) * (along + 1.0),
        (turned_across + 1.0) * (turned_along + 1.0),
    )


def _lines(side: Num, field: float) -> Num:
    return np.maximum(np.ceil(np.divide(side, field) * (1.0 - 1e-12)) - 1.0, 0.0)


def field_use(area_mm2: Num, book: SiliconSection) -> Num:
    """Return the part of a field that dies fill: floor(F / A) A / F; of a stitched die that of its fields."""
    wide, high = field_mm(book)
    field = wide * high
    small = np.floor(np.divide(field, area_mm2) * (1.0 + 1e-12)) * area_mm2 / field
    large = np.divide(area_mm2, field * np.ceil(np.divide(area_mm2, field)))
    return np.where(np.less_equal(area_mm2, field), small, large)


def dies_per_wafer(area_mm2: Num, aspect: float, book: SiliconSection) -> Num:
    """Return how many dies a wafer of the book has, by its model (`models.dies_per_wafer`).

    `plain_formula` is `formula` without lanes and edge; `placed_grid` and `placed_rows` lay rectangles.
    """
    wafer = book.wafer
    how = book.model("dies_per_wafer")
    if how == "formula":
        return formula(area_mm2, wafer.diameter.si, wafer.edge_loss.si, wafer.scribe_lane.si)
    if how == "plain_formula":
        return formula(area_mm2, wafer.diameter.si, 0.0, 0.0)
    die = shape(area_mm2, aspect, book)
    radius = wafer.diameter.si / 2.0 - wafer.edge_loss.si
    return placed(die.width_mm, die.height_mm, wafer.dicing.si, radius, how == "placed_rows")
