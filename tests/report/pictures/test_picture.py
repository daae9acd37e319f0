"""Pictures of characters: where a number lies on the screen follows from the axes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.report.pictures.picture import (
    HEIGHT,
    NARROWEST,
    Axis,
    Bar,
    Bars,
    Picture,
    Scatter,
    Series,
    Shades,
    StackedBar,
    drawn,
)

ESCAPE = re.compile(r"\x1b\[[\d;]*m")


def lines(picture: Picture, columns: int = 80, color: bool = False) -> list[str]:
    """The lines below the title."""
    empty, title, *rest = drawn([picture], columns, color).splitlines()
    assert not empty
    assert ESCAPE.sub("", title) == picture.title
    return rest


def test_bars_are_as_long_as_their_share_of_the_longest() -> None:
    # 40 columns less a name of 1, a label of 2 and two gaps of two: 33 for the longest, a third of it is 11.
    long, short = lines(Bars("t", [Bar("a", 3.0, "$3"), Bar("b", 1.0, "$1")]), 40)
    assert (long.count("█"), short.count("█")) == (33, 11)


def test_a_negative_bar_looks_other_without_colors() -> None:
    up, down = lines(Bars("t", [Bar("a", 1.0, "+1"), Bar("b", -1.0, "-1")]), 40)
    assert up.count("█") == down.count("▒") == 33
    assert "█" not in down


def test_parts_of_a_stack_fill_their_shares_and_what_is_free_stays_empty() -> None:
    # 80 columns of a whole of 8: 40 of the first, 20 of the second, and 20 are free.
    bar, names = lines(StackedBar("memory", [Bar("weights", 4.0, ""), Bar("cache", 2.0, "")], 8.0))
    assert bar == "█" * 40 + "▓" * 20 + "·" * 20
    assert names == "█ weights 50.0%  ▓ cache 25.0%"


def test_parts_below_a_hundredth_are_one() -> None:
    parts = [Bar("large", 995.0, ""), Bar("x", 3.0, ""), Bar("y", 2.0, "")]
    assert lines(StackedBar("t", parts, 1000.0))[1] == "█ large 99.5%  ▓ 2 smaller 0.5%"


@given(st.lists(st.floats(0.0, 1e12), min_size=1, max_size=20), st.integers(NARROWEST, 100))
def test_a_stack_is_as_wide_as_the_screen(values: list[float], columns: int) -> None:
    assert len(lines(StackedBar("t", [Bar("p", value, "") for value in values], 0.0), columns)[0]) == columns


def plane(series: list[Series], columns: int = 60, unit: str = "") -> list[str]:
    return lines(Scatter("t", Axis("x", unit), Axis("", unit), series), columns)


def test_a_point_lies_where_the_axes_say() -> None:
    # Of points at both ends of both axes, which leave a twentieth of room, the middle one lies in the middle.
    found = plane([Series("s", [(0.0, 0.0), (5.0, 5.0), (10.0, 10.0)], "o")])[:HEIGHT]
    places = [(row, line.index("o")) for row, line in enumerate(found) if "o" in line]
    (top, right), (middle, between), (bottom, left) = places
    assert abs((top + bottom) / 2 - middle) <= 1
    assert abs((left + right) / 2 - between) <= 1
    assert (top, bottom) == (0, HEIGHT - 1)


def test_axes_name_round_numbers_in_their_unit() -> None:
    found = lines(
        Scatter("t", Axis("memory", "B"), Axis("step time", "s"), [Series("s", [(0.0, 1.0), (2.0**31, 2.0)], "o")])
    )
    assert found[0].strip() == "step time"
    assert found[-1].strip() == "memory"
    assert "2 GiB" in found[-2]
    assert any("1.5 s ┤" in line for line in found)


def test_a_wide_range_is_logarithmic() -> None:
    found = plane([Series("s", [(1.0, 1.0), (100.0, 2.0), (10_000.0, 3.0)], "o")])
    left, middle, right = (line.index("o") for line in reversed(found[:HEIGHT]) if "o" in line)
    assert abs((left + right) / 2 - middle) <= 1


def test_points_without_both_numbers_are_left_out() -> None:
    nan, inf = float("nan"), float("inf")
    found = plane([Series("s", [(1.0, 1.0), (nan, 2.0), (3.0, nan), (2.0, inf)], "o")])
    assert sum(line.count("o") for line in found) == 1
    assert plane([Series("s", [(nan, 1.0)])]) == ["no point has both numbers"]


def test_what_colors_tell_letters_tell() -> None:
    found = plane([Series("TTFT", [(1.0, 1.0), (2.0, 2.0)], "F", joined=True), Series("TPOT", [(1.0, 2.0)], "T")])
    assert found[-1] == "F TTFT  T TPOT"
    assert [ESCAPE.sub("", line) for line in lines(Bars("t", [Bar("a", 1.0, "x")]), 60, True)] == lines(
        Bars("t", [Bar("a", 1.0, "x")]), 60
    )


def test_shades_mark_the_best_and_leave_a_gap_where_nothing_is() -> None:
    found = lines(Shades("t", ["1", "2"], ["9", "8"], [[4.0, None], [2.0, 3.0]], [["$4", ""], ["$2", "$3"]]))
    assert found == ["9 $4", "8 $2* $3", "   1   2"]
    more = Shades("t", ["1"], ["9", "8"], [[4.0], [2.0]], [["4"], ["2"]], less_is_better=False)
    assert lines(more) == ["9 4*", "8 2", "  1"]


def test_shades_stand_for_numbers_where_there_is_no_room() -> None:
    xs = [str(1000 + k) for k in range(30)]
    found = lines(Shades("t", xs, ["y"], [[float(k) for k in range(30)]], [[f"$1,{k:03}" for k in range(30)]]), 80)
    row = found[0]
    # Thirty places in four shades, the best first; the last of all is the end of the last shade.
    assert re.sub(r"(.)( \1)+ ?", r"\1", row.removeprefix("y ").strip()) == "█▓▒░"
    assert found[1:] == ["  1000 .. 1029", "█ $1,000 .. ░ $1,029"]


PICTURES: list[Picture] = [
    Bars("bars", [Bar("a name that is longer than a third of a narrow screen", 1.0, "12 ms"), Bar("b", 0.0, "0 ms")]),
    StackedBar("stack", [Bar(f"part {k}", 1.0, "") for k in range(12)], 14.0),
    Scatter(
        "points",
        Axis("x", "s"),
        Axis("y", "USD"),
        [Series("s", [(1e-3, 1.0), (1e5, 1e9)]), Series("t", [(1.0, 2.0)], "o")],
    ),
    Shades("shades", ["100", "200"], ["1"], [[1.0, 2.0]], [["1.25 EFLOP", "1.5 EFLOP"]]),
]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda one: str(one.title))
@pytest.mark.parametrize("columns", [40, 60, 80, 200])
@pytest.mark.parametrize("color", [False, True])
def test_no_line_is_wider_than_the_screen(picture: Picture, columns: int, color: bool) -> None:
    text = drawn([picture], columns, color)
    assert ("\x1b[" in text) is color
    assert max(len(ESCAPE.sub("", line)) for line in text.splitlines()) <= columns


def test_a_screen_that_is_too_narrow_shows_no_picture() -> None:
    assert drawn(PICTURES, NARROWEST - 1) == ""
