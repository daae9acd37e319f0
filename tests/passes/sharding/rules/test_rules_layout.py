"""The sharded dim followed through views, slices, joins and lookups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slipstick.driver.estimate import lower
from slipstick.ir.graph import NO_ATTRS, Attrs, Phase
from slipstick.ir.ops.base import OpCall
from slipstick.ir.ops.tensors.layout import ConcatAttrs, PermuteAttrs, SliceAttrs
from slipstick.ir.placement import DP, PARTIAL, REPLICATE, Placement, Shard
from slipstick.ir.plan import Family
from slipstick.ir.sizes.expr import Dim, symbol
from slipstick.ir.types import DType, TensorType
from slipstick.passes.layouts.laws import operand_problems
from slipstick.passes.layouts.lay import Lay
from slipstick.passes.sharding.ask import Answer, Ask
from slipstick.tests.passes.sharding.rules.answers import answer_for

Dims = tuple[Dim, ...]
MBS, SEQ = symbol("mbs"), symbol("seq")
PACKED = Shard(2, packed=True)


def ask(
    given: tuple[Placement, ...], shapes: tuple[Dims, ...], out: Dims, attrs: Attrs = NO_ATTRS,
    phase: Phase = Phase.FORWARD, forward: tuple[Placement, ...] = (),
) -> Ask:  # fmt: skip
    call = OpCall("op", attrs, tuple(TensorType(d, DType.BF16) for d in shapes), (TensorType(out, DType.BF16),))
    return Ask("tp", call, given, (False,) * len(given), (REPLICATE,) * len(given), phase, forward)


@pytest.mark.parametrize(
    ("source", "result", "given", "where"),
    [
        ((MBS, SEQ, 4096), (MBS, SEQ, 32, 128), Shard(2), Shard(2)),  # a dim taken apart: its heads lead
        ((MBS, SEQ, 32, 128), (MBS, SEQ, 4096), Shard(2), Shard(2)),  # put together again
        ((MBS, SEQ, 32, 128), (MBS, SEQ, 4096), Shard(3), Shard(2, packed=True)),  # behind others: no one block
        ((MBS, SEQ, 4096), (MBS * SEQ, 4096), Shard(0), Shard(0)),  # tokens in one dim, batch leading
        ((MBS, SEQ, 4096), (MBS * SEQ, 4096), Shard(1), Shard(0, packed=True)),  # the sequence among the tokens
        ((MBS * SEQ, 4096), (MBS, SEQ, 4096), Shard(0, packed=True), Shard(1)),  # and back
        ((MBS, SEQ, 4096), (MBS * SEQ, 4096), Shard(2), Shard(1)),
        ((MBS * SEQ, 4096), (MBS, SEQ, 4096), Shard(0), Shard(0)),
        ((1, SEQ, 4096), (SEQ, 4096), Shard(1), Shard(0)),  # a dim of 1 is nothing
        ((SEQ, 64), (1, SEQ, 1, 64), Shard(0), Shard(1)),
        ((MBS, 1, SEQ), (MBS, SEQ), Shard(2), Shard(1)),
        ((2, 3, 4), (6, 4), Shard(2), Shard(1)),
    ],
)
def test_follow(source: Dims, result: Dims, given: Shard, where: Shard) -> None:
    given_over_cp = replace(ask((given,), (source,), result), axis="cp")
    assert answer_for("reshape", given_over_cp).outputs == (where or REPLICATE,)


def test_a_reshape_gathers_what_it_scatters() -> None:
    shapes: Dims = (MBS, SEQ, 64)
    assert answer_for("reshape", ask((Shard(1),), (shapes,), (MBS * SEQ, 64))) == Answer((REPLICATE,), (REPLICATE,))
    assert answer_for("reshape", ask((Shard(0),), (shapes,), (MBS * SEQ, 64))) == Answer((Shard(0),), (Shard(0),))


def test_ranks_that_route_their_own_tokens_keep_these_in_turn_and_no_heads_among_them() -> None:
    """Behind [mbs, seq, 8, 20] as rows of 20, a cut in the rows would be read as one of the sequence."""
    tokens = replace(ask((Shard(1),), ((MBS, SEQ, 64),), (MBS * SEQ, 64)), own_tokens=True)
    heads = replace(ask((Shard(2),), ((MBS, SEQ, 8, 20),), (MBS * SEQ * 8, 20)), own_tokens=True)
    assert answer_for("reshape", tokens) == Answer((Shard(1),), (Shard(0, packed=True),))
    assert answer_for("reshape", heads) == Answer((REPLICATE,), (REPLICATE,))


def test_columns_of_tensors_side_by_side_are_heads_side_by_side() -> None:
    """160 columns of 8 + 1 + 1 heads of 16; of one packed dim of other origin the inner dim is cut."""
    given: tuple[tuple[Placement, ...], tuple[Dims, ...], Dims] = (PACKED,), ((MBS, SEQ, 160),), (MBS, SEQ, 10, 16)
    assert answer_for("reshape", replace(ask(*given), stacked=True)) == Answer((PACKED,), (PACKED,))
    assert answer_for("reshape", ask(*given)) == Answer((PACKED,), (Shard(3),))


def test_a_head_that_a_plan_holds_whole_is_put_back_whole() -> None:
    """Where the packed dim is not cut, the gradient of its last head is no summand."""
    dims: tuple[Dims, ...] = ((MBS, SEQ, 1, 16),)
    given = ask((REPLICATE,), dims, (MBS, SEQ, 10, 16), SliceAttrs(2, 9), Phase.BACKWARD, (Shard(1),))
    assert answer_for("pad", replace(given, on_all=(True,))) == Answer((REPLICATE,), (REPLICATE,))
    cut = replace(given, on_all=(True,), forward=(PACKED,))
    assert answer_for("pad", cut) == Answer((PARTIAL,), (PACKED,))


def test_rows_do_not_reach_their_experts_without_a_message() -> None:
    rows = TensorType((MBS, 64), DType.BF16)
    lay = Lay("ep", OpCall("slice", SliceAttrs(0, 0), (rows,), (rows,)), (Shard(0),), (Shard(0, routed=True),), True)
    assert ["is no entry" in said for said in operand_problems(lay)] == [True]


@pytest.mark.parametrize("p", [PARTIAL, REPLICATE])
@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("reshape", NO_ATTRS),
        ("permute", PermuteAttrs((0, 1, 2))),
        ("expand", NO_ATTRS),
        ("slice", SliceAttrs(2, 0)),
        ("pad", SliceAttrs(2, 0)),
    ],
)
def test_views_keep_partial_sums_and_copies(op: str, attrs: Attrs, p: Placement) -> None:
    dims: Dims = (2, 16, 64)
    assert answer_for(op, ask((p,), (dims,), dims, attrs)) == Answer((p,), (p,))


def test_permute_moves_the_dim() -> None:
    given = ask((Shard(2),), ((2, 16, 4, 8),), (2, 4, 16, 8), PermuteAttrs((0, 2, 1, 3)))
    assert answer_for("permute", given).outputs == (Shard(1),)


def test_expand_shifts_the_dim_and_gathers_what_grows_except_over_the_batch() -> None:
    assert answer_for("expand", ask((Shard(0),), ((16, 64),), (2, 16, 64))).outputs == (Shard(1),)
    grows: Dims = (2, 1, 16, 64)
    assert answer_for("expand", ask((Shard(2),), (grows,), (2, 8, 16, 64))) == Answer((REPLICATE,), (REPLICATE,))
    assert answer_for("expand", ask((Shard(0),), (grows,), (2, 8, 16, 64))).outputs == (Shard(0),)


def test_a_slice_of_a_packed_dim_is_one_of_its_tensors() -> None:
    given = ask((PACKED,), ((2, 16, 192),), (2, 16, 64), SliceAttrs(2, 64))
    assert answer_for("slice", given) == Answer((PACKED,), (Shard(2),))


def test_a_slice_of_another_sharded_dim_needs_the_whole() -> None:
    given = ask((Shard(2),), ((2, 16, 192),), (2, 16, 64), SliceAttrs(2, 64))
    assert answer_for("slice", given) == Answer((REPLICATE,), (REPLICATE,))


def test_a_slice_leaves_other_dims_in_place_and_an_index_shifts_them() -> None:
    assert answer_for("slice", ask((Shard(1),), ((2, 16, 192),), (2, 16, 64), SliceAttrs(2, 0))).outputs == (Shard(1),)
    index = SliceAttrs(0, 0, drop=True)
    assert answer_for("slice", ask((Shard(1),), ((2, 16, 192),), (16, 192), index)).outputs == (Shard(0),)


def test_pad_undoes_slice() -> None:
    assert answer_for("pad", ask((Shard(2),), ((2, 16, 64),), (2, 16, 192), SliceAttrs(2, 64))).outputs == (PACKED,)
    assert answer_for("pad", ask((Shard(1),), ((2, 16, 64),), (2, 16, 192), SliceAttrs(2, 64))).outputs == (Shard(1),)
    index = SliceAttrs(0, 0, drop=True)
    assert answer_for("pad", ask((Shard(0),), ((16, 192),), (2, 16, 192), index)).outputs == (Shard(1),)


def test_shards_side_by_side_are_packed() -> None:
    dims: Dims = (2, 16, 64)
    given = ask((Shard(2), REPLICATE), (dims, dims), (2, 16, 128), ConcatAttrs(2))
    assert answer_for("concat", given) == Answer((Shard(2), Shard(2)), (PACKED,))
    given = ask((Shard(1), Shard(1)), (dims, dims), (2, 16, 128), ConcatAttrs(2))
    assert answer_for("concat", given) == Answer((Shard(1), Shard(1)), (Shard(1),))


def test_partial_sums_side_by_side_are_partial_when_all_are() -> None:
    dims: Dims = (2, 16, 64)
    both = ask((PARTIAL, PARTIAL), (dims, dims), (2, 16, 128), ConcatAttrs(2))
    assert answer_for("concat", both) == Answer((PARTIAL, PARTIAL), (PARTIAL,))
    one = ask((PARTIAL, REPLICATE), (dims, dims), (2, 16, 128), ConcatAttrs(2))
    assert answer_for("concat", one) == Answer((REPLICATE, REPLICATE), (REPLICATE,))


@pytest.mark.parametrize(
    ("ids", "table", "want", "result"),
    [
        (REPLICATE, Shard(0), (REPLICATE, Shard(0)), PARTIAL),  # vocabulary: rows of other ranks are zero
        (REPLICATE, Shard(1), (REPLICATE, Shard(1)), Shard(2)),
        (Shard(0), REPLICATE, (Shard(0), REPLICATE), Shard(0)),  # batch
    ],
)
def test_embedding(ids: Placement, table: Placement, want: tuple[Placement, ...], result: Placement) -> None:
    assert answer_for("embedding", ask((ids, table), ((2, 16), (128, 64)), (2, 16, 64))) == Answer(want, (result,))


@pytest.mark.parametrize(
    ("table", "dy", "ids", "want", "result"),
    [
        (Shard(0), Shard(1), REPLICATE, (REPLICATE, REPLICATE), Shard(0)),  # each rank its rows, of all tokens
        (Shard(1), REPLICATE, REPLICATE, (Shard(2), REPLICATE), Shard(1)),
        (REPLICATE, Shard(0), Shard(0), (Shard(0), Shard(0)), PARTIAL),  # tokens of one rank only
        (REPLICATE, REPLICATE, REPLICATE, (REPLICATE, REPLICATE), REPLICATE),
    ],
)
def test_the_gradient_of_a_table_lies_as_the_table(
    table: Placement, dy: Placement, ids: Placement, want: tuple[Placement, ...], result: Placement
) -> None:
    given = ask((dy, ids), ((2, 16, 64), (2, 16)), (128, 64), phase=Phase.BACKWARD, forward=(ids, table))
    assert answer_for("embedding_bwd", given) == Answer(want, (result,))


def test_an_index_into_a_dim_of_its_own_is_the_same_on_every_rank() -> None:
    # The gradient of `x[1]` goes back as entry 1 of a new dim, where the batch lay first in what was read.
    pytest.importorskip("torch")
    import torch
    from torch import Tensor, nn

    from slipstick.frontend.module import trace

    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(32, 16), nn.Linear(8, 32)

        def forward(self, ids: Tensor) -> Tensor:
            x = self.embed(ids)
            halves = x.reshape(*x.shape[:2], 2, 8).permute(2, 0, 1, 3)
            logits: Tensor = self.head(halves[0].sin() * halves[1])
            return logits

    lowered = lower(trace(Halves(), torch.zeros(2, 16, dtype=torch.int64)), Family()).graph
    calls = ((r, n.key, n.attrs) for r in lowered.regions for n in r.nodes if n.op == "pad")
    pads = [(region, made, attrs) for region, made, attrs in calls if isinstance(attrs, SliceAttrs)]
    assert {attrs.start for _, _, attrs in pads} == {0, 1}
    assert [region.by_id[made].placement(DP) for region, made, _ in pads] == [Shard(1)] * 2
