"""Where the letters of a matrix product may be sharded, and what becomes of the result."""

from __future__ import annotations

import pytest

from slipstick.ir.graph import Phase
from slipstick.ir.ops.base import OpCall
from slipstick.ir.ops.fused.experts import GroupedAttrs
from slipstick.ir.ops.tensors.matmul import MatmulAttrs
from slipstick.ir.placement import PARTIAL, REPLICATE, Placement, Shard
from slipstick.ir.types import DType, TensorType
from slipstick.passes.sharding.ask import Answer, Ask
from slipstick.tests.passes.sharding.rules.answers import answer_for

SIZES = {"a": 2, "b": 16, "c": 32, "d": 64}
LINEAR = "abc,dc->abd"


def ask(
    spec: str, *given: Placement, params: tuple[int, ...] = (1,), reduced: Placement = REPLICATE, bias: bool = False
) -> Ask:
    left, right, out = MatmulAttrs(spec).letters
    shapes = [left, right, *([out[-1]] if bias else [])]
    types = [TensorType(tuple(SIZES[c] for c in letters), DType.BF16) for letters in (*shapes, out)]
    call = OpCall("matmul", MatmulAttrs(spec), tuple(types[:-1]), (types[-1],))
    is_param = tuple(i in params for i in range(len(given)))
    return Ask("tp", call, given, is_param, (reduced,) * len(given), Phase.FORWARD)


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (Shard(0), REPLICATE, Shard(0)),  # batch
        (Shard(1), REPLICATE, Shard(1)),  # sequence
        (REPLICATE, Shard(0), Shard(2)),  # column-parallel
        (REPLICATE, REPLICATE, REPLICATE),
    ],
)
def test_a_letter_of_the_result_shards_it(left: Placement, right: Placement, result: Placement) -> None:
    assert answer_for("matmul", ask(LINEAR, left, right)) == Answer((left, right), (result,))


@pytest.mark.parametrize(("left", "right"), [(Shard(2), Shard(1)), (REPLICATE, Shard(1)), (Shard(2), REPLICATE)])
def test_a_contracted_letter_makes_a_partial_sum_and_shards_both_operands(left: Placement, right: Placement) -> None:
    assert answer_for("matmul", ask(LINEAR, left, right)) == Answer((Shard(2), Shard(1)), (PARTIAL,))


@pytest.mark.parametrize(
    ("dims", "along", "lies"),
    [("d", 2, Shard(0)), ("d", 0, REPLICATE), ("abd", 0, Shard(0)), ("abd", 1, Shard(1)), ("bd", 1, Shard(0))],
)
def test_a_bias_has_the_last_dims_of_the_result(dims: str, along: int, lies: Placement) -> None:
    # A mask that is added to scores, [batch x heads, queries, keys], is split as they are.
    types = [TensorType(tuple(SIZES[c] for c in letters), DType.BF16) for letters in ("abc", "adc", dims, "abd")]
    call = OpCall("matmul", MatmulAttrs("abc,adc->abd"), tuple(types[:-1]), (types[-1],))
    given = (Shard(along) if along < 2 else REPLICATE, Shard(1) if along == 2 else REPLICATE, REPLICATE)
    found = answer_for("matmul", Ask("tp", call, given, (False,) * 3, (REPLICATE,) * 3, Phase.FORWARD))
    assert (found.inputs[2], found.outputs) == (lies, (Shard(along),))


def test_of_two_letters_the_parameter_keeps_its_own() -> None:
    # Sequence against columns: the activation is gathered, as before a column-parallel layer.
    assert answer_for("matmul", ask(LINEAR, Shard(1), Shard(0))) == Answer((REPLICATE, Shard(0)), (Shard(2),))


def test_of_two_letters_of_activations_the_one_that_survives_stays() -> None:
    # A weight gradient [d, c]: tokens (b) are contracted, columns (d) survive, so x is gathered.
    spec = "abd,abc->dc"
    assert answer_for("matmul", ask(spec, Shard(2), Shard(1), params=())) == Answer((Shard(2), REPLICATE), (Shard(0),))
    assert answer_for("matmul", ask(spec, Shard(1), Shard(2), params=())) == Answer((REPLICATE, Shard(2)), (Shard(1),))


def test_tokens_sharded_on_both_sides_make_a_weight_gradient_partial() -> None:
    spec = "abd,abc->dc"
    for dim in (0, 1):
        assert answer_for("matmul", ask(spec, Shard(dim), Shard(dim), params=())) == Answer(
            (Shard(dim), Shard(dim)), (PARTIAL,)
        )


def test_a_partial_operand_is_made_whole_first() -> None:
    assert answer_for("matmul", ask(LINEAR, PARTIAL, REPLICATE)).inputs[0] == REPLICATE
    assert answer_for("matmul", ask(LINEAR, PARTIAL, REPLICATE, reduced=Shard(1))).inputs[0] == Shard(1)


def test_packed_columns_make_packed_results() -> None:
    packed = Shard(0, packed=True)
    assert answer_for("matmul", ask(LINEAR, REPLICATE, packed)).outputs == (Shard(2, packed=True),)


def test_a_bias_is_split_with_the_columns_and_only_then() -> None:
    columns = answer_for("matmul", ask(LINEAR, REPLICATE, Shard(0), Shard(0), bias=True, params=(1, 2)))
    assert columns == Answer((REPLICATE, Shard(0), Shard(0)), (Shard(2),))
    tokens = answer_for("matmul", ask(LINEAR, Shard(1), REPLICATE, REPLICATE, bias=True, params=(1, 2)))
    assert tokens == Answer((Shard(1), REPLICATE, REPLICATE), (Shard(1),))


def test_a_bias_joins_a_partial_sum_once() -> None:
    rows = answer_for("matmul", ask(LINEAR, Shard(2), Shard(1), REPLICATE, bias=True, params=(1, 2)))
    # A bias on every rank would be added as often as there are ranks.
    assert rows == Answer((Shard(2), Shard(1), PARTIAL), (PARTIAL,))


@pytest.mark.parametrize(
    ("left", "right", "want", "result"),
    [
        (Shard(0), REPLICATE, (Shard(0), REPLICATE), Shard(0)),  # rows
        (REPLICATE, Shard(2), (REPLICATE, Shard(2)), Shard(1)),  # columns of every group
        (Shard(1), Shard(1), (Shard(1), Shard(1)), PARTIAL),  # the inner dim
        (REPLICATE, REPLICATE, (REPLICATE, REPLICATE), REPLICATE),
    ],
)
def test_groups_of_rows(
    left: Placement, right: Placement, want: tuple[Placement, Placement], result: Placement
) -> None:
    rows, weights, out = (TensorType(dims, DType.BF16) for dims in ((16, 32), (4, 32, 64), (16, 64)))
    call = OpCall("grouped_matmul", GroupedAttrs(), (rows, weights), (out,))
    given = Ask("tp", call, (left, right), (False, True), (REPLICATE, REPLICATE), Phase.FORWARD)
    assert answer_for("grouped_matmul", given) == Answer(want, (result,))
