"""Ranges as people type them, and the values that are chosen from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.explore.ranges import is_range, range_of
from slipstick.explore.trials.optimizer import Range
from slipstick.ir.errors import UsageError
from slipstick.ir.units import parse_quantity


def test_ends_are_in_the_unit_of_the_last() -> None:
    assert range_of("hbm", "2..10TB/s") == Range(name="hbm", first=2.0, last=10.0, unit="TB/s")
    assert range_of("hbm", "500GB/s..2TB/s") == Range(name="hbm", first=0.5, last=2.0, unit="TB/s")
    assert range_of("latency", "0.1us .. 20us:log").is_log
    assert range_of("x", "0..1").is_whole
    assert not range_of("x", "0.0..1").is_whole
    assert not range_of("x", "1..8us").is_whole


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("10..2", "below the last: 2..10"),
        ("2TB/s..2TB/s", "below the last"),
        ("2us..10TB/s", "wrong unit|one unit"),
        ("2GB..10", "needs a unit as well, as in 2GB..10GB"),
        ("switch..torus", "words are a list with commas"),
        ("0..5us:log", "above zero"),
        ("1..5us:cubic", "no scale of a range"),
        ("1..5us:9", "--trials says how many"),
    ],
)
def test_what_is_no_range_is_told(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        range_of("it", text)


def test_a_range_of_a_dimension_refuses_others_and_none() -> None:
    with pytest.raises(UsageError, match="wrong unit 'W'"):
        range_of("--die-area", "200..800W", "mm2")
    with pytest.raises(UsageError, match=r"missing unit: allowed: mm2"):
        range_of("--die-area", "200..800", "mm2")


@pytest.mark.parametrize("text", ["2TB/s:10TB/s:9", "switch,torus", "../own.yaml", "a/../b", "8", ""])
def test_lists_steps_words_and_paths_are_no_ranges(text: str) -> None:
    assert not is_range(text)


@given(first=st.floats(0.001, 1e6), factor=st.floats(1.01, 1e4), part=st.floats(0, 1), is_log=st.booleans())
def test_values_stay_inside_near_what_was_drawn_and_read_back_as_themselves(
    first: float, factor: float, part: float, is_log: bool
) -> None:
    one = Range(name="it", first=first, last=first * factor, unit="us", is_log=is_log)
    raw = min(one.first * factor**part if is_log else one.first + part * (one.last - one.first), one.last)
    value = one.value(raw)
    assert one.first <= value <= one.last
    # Half of the last of four digits, or half of a thousandth of the range.
    assert abs(value - raw) <= (raw * 5.1e-4 if is_log else 5.1e-4 * (one.last - one.first))
    assert parse_quantity(one.text(value)).value_si == parse_quantity(f"{value!r}us").value_si
