"""Pictures of characters: bars, one bar of parts, points over two axes, a table of shades.

Each is readable without colors: what colors tell, letters, signs or shades tell as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, TypeAlias

from ...driver.metrics import METRICS
from ...ir.records import dataclass
from ..columns import wrapped
from ..search.chart_scale import Scale

if TYPE_CHECKING:
    from rich.text import Text

# Rows of the plane of points, and what is wide enough for any picture.
HEIGHT, WIDEST = 12, 100
# A terminal narrower than this shows no pictures.
NARROWEST = 40
_LEAST_PLANE = 16
_FULL, _PARTS = "█", "█▓▒░"
_STYLES = ("blue", "yellow", "green", "magenta", "cyan", "red")
_SHADES = ("black on bright_green", "black on green", "black on yellow", "black on red", "white on magenta")
_BLANK = "\u2800"
# Parts of a bar below this share are one part together.
_LEAST = 0.01


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: what it is of, its length, and what is said of it; a negative one is shaded otherwise."""

    name: str
    value: float
    label: str


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars one below the other, from one zero."""

    title: str
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class StackedBar:
    """One bar of parts that add up; what is missing to `whole` stays empty."""

    title: str
    parts: Sequence[Bar]
    whole: float


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one kind: dots, or a letter each; joined by lines or not."""

    name: str
    points: Sequence[tuple[float, float]]
    mark: str = ""
    joined: bool = False

    @property
    def there(self) -> list[tuple[float, float]]:
        """The points that have both numbers."""
        return [(x, y) for x, y in self.points if math.isfinite(x) and math.isfinite(y)]


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis is of, the unit of its numbers as metrics have it, and whether it begins at zero."""

    label: str
    unit: str
    from_zero: bool = False

    @classmethod
    def of(cls, metric: str) -> Axis:
        """Return the axis of a metric by its name."""
        return cls(METRICS[metric].label, METRICS[metric].unit)


@dataclass(frozen=True, slots=True)
class Scatter:
    """Series over two axes; later ones lie above earlier ones."""

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]


@dataclass(frozen=True, slots=True)
class Shades:
    """A number at each place of two axes, with the text that is shown of it; None where there is nothing."""

    title: str
    x: Sequence[str]
    y: Sequence[str]
    values: Sequence[Sequence[float | None]]
    texts: Sequence[Sequence[str]]
    less_is_better: bool = True


Picture: TypeAlias = Bars | StackedBar | Scatter | Shades


def drawn(pictures: Sequence[Picture], columns: int, color: bool = False) -> str:
    """Return pictures for so many columns, an empty line before each; nothing on a screen that is too narrow.

    >>> print(drawn([Bars("cost", [Bar("a", 2.0, "$2"), Bar("bc", 1.0, "$1")])], 40))
    <BLANKLINE>
    cost
    a   ████████████████████████████████  $2
    bc  ████████████████                  $1
    <BLANKLINE>
    """
    if columns < NARROWEST:
        return ""
    from rich.console import Console

    console = Console(
        file=StringIO(),
        width=columns,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
    )
    with console.capture() as captured:
        for picture in pictures:
            console.print()
            console.print(picture.title, style="bold", markup=False)
            for line in _lines(picture, min(columns, WIDEST)):
                console.print(line, no_wrap=True, crop=True)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _lines(picture: Picture, columns: int) -> Iterator[Text]:
    match picture:
        case Bars():
            return _bars(picture, columns)
        case StackedBar():
            return _stack(picture, columns)
        case Scatter():
            return _points(picture, columns)
        case Shades():
            return _shades(picture, columns)


def _bars(picture: Bars, columns: int) -> Iterator[Text]:
    """Name, bar, label; the longest bar takes the room that both leave."""
    from rich.text import Text

    most = max((abs(one.value) for one in picture.bars), default=0.0) or 1.0
    name = min(max((len(one.name) for one in picture.bars), default=0), columns // 3)
    label = max((len(one.label) for one in picture.bars), default=0)
    room = max(columns - name - label - 4, 4)
    for one in picture.bars:
        length = round(room * abs(one.value) / most)
        text = Text(f"{one.name[:name].ljust(name)}  ")
        text.append((_FULL if one.value >= 0 else _PARTS[2]) * length, "blue" if one.value >= 0 else "green")
        yield text.append(f"{' ' * (room - length)}  {one.label}")


def _stack(picture: StackedBar, columns: int) -> Iterator[Text]:
    """The bar, and below it the parts in their order with their shades."""
    from rich.text import Text

    whole = max(picture.whole, sum(one.value for one in picture.parts)) or 1.0
    small = [one for one in picture.parts if one.value < _LEAST * whole]
    parts = [one for one in picture.parts if one.value >= _LEAST * whole]
    if len(small) == 1:
        parts += small
    elif small:
        parts.append(Bar(f"{len(small)} smaller", sum(one.value for one in small), ""))
    bar, done, looks = Text(), 0.0, []
    for one, shade, style in zip(parts, cycle(_PARTS), cycle(_STYLES), strict=False):
        start, done = done, done + one.value
        # Ends are rounded, not lengths: the bar is as long as its sum.
        bar.append(shade * (round(columns * done / whole) - round(columns * start / whole)), style)
        looks.append((shade, style))
    yield bar.append("·" * (columns - len(bar)), "dim")
    line = Text()
    for one, (shade, style) in zip(parts, looks, strict=True):
        told = f" {one.name} {one.label or f'{one.value / whole:.1%}'}"
        if line and len(line) + len(told) + 3 > columns:
            yield line
            line = Text()
        line.append("  " if line else "").append(shade, style).append(told)
    yield line


def _points(picture: Scatter, columns: int) -> Iterator[Text]:
    """The plane with round numbers at both axes, and which letter is which series."""
    from rich.text import Text

    known = [point for one in picture.series for point in one.there]
    if not known:
        yield Text("no point has both numbers")
        return
    ys = Scale.of([y for _, y in known], 0.0, float(HEIGHT), picture.y.unit, picture.y.from_zero)
    ticks = {min(HEIGHT - 1, int(ys.at(value))): text for value, text in ys.ticks(5)}
    left = max(map(len, ticks.values()), default=0)
    width = max(columns - left - 3, _LEAST_PLANE)
    xs = Scale.of([x for x, _ in known], 0.0, float(width), picture.x.unit, picture.x.from_zero)
    plane = [[(" ", "")] * width for _ in range(HEIGHT)]
    for one, style in zip(picture.series, cycle(_STYLES), strict=False):
        for row, text in zip(plane, _raster(one, xs, ys, width), strict=True):
            for place, cell in enumerate(text):
                if cell != _BLANK:
                    row[place] = (cell, style)
    if picture.y.label:
        yield Text(f"{'':{left}} {picture.y.label}", "dim")
    for at, cells in zip(range(HEIGHT - 1, -1, -1), plane, strict=True):
        line = Text(f"{ticks.get(at, ''):>{left}} {'┤' if at in ticks else '│'}", "dim")
        for cell, style in cells:
            line.append(cell, style)
        yield line
    yield from _below(xs, left, width, picture.x.label)
    yield from _legend(picture.series, columns)


def _raster(one: Series, xs: Scale, ys: Scale, width: int) -> Sequence[str]:
    """Draw a series alone, so that each has its color: a text for each row, from the top."""
    from plotille import Canvas  # type: ignore[import-untyped]

    canvas = Canvas(width, HEIGHT, 0.0, 0.0, float(width), float(HEIGHT))
    places = [(xs.at(x), ys.at(y)) for x, y in one.there if xs.holds(x) and ys.holds(y)]
    if one.joined:
        for (x0, y0), (x1, y1) in pairwise(places):
            canvas.line(x0, y0, x1, y1)
    for x, y in places:
        canvas.point(x, y, marker=one.mark or None)
    return str(canvas.plot()).split("\n")


def _below(xs: Scale, left: int, width: int, label: str) -> Iterator[Text]:
    """The lower axis with its numbers; one that would touch the one before it is left out."""
    from rich.text import Text

    line, texts, free = ["─"] * width, "", 0
    for value, text in xs.ticks(max(2, width // 12)):
        at = min(width - 1, int(xs.at(value)))
        start = min(at, width - len(text))
        if start >= free:
            line[at], texts = "┬", texts.ljust(start) + text
            free = start + len(text) + 2
    yield Text(f"{'':{left}} └{''.join(line)}", "dim")
    yield Text(f"{'':{left}}  {texts}", "dim")
    yield Text(f"{'':{left}}  {label:>{width}}", "dim")


def _legend(series: Sequence[Series], columns: int) -> Iterator[Text]:
    """Which mark is of which series, where there are several."""
    from rich.text import Text

    line = Text()
    named = [one for one in series if one.name]
    for one, style in zip(named if len(named) > 1 else (), cycle(_STYLES), strict=False):
        if line and len(line) + len(one.name) + 5 > columns:
            yield line
            line = Text()
        line.append("  " if line else "").append(one.mark or "⠒", style).append(f" {one.name}")
    yield from (line,) if line else ()


def _shades(picture: Shades, columns: int) -> Iterator[Text]:
    """Numbers in colors where there is room for them, else shades alone, the darkest the best."""
    from rich.text import Text

    there = sorted({v for row in picture.values for v in row if v is not None}, reverse=not picture.less_is_better)
    left = max(map(len, picture.y), default=0)
    wide = max(len(text) for text in (*picture.x, *(t for row in picture.texts for t in row)))
    told = left + (wide + 2) * len(picture.x) <= columns
    width = wide + 1 if told else max(1, (columns - left) // len(picture.x) - 1)
    last = len(there) - 1
    for name, values, texts in zip(picture.y, picture.values, picture.texts, strict=True):
        line = Text(f"{name:>{left}} ", "dim")
        for value, text in zip(values, texts, strict=True):
            share = None if value is None else there.index(value) / last if last else 0.0
            style = "" if share is None else _SHADES[min(int(share * len(_SHADES)), len(_SHADES) - 1)]
            shade = " " if share is None else _PARTS[min(int(share * len(_PARTS)), len(_PARTS) - 1)]
            mark = "*" if share == 0 else " "
            line.append(f"{text:>{width - 1}}{mark}" if told else shade * width, style if told else "").append(" ")
        yield line
    if told:
        yield Text(f"{'':{left}} {' '.join(f'{x:>{width - 1}} ' for x in picture.x)}", "dim")
        return
    yield Text(f"{'':{left}} {picture.x[0]} .. {picture.x[-1]}", "dim")
    texts_of = {v: t for vs, ts in zip(picture.values, picture.texts, strict=True) for v, t in zip(vs, ts, strict=True)}
    if there:
        for part in wrapped(f"{_PARTS[0]} {texts_of[there[0]]} .. {_PARTS[-1]} {texts_of[there[-1]]}", columns):
            yield Text(part, "dim")
