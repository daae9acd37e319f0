from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slipstick.explore.block import Block, Found, cut, joined
from slipstick.explore.job import InProcess

from .fake_job import FakeJob


@given(st.integers(0, 200), st.integers(1, 50), st.integers(0, 5))
def test_blocks_of_a_part_hold_every_candidate_once(num: int, at_once: int, number: int) -> None:
    blocks = list(cut(3, num, at_once, number))
    assert [c for b in blocks for c in range(b.first, b.last)] == list(range(num))
    assert [b.number for b in blocks] == list(range(number, number + len(blocks)))


@given(st.integers(0, 100), st.integers(2, 40))
def test_halves_hold_what_the_block_holds(first: int, num: int) -> None:
    one, other = Block(7, 1, first, first + num).halves()
    assert (one.first, one.last, other.last) == (first, other.first, first + num)
    assert 1 <= len(one) <= len(other) <= len(one) + 1


def test_pieces_of_a_block_join_to_what_the_block_finds() -> None:
    job = FakeJob(num_candidates=9, at_once=9)
    (whole,), worker = job.blocks(), job.open()
    found, pieces = worker.work(whole), joined([worker.work(half) for half in whole.halves()])
    assert (found.pruned, found.num_legal, found.num_candidates) == (pieces.pruned, pieces.num_legal, 9)
    assert all(np.array_equal(found.columns[name], pieces.columns[name]) for name in job.columns)


def test_pieces_without_rows_keep_their_columns() -> None:
    none = Found(0, {"odd": 1}, 1, {"number": np.zeros(0)}, ("candidate 3: killed",))
    both = joined([none, none])
    assert (both.num_rows, both.num_candidates, both.pruned, len(both.crashed)) == (0, 4, {"odd": 2}, 2)


def test_in_process_finds_all_blocks_in_order() -> None:
    job = FakeJob()
    assert [f.number for f in InProcess().run(job, job.blocks())] == [0, 1, 2, 3, 4]
