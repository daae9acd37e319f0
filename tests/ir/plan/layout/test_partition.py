"""Cutting a row of blocks: against every possible cut."""

from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.ir.errors import PlanError
from slipstick.ir.plan.layout.partition import Balance, even_parts, filled_parts


def dearest(costs: list[float], sizes: tuple[int, ...], first: float, last: float) -> tuple[float, float]:
    """The dearest part and the sum of squares."""
    starts = [sum(sizes[:k]) for k in range(len(sizes) + 1)]
    parts = [sum(costs[a:b]) for a, b in pairwise(starts)]
    parts[0] += first
    parts[-1] += last
    return max(parts), sum(p * p for p in parts)


def every_cut(num: int, parts: int, may_be_empty: bool) -> list[tuple[int, ...]]:
    cuts = ((0, *inner, num) for inner in combinations_with_replacement(range(num + 1), parts - 1))
    sizes = [tuple(b - a for a, b in pairwise(cut)) for cut in cuts]
    return [s for s in sizes if all(s[:-1]) and (s[-1] or may_be_empty)]


@given(
    st.lists(st.integers(1, 9).map(float), min_size=2, max_size=8), st.integers(2, 6),
    st.sampled_from([0.0, 2.0]), st.sampled_from([0.0, 5.0, 30.0]),
)  # fmt: skip
def test_no_cut_is_better(costs: list[float], parts: int, first: float, last: float) -> None:
    if parts > len(costs):
        return
    found = Balance(costs, first, last).sizes(parts)
    assert sum(found) == len(costs)
    best = min(dearest(costs, cut, first, last) for cut in every_cut(len(costs), parts, last > 0))
    assert dearest(costs, found, first, last) == pytest.approx(best)


def tabled(costs: list[float], num_parts: int, first: float, last: float) -> tuple[int, ...]:
    """What is asked for, word by word: a table of every start and end for each part, first for the dearest part, then
    for the sum of squares of parts that are no dearer; the first of equal starts.
    """
    sums = np.concatenate([[0.0], np.cumsum(np.asarray(costs, dtype=np.float64))])
    order = np.arange(len(sums))
    spans = []
    for part in range(num_parts):
        extra = (first if part == 0 else 0.0) + (last if part == num_parts - 1 else 0.0)
        span = sums[None, :] - sums[:, None] + extra
        span[order[None, :] - order[:, None] < (0 if part == num_parts - 1 and last > 0.0 else 1)] = np.inf
        spans.append(span)

    def least(tables: list[np.ndarray], join: np.ufunc) -> tuple[float, list[np.ndarray]]:
        reached, starts = np.full(len(sums), np.inf), []
        reached[0] = 0.0
        for table in tables:
            ways = join(reached[:, None], table)
            starts.append(np.argmin(ways, axis=0))
            reached = ways.min(axis=0)
        return float(reached[-1]), starts

    ceiling = least(spans, np.maximum)[0]
    squares = [np.where(s <= ceiling * (1.0 + 1e-12), s * s, np.inf) for s in spans]
    sizes, end = [], len(costs)
    for start in reversed(least(squares, np.add)[1]):
        sizes.append(end - int(start[end]))
        end = int(start[end])
    return tuple(reversed(sizes))


ROWS = st.one_of(
    st.tuples(st.integers(1, 40), st.sampled_from([1.0, 0.1, 0.123456789, 3e17 / 7])).map(lambda t: [t[1]] * t[0]),
    st.lists(st.sampled_from([0.0, 1.0, 2.0, 0.3]), min_size=1, max_size=30),
    st.lists(st.floats(0.0, 10.0), min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(1, 8), st.floats(0.0, 1.0)), min_size=1, max_size=5).map(
        lambda runs: [cost for num, cost in runs for _ in range(num)]
    ),
)


@given(ROWS, st.sampled_from([0.0, 0.3, 2.0]), st.sampled_from([0.0, 0.5, 2.4, 30.0]))
def test_every_number_of_parts_is_cut_as_the_whole_table_says(costs: list[float], first: float, last: float) -> None:
    # Equal costs do not add up to equal sums, so that ties are broken by the last bit: it must be the same one.
    row = Balance(costs, first, last)
    for parts in range(1, len(costs) + 1 + (last > 0.0)):
        assert row.sizes(parts) == tabled(costs, parts, first, last)


def test_a_heavy_head_takes_layers_from_the_last_stage() -> None:
    # Llama 3.1 8B: the head does the work of about 2.4 layers; 32 layers on 4 stages.
    assert Balance([1.0] * 32, last=2.4).sizes(4)[-1] == 6


def test_a_head_dearer_than_any_stage_stands_alone() -> None:
    assert Balance([1.0] * 4, last=9.0).sizes(3) == (2, 2, 0)


@given(st.integers(1, 200), st.integers(1, 64))
def test_even_parts_differ_by_one_at_most(num: int, parts: int) -> None:
    sizes = even_parts(num, parts)
    assert sum(sizes) == num
    assert max(sizes) - min(sizes) <= 1
    # Only when all but one have one more can an end have one, too: then it is the first.
    assert sizes[-1] == min(sizes)


def test_stages_that_reach_their_share_one_by_one_leave_the_last_without_layers() -> None:
    # Llama of 28 layers with a head of 3.556 layers on 16 stages: 31.556 / 16 = 1.97 a stage, so two layers each.
    assert filled_parts([1.0] * 28, 16, last=3.556) == (2,) * 14 + (0, 0)
    # 20 / 4 = 5: five layers reach the share exactly.
    assert filled_parts([1.0] * 16, 4, last=4.0) == (5, 5, 5, 1)


@given(st.lists(st.integers(1, 9).map(float), min_size=1, max_size=40), st.integers(1, 12), st.sampled_from([0.0, 7.0]))
def test_filled_stages_hold_every_block_and_the_first_reaches_its_share(
    costs: list[float], parts: int, last: float
) -> None:
    sizes = filled_parts(costs, parts, last)
    assert (len(sizes), sum(sizes)) == (parts, len(costs))
    share = (sum(costs) + last) / parts
    assert sizes[0] == len(costs) or sum(costs[: sizes[0]]) >= share * (1 - 1e-9)
    assert sum(costs[: sizes[0] - 1]) < share


def test_more_parts_than_blocks_are_refused() -> None:
    with pytest.raises(PlanError, match="3 blocks cannot fill 4 stages; legal: 1 to 3"):
        Balance([1.0] * 3).sizes(4)
