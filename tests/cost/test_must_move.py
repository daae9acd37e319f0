"""Bytes that a pass must move: weights that products read, caches and states, experts that some row meets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slipstick.cost.must_move import MustMove
from slipstick.driver.estimate import lower
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.ops.base import ExpertsRead
from slipstick.ir.plan import Family, PlanTable, make_plan
from slipstick.ir.sizes.expr import as_expr

# tiny-llama: 2 layers of hidden 64, keys and values of 32, MLP 96; vocabulary 160; 2 bytes each.
HIDDEN, KV, MLP, VOCAB = 64, 32, 96, 160
DECODE = Family(workload=Workload.DECODE)


def test_a_decode_step_reads_all_weights_but_the_table_of_words_and_its_cache(traced: Callable[[str], Graph]) -> None:
    moved = MustMove.of(lower(traced("tiny-llama.decode"), DECODE).graph)
    layer = 2 * HIDDEN * HIDDEN + 2 * KV * HIDDEN + 3 * MLP * HIDDEN + 2 * HIDDEN
    weights = 2 * (2 * layer + HIDDEN + VOCAB * HIDDEN)
    # Three sequences of 40 tokens and the new one.
    cache = 2 * 2 * 2 * KV * 3 * 41
    plans = PlanTable.of([make_plan(num_gpus=1, seq_len=41, kv_len=40, micro_batch=3, family=DECODE)])
    assert moved.evaluate(plans).tolist() == [weights + cache]


def test_of_experts_only_those_are_read_that_a_row_meets() -> None:
    """Of 8 experts one row meets one, two rows 1 + 7/8 on average; twice, in two layers, of 1000 bytes in all."""
    plans = PlanTable.of([make_plan(num_gpus=1, seq_len=8, kv_len=8, family=DECODE)])
    for rows, met in ((1, 1.0), (2, 1.0 + 7 / 8)):
        read = ExpertsRead(as_expr(1000), as_expr(rows), as_expr(8))
        moved = MustMove(as_expr(5000), ((read, 2),))
        assert moved.evaluate(plans)[0] == pytest.approx(3000 + 2 * 1000 * met / 8)
