"""Pointwise ops: operands lie alike, and partial sums stay partial only where that is right and wanted."""

from __future__ import annotations

import pytest

from slipstick.ir.graph import NO_ATTRS, Phase
from slipstick.ir.ops.base import Attrs, OpCall
from slipstick.ir.ops.tensors.pointwise import ElementwiseAttrs, FillAttrs
from slipstick.ir.placement import PARTIAL, REPLICATE, Placement, Shard
from slipstick.ir.sizes.expr import Dim, symbol
from slipstick.ir.types import DType, TensorType
from slipstick.passes.sharding.ask import Answer, Ask, makes_own_samples
from slipstick.tests.passes.sharding.rules.answers import answer_for

X: tuple[Dim, ...] = (2, 16, 32)
FORWARD, BACKWARD = Phase.FORWARD, Phase.BACKWARD


def ask(
    fns: tuple[str, ...], *given: Placement, dims: tuple[tuple[Dim, ...], ...] = (), phase: Phase = FORWARD,
    reduced: Placement = REPLICATE, params: tuple[int, ...] = (),
) -> Ask:  # fmt: skip
    shapes = dims or (X,) * len(given)
    return make(ElementwiseAttrs(fns), given, shapes, X, phase, reduced, params)


def make(
    attrs: Attrs, given: tuple[Placement, ...], shapes: tuple[tuple[Dim, ...], ...], out: tuple[Dim, ...],
    phase: Phase = FORWARD, reduced: Placement = REPLICATE, params: tuple[int, ...] = (),
) -> Ask:  # fmt: skip
    call = OpCall("op", attrs, tuple(TensorType(d, DType.BF16) for d in shapes), (TensorType(out, DType.BF16),))
    is_param = tuple(i in params for i in range(len(given)))
    return Ask("tp", call, given, is_param, (reduced,) * len(given), phase)


def test_operands_lie_as_the_sharded_one() -> None:
    assert answer_for("elementwise", ask(("add",), REPLICATE, Shard(1))) == Answer((Shard(1), Shard(1)), (Shard(1),))


def test_a_broadcast_operand_follows_where_it_has_the_dim() -> None:
    bias: tuple[Dim, ...] = (32,)
    row: tuple[Dim, ...] = (2, 16, 1)
    assert answer_for("elementwise", ask(("add",), Shard(1), REPLICATE, dims=(X, bias))).inputs == (Shard(1), REPLICATE)
    assert answer_for("elementwise", ask(("add",), Shard(2), REPLICATE, dims=(X, bias))).inputs == (Shard(2), Shard(0))
    assert answer_for("elementwise", ask(("mul",), Shard(1), REPLICATE, dims=(X, row))).inputs == (Shard(1), Shard(1))
    assert answer_for("elementwise", ask(("mul",), Shard(2), REPLICATE, dims=(X, row))).inputs == (Shard(2), REPLICATE)


def test_of_two_sharded_operands_the_widest_leads_and_an_activation_before_a_parameter() -> None:
    # Sharded over different dims, one must move: never the activation for a parameter's sake.
    assert answer_for("elementwise", ask(("mul",), Shard(2), Shard(1), params=(0,))).outputs == (Shard(1),)
    assert answer_for("elementwise", ask(("mul",), Shard(1), Shard(0), dims=(X, (32,)))).outputs == (Shard(1),)


def test_forward_a_partial_sum_meeting_something_whole_is_reduced() -> None:
    # The residual stream: one reduction behind each row-parallel layer.
    assert answer_for("elementwise", ask(("add",), REPLICATE, PARTIAL)) == Answer((REPLICATE, REPLICATE), (REPLICATE,))


def test_under_sequence_parallelism_it_is_reduced_into_shards() -> None:
    answer = answer_for("elementwise", ask(("add",), Shard(1), PARTIAL, reduced=Shard(1)))
    assert answer == Answer((Shard(1), Shard(1)), (Shard(1),))


def test_backward_the_whole_operand_joins_the_sum() -> None:
    # Gradients are reduced once, when all are added.
    answer = answer_for("elementwise", ask(("add",), REPLICATE, PARTIAL, phase=BACKWARD))
    assert answer == Answer((PARTIAL, PARTIAL), (PARTIAL,))


def test_backward_a_partial_sum_meeting_a_shard_is_reduced_into_it() -> None:
    answer = answer_for("elementwise", ask(("add",), Shard(1), PARTIAL, phase=BACKWARD, reduced=Shard(1)))
    assert answer == Answer((Shard(1), Shard(1)), (Shard(1),))


@pytest.mark.parametrize("phase", [FORWARD, BACKWARD])
@pytest.mark.parametrize("fns", [("add",), ("sub",), ("neg",), ("add", "neg")])
def test_sums_of_partial_sums_are_partial(fns: tuple[str, ...], phase: Phase) -> None:
    assert answer_for("elementwise", ask(fns, PARTIAL, PARTIAL, phase=phase)).outputs == (PARTIAL,)


@pytest.mark.parametrize("fns", [("mul",), ("div",), ("dropout_bwd",), ("mul", "cast")])
def test_a_scaled_partial_sum_is_partial(fns: tuple[str, ...]) -> None:
    assert answer_for("elementwise", ask(fns, PARTIAL, REPLICATE)) == Answer((PARTIAL, REPLICATE), (PARTIAL,))


@pytest.mark.parametrize(
    "fns",
    [("silu",), ("exp",), ("add", "silu"), ("pow",), ("square",), ("reciprocal",), ("remainder",), ("floor_div",)],
)
def test_what_is_not_linear_needs_the_whole_sum(fns: tuple[str, ...]) -> None:
    assert answer_for("elementwise", ask(fns, PARTIAL, phase=BACKWARD)) == Answer((REPLICATE,), (REPLICATE,))


def test_a_product_of_two_partial_sums_is_not_a_partial_sum() -> None:
    assert answer_for("elementwise", ask(("mul",), PARTIAL, PARTIAL)) == Answer((REPLICATE, REPLICATE), (REPLICATE,))


def test_one_over_a_partial_sum_is_not_a_partial_sum() -> None:
    assert answer_for("elementwise", ask(("div",), REPLICATE, PARTIAL)) == Answer((REPLICATE, REPLICATE), (REPLICATE,))


def test_casts_reduce_forward_and_keep_partial_sums_backward() -> None:
    assert answer_for("cast", make(NO_ATTRS, (PARTIAL,), (X,), X)).outputs == (REPLICATE,)
    assert answer_for("cast", make(NO_ATTRS, (PARTIAL,), (X,), X, BACKWARD)).outputs == (PARTIAL,)
    assert answer_for("cast", make(NO_ATTRS, (Shard(2),), (X,), X)).outputs == (Shard(2),)


@pytest.mark.parametrize(
    ("dims", "given", "made", "reduced_first"),
    [
        ((symbol("mbs"), 16), DType.BF16, DType.FP32, True),  # a message of 2 bytes an element, not of 4
        ((symbol("mbs"), 16), DType.FP32, DType.BF16, False),  # narrowed while partial, then reduced in 2 bytes
        ((16, 16), DType.BF16, DType.FP32, False),  # a parameter's gradient, which is reduced once a step
    ],
)
def test_activations_are_reduced_in_the_narrowest_type_on_their_way(
    dims: tuple[Dim, ...], given: DType, made: DType, reduced_first: bool
) -> None:
    def asked(op: str, attrs: Attrs, *lie: Placement) -> Ask:
        wide = TensorType((), made)
        call = OpCall(op, attrs, (TensorType(dims, given), wide)[: len(lie)], (TensorType(dims, made),))
        return Ask("tp", call, lie, (False,) * len(lie), (REPLICATE,) * len(lie), BACKWARD)

    want = REPLICATE if reduced_first else PARTIAL
    assert answer_for("cast", asked("cast", NO_ATTRS, PARTIAL)) == Answer((want,), (want,))
    scaled = answer_for("elementwise", asked("elementwise", ElementwiseAttrs(("mul",)), PARTIAL, REPLICATE))
    assert scaled == Answer((want, REPLICATE), (want,))


def test_a_copy_into_another_shape_needs_the_whole() -> None:
    assert answer_for("cast", make(NO_ATTRS, (Shard(0),), (X,), (1024,))) == Answer((REPLICATE,), (REPLICATE,))


def test_rope_by_heads_needs_no_part_of_its_tables_and_by_sequence_its_own() -> None:
    x, table = (2, 4, 16, 8), (1, 1, 16, 8)
    given = (Shard(1), REPLICATE, REPLICATE)
    assert answer_for("rope", make(NO_ATTRS, given, (x, table, table), x)) == Answer(given, (Shard(1),))
    given = (Shard(2), REPLICATE, REPLICATE)
    assert answer_for("rope", make(NO_ATTRS, given, (x, table, table), x)) == Answer((Shard(2),) * 3, (Shard(2),))
    given = (Shard(3), REPLICATE, REPLICATE)
    assert answer_for("rope", make(NO_ATTRS, given, (x, table, table), x)).outputs == (REPLICATE,)


def test_a_fill_is_made_in_shards_of_the_batch() -> None:
    def made(*dims: Dim) -> Placement:
        out = TensorType(dims, DType.FP32)
        call = OpCall("fill", FillAttrs("zeros"), (), (out,))
        ask = Ask("dp", call, (), (), (), FORWARD)
        return makes_own_samples(ask, answer_for("fill", ask)).outputs[0]

    assert made(symbol("mbs") * symbol("dp"), 4) == Shard(0)
    assert made(symbol("seq"), 4) == REPLICATE


@pytest.mark.parametrize("p", [PARTIAL, REPLICATE, Shard(0)])
def test_a_running_sum_lies_as_the_gradient(p: Placement) -> None:
    assert answer_for("accumulate", make(NO_ATTRS, (p,), (X,), X, BACKWARD)) == Answer((p,), (p,))
