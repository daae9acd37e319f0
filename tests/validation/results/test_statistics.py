"""Accuracy and confusion, by hand and by law."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.validation.results.statistics import Accuracy, Confusion


def test_quantiles_interpolate_linearly() -> None:
    found = Accuracy.of([0.1, -0.2, 0.3, -0.4, 0.5])
    # Sizes 0.1 to 0.5 in steps of 0.1: the ninth tenth lies 0.6 of the way from 0.4 to 0.5.
    assert (found.num, found.median, found.worst, found.bias) == (5, 0.3, 0.5, 0.1)
    assert found.p90 == pytest.approx(0.46)
    assert found.p75 == pytest.approx(0.4)


@given(st.lists(st.floats(-0.99, 10), min_size=1, max_size=50))
def test_the_figures_are_in_order(errors: list[float]) -> None:
    found = Accuracy.of(errors)
    assert 0 <= found.median <= found.p75 * (1 + 1e-9) <= found.p90 * (1 + 2e-9) <= found.worst * (1 + 3e-9)
    assert abs(found.bias) <= found.worst


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=50))
def test_every_label_is_counted_once(pairs: list[tuple[bool, bool]]) -> None:
    found = Confusion.of(pairs)
    assert found.num == len(pairs)
    assert found.accuracy * max(len(pairs), 1) == pytest.approx(sum(a == b for a, b in pairs))


def test_precision_and_recall_are_of_those_that_fit() -> None:
    # Seven ran, of which five were said to fit; of three that failed one was said to fit.
    pairs = [*[(True, True)] * 5, *[(True, False)] * 2, *[(False, False)] * 2, (False, True)]
    found = Confusion.of(pairs)
    assert found.accuracy == 0.7
    assert found.precision == pytest.approx(5 / 6)
    assert found.recall == pytest.approx(5 / 7)


def test_shares_of_nothing_are_not_numbers() -> None:
    found = Confusion.of([(False, False)])
    assert math.isnan(found.precision)
    assert math.isnan(found.recall)
