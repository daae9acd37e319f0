"""Text into the numbers of an axis."""

import pytest

from slipstick.explore.designs.axes import axis, counts, words
from slipstick.ir.errors import UsageError


@pytest.mark.parametrize(
    ("text", "dimension", "expected"),
    [
        ("400:800:200mm2", "mm2", (400.0, 600.0, 800.0)),
        ("400:790:200mm2", "mm2", (400.0, 600.0)),
        ("0.1:0.3:0.1W/mm2", "W/mm2", (0.1, 0.2, 0.3)),
        ("700W,1kW", "W", (700.0, 1000.0)),
        ("1,2TB/s", "B/s", (1e12, 2e12)),
        ("4cm2:8cm2:200mm2", "mm2", (400.0, 600.0, 800.0)),
        ("826mm2", "mm2", (826.0,)),
    ],
)
def test_axes_are_lists_or_steps(text: str, dimension: str, expected: tuple[float, ...]) -> None:
    assert axis(text, dimension, "--x") == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "words_of_it"),
    [
        ("400", "missing unit of '400': allowed: mm2"),
        ("400:800mm2", "write first:last:step"),
        ("1:2:3:4mm2", "write first:last:step"),
        ("800:400:100mm2", "the last not below the first"),
        ("400:800:0mm2", "the step must be above zero"),
        ("0:1e9:1mm2", "has 1,000,000,001 steps: at most 100,000"),
        ("0:1e300:1e-300mm2", "has inf steps: at most 100,000"),
        ("400mm2,,", "'' is not a quantity"),
        ("", "'' is not a quantity"),
        ("400kg", "wrong unit 'kg'"),
    ],
)
def test_what_is_no_axis_says_what_would_be(text: str, words_of_it: str) -> None:
    with pytest.raises(UsageError, match="--die-area") as caught:
        axis(text, "mm2", "--die-area")
    assert words_of_it in str(caught.value)


def test_counts_are_whole() -> None:
    assert counts("1,2,4", "--chiplets") == (1, 2, 4)
    assert counts("2:8:2", "--stacks") == (2, 4, 6, 8)
    for text in ("1.5", "0", "-2"):
        with pytest.raises(UsageError, match="is no count: whole numbers of 1 or more"):
            counts(text, "--chiplets")


def test_words_come_once() -> None:
    assert words("N5, N3,N5,") == ("N5", "N3")
    assert words("") == ()
