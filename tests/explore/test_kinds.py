"""Kinds of plans: what says nothing is no difference, blocks may come in any order, the simplest is named."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from slipstick.explore.block import Found
from slipstick.explore.goals import Goal
from slipstick.explore.kinds import Kinds, simplest


def found(number: int, **columns: list[float]) -> Found:
    rows = {name: np.array(column) for name, column in columns.items()}
    num = len(columns["tp"])
    return Found(number, dict(Counter()), num, rows)


BLOCKS = (
    found(0, tp=[1, 1, 2], pp=[4, 4, 1], cp=[1, 1, 1], ep=[1, 1, 1], dp=[1, 1, 1], vpp=[14, 20, 1], zero=[0, 0, 1],
          step_time_s=[1.00, 1.01, 1.02]),
    found(1, tp=[1, 2, 2], pp=[4, 1, 1], cp=[1, 1, 2], ep=[1, 1, 1], dp=[1, 1, 4], vpp=[7, 1, 1], zero=[2, 0, 1],
          step_time_s=[0.99, 1.05, 5.0]),
)  # fmt: skip


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_chunks_and_states_of_one_replica_are_one_kind(order: tuple[int, int]) -> None:
    kinds = Kinds([Goal("step_time_s")])
    for at in order:
        kinds.take(BLOCKS[at])
    # tp1 pp4 with 7, 14 and 20 chunks and any ZeRO at dp 1 are one; tp2 with ZeRO 0 and 1 at dp 1 is the other.
    assert kinds.rows["step_time_s"].tolist() == [0.99, 1.02]
    assert kinds.rows["vpp"].tolist() == [7.0, 1.0]
    assert kinds.within(0.02)["tp"].tolist() == [1.0]
    assert kinds.within(0.05)["tp"].tolist() == [1.0, 2.0]


def test_the_simplest_has_fewest_axes_and_no_chunks() -> None:
    kinds = Kinds([Goal("step_time_s")])
    rows = found(0, tp=[2, 2, 8], pp=[2, 2, 1], cp=[2, 1, 1], ep=[1, 1, 1], dp=[8, 16, 8], vpp=[4, 1, 1],
                 step_time_s=[1.0, 1.01, 1.02])  # fmt: skip
    kinds.take(rows)
    assert kinds.rows["tp"].tolist() == [2.0, 2.0, 8.0]
    assert simplest(kinds.rows) == 2


def test_what_should_be_large_is_best_where_it_is_largest() -> None:
    kinds = Kinds([Goal("mfu", -1.0)])
    kinds.take(found(0, tp=[1, 2, 4], pp=[1, 1, 1], dp=[8, 4, 2], mfu=[0.5, 0.6, 0.58]))
    assert kinds.rows["mfu"].tolist() == [0.6, 0.58, 0.5]
    assert kinds.within(0.05)["mfu"].tolist() == [0.6, 0.58]
