"""Gathers and scatters sharded by letters: what is handed on keeps its shard, what is looked up is made whole."""

from __future__ import annotations

import pytest

from slipstick.ir.graph import Node, Phase
from slipstick.ir.ops.base import OpCall
from slipstick.ir.ops.tensors.lookup import LookupAttrs
from slipstick.ir.placement import PARTIAL, REPLICATE, Placement, Shard
from slipstick.ir.sizes.expr import Dim, symbol
from slipstick.ir.types import DType, TensorType
from slipstick.passes.sharding.ask import Answer, Ask
from slipstick.passes.sharding.rules import answer_of
from slipstick.tests.passes.sharding.rules.answers import answer_for

Dims = tuple[Dim, ...]
MBS, DP, SEQ = symbol("mbs"), symbol("dp"), symbol("seq")
PACKED = Shard(2, packed=True)
R, P = REPLICATE, PARTIAL


def ask(
    op: str, attrs: LookupAttrs, given: tuple[Placement, ...], shapes: tuple[Dims, ...], phase: Phase, axis: str = "tp"
) -> Ask:
    *inputs, out = (TensorType(d, DType.BF16) for d in shapes)
    call = OpCall(op, attrs, tuple(inputs), (out,))
    return Ask(axis, call, given, (False,) * len(given), (REPLICATE,) * len(given), phase)


ROWS: tuple[Dims, ...] = ((2, 16, 64), (8,), (2, 16, 8))  # x[:, :, ids]
OWN: tuple[Dims, ...] = ((2, 16, 64), (2, 16, 8), (2, 16, 8))  # x.gather(-1, ids)
PUT: tuple[Dims, ...] = ((2, 16, 64), (8,), (2, 16, 8), (2, 16, 64))  # x[:, :, ids] = y


@pytest.mark.parametrize(
    ("spec", "shapes", "given", "answer"),
    [
        ("abc,d->abd", ROWS, (Shard(1), R), Answer((Shard(1), R), (Shard(1),))),  # a dim that is handed on
        ("abc,d->abd", ROWS, (Shard(2), R), Answer((R, R), (R,))),  # the dim that is looked up, whole
        ("abc,d->abd", ROWS, (R, Shard(0)), Answer((R, Shard(0)), (Shard(2),))),  # each rank its own ids
        ("abc,abd->abd", OWN, (Shard(0), R), Answer((Shard(0), Shard(0)), (Shard(0),))),  # rows with their own ids
        ("abc,abd->abd", OWN, (R, Shard(2)), Answer((R, Shard(2)), (Shard(2),))),
        ("abc,abd->abd", OWN, (PACKED, R), Answer((R, R), (R,))),
        ("abc->abd", ((2, 16, 64), (2, 16, 128)), (PACKED,), Answer((R,), (R,))),  # repeated along a sharded dim
        ("abc->adc", ((2, 16, 64), (2, 4, 64)), (PACKED,), Answer((PACKED,), (PACKED,))),
        ("", ROWS, (Shard(1), R), Answer((R, R), (R,))),  # nothing is known
        ("abc,d->abd", ROWS, (P, R), Answer((R, R), (R,))),  # forward, sums are completed first
    ],
)
def test_gather(spec: str, shapes: tuple[Dims, ...], given: tuple[Placement, ...], answer: Answer) -> None:
    assert answer_for("gather", ask("gather", LookupAttrs(spec), given, shapes, Phase.FORWARD)) == answer


@pytest.mark.parametrize(
    ("adds", "given", "answer"),
    [
        (False, (Shard(1), R, Shard(1)), Answer((Shard(1), R, Shard(1)), (Shard(1),))),
        (False, (R, R, Shard(1)), Answer((Shard(1), R, Shard(1)), (Shard(1),))),  # the base is cut, which is free
        (False, (Shard(2), R, R), Answer((Shard(2), R, R), (Shard(2),))),  # a rank takes what falls into its shard
        (False, (R, R, Shard(2)), Answer((R, R, R), (R,))),  # rows of other ranks are missing
        (True, (R, R, Shard(2)), Answer((P, Shard(0), Shard(2)), (P,))),  # each rank adds its own
        (True, (R, R, P), Answer((P, R, P), (P,))),
        (False, (P, R, R), Answer((P, R, P), (P,))),
        (True, (Shard(1), R, P), Answer((Shard(1), R, Shard(1)), (Shard(1),))),
    ],
)
def test_scatter(adds: bool, given: tuple[Placement, ...], answer: Answer) -> None:
    assert (
        answer_for("scatter", ask("scatter", LookupAttrs("abc,d,abd->abc", adds), given, PUT, Phase.BACKWARD)) == answer
    )


def test_counts_of_shards_add_up() -> None:
    counts = ask("gather", LookupAttrs("ab->c", adds=True), (Shard(0),), ((MBS * DP, 2), (8,)), Phase.FORWARD, "dp")
    assert answer_for("gather", counts) == Answer((Shard(0),), (P,))


@pytest.mark.parametrize("axis", ["dp", "fsdp", "ep"])
@pytest.mark.parametrize(
    ("spec", "shapes", "out"),
    [
        ("abc->dbc", ((MBS * symbol("A"), 16, 64), (2 * MBS * symbol("A"), 16, 64)), Shard(0)),  # samples repeated
        ("", ((MBS * symbol("A"), SEQ, 64), (SEQ, MBS * symbol("A"), 8)), Shard(1)),  # nothing is known
        ("ab->cb", ((MBS * symbol("A"), 64), (4, 64)), R),  # some samples of each replica
    ],
)
def test_what_has_no_rule_runs_per_replica(axis: str, spec: str, shapes: tuple[Dims, ...], out: Placement) -> None:
    """Over axes of data parallelism nothing of the batch is gathered; over the others all inputs are whole."""
    kinds = tuple(TensorType(d, DType.BF16).substitute({"A": symbol(axis)}).dims for d in shapes)
    node = Node("gather", (0,), (1,), LookupAttrs(spec))
    given = ask("gather", LookupAttrs(spec), (Shard(0),), kinds, Phase.FORWARD, axis)
    assert answer_of(node, given, replicate_unknown=False) == Answer((Shard(0),), (out,))
    other = ask("gather", LookupAttrs(spec), (Shard(0),), kinds, Phase.FORWARD, "tp")
    assert answer_of(node, other, replicate_unknown=False) == Answer((R,), (R,))


@pytest.mark.parametrize("op", ["gather", "scatter"])
def test_whole_inputs_give_whole_results(op: str) -> None:
    shapes: tuple[Dims, ...] = ((2, 16), (2, 16), (2, 16))
    assert answer_for(op, ask("op", LookupAttrs("ab,ab->ab"), (R, R), shapes, Phase.FORWARD)) == Answer((R, R), (R,))
