"""Copies of experts and where they lie: DeepSeek's example, rows that are conserved, what no placement beats."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.ir.errors import PlanError
from slipstick.passes.experts.placement import balanced, dealt, replicated

# Loads and result of the example in the README of github.com/deepseek-ai/EPLB.
LOADS = np.array([[90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
                  [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27]], dtype=np.float64)  # fmt: skip
PLACES = [[5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1],
          [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1]]  # fmt: skip


def test_the_example_of_eplb() -> None:
    # Two layers of twelve experts in four groups, sixteen places on two nodes of four ranks each.
    assert balanced(LOADS, 16, 8, num_groups=4, num_nodes=2).experts.tolist() == PLACES


def test_the_busiest_rank_of_the_example() -> None:
    # By hand: 5 and 6 of layer 0 share a rank, with half of 165 rows and 39; the mean is 1033 / 8.
    found = balanced(LOADS, 16, 8, num_groups=4, num_nodes=2).rank_loads(LOADS, 8)
    assert found[0, 0] == 165 / 2 + 39
    assert found[0].sum() == pytest.approx(1033)


LAYERS = st.integers(1, 4).flatmap(
    lambda ranks: st.tuples(
        st.just(ranks), st.integers(0, 3), st.lists(st.integers(1, 1000), min_size=4 * ranks, max_size=4 * ranks)
    )
)


@given(LAYERS)
def test_rows_are_conserved_and_every_expert_lies_somewhere(case: tuple[int, int, list[int]]) -> None:
    ranks, more, rows = case
    loads = np.array([rows], dtype=np.float64)
    placed = balanced(loads, len(rows) + more * ranks, ranks)
    assert placed.copies.min() >= 1
    assert placed.copies.sum() == len(rows) + more * ranks
    of_ranks = placed.rank_loads(loads, ranks)
    assert of_ranks.sum() == pytest.approx(sum(rows))
    # No rank can have less than the mean, nor, by Graham's bound, more than the mean and one copy's rows.
    most = (loads / placed.copies).max()
    assert sum(rows) / ranks - 1e-9 <= of_ranks.max() <= sum(rows) / ranks + most * len(rows) + 1e-9


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=8), st.integers(0, 8))
def test_copies_make_the_largest_share_as_small_as_it_can_be(rows: list[int], more: int) -> None:
    places = replicated(np.array(rows, dtype=np.float64), len(rows) + more)
    largest = max(rows[k] / np.count_nonzero(places == k) for k in range(len(rows)))

    def least(threshold: float) -> int:
        return sum(int(np.ceil(r / threshold - 1e-12)) for r in rows)

    # A smaller largest share would take more places than there are.
    assert least(largest) <= len(rows) + more < least(largest * (1 - 1e-9))


def test_packs_have_equally_many() -> None:
    assert {len(pack) for pack in dealt(np.arange(12.0), 4)} == {3}


def test_places_that_ranks_do_not_divide_are_refused() -> None:
    with pytest.raises(PlanError, match="10 places of 8 experts on 4 ranks"):
        balanced(np.ones((1, 8)), 10, 4)
