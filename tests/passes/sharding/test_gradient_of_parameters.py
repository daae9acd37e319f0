"""Gradients of what is made of parameters alone are reduced once a step: linear functions keep them partial."""

from __future__ import annotations

import pytest

from slipstick.ir.graph import Phase
from slipstick.ir.ops.base import OpCall
from slipstick.ir.ops.tensors.pointwise import ElementwiseAttrs
from slipstick.ir.placement import PARTIAL, REPLICATE, Placement
from slipstick.ir.sizes.expr import Dim, symbol
from slipstick.ir.types import DType, TensorType
from slipstick.passes.sharding.ask import Answer, Ask
from slipstick.tests.passes.sharding.rules.answers import answer_for

P, R = PARTIAL, REPLICATE
Given = tuple[Placement, ...]
TABLE: tuple[Dim, ...] = (1, 16, symbol("seq"), symbol("seq"))


def ask(fn: str, given: Given, axis: str, dims: tuple[Dim, ...], phase: Phase = Phase.BACKWARD) -> Ask:
    condition = TensorType(dims, DType.BOOL)
    kinds = [TensorType(dims, DType.BF16)] * len(given)
    inputs = (condition, *kinds[1:]) if fn == "where" else tuple(kinds)
    call = OpCall("elementwise", ElementwiseAttrs((fn,)), inputs, (TensorType(dims, DType.BF16),))
    return Ask(axis, call, given, (False,) * len(given), (R,) * len(given), phase)


@pytest.mark.parametrize(("axis", "dims"), [("dp", (8,)), ("fsdp", (8,)), ("tp", (8,)), ("dp", TABLE)])
@pytest.mark.parametrize(
    ("fn", "given", "needs"),
    [
        ("softplus_bwd", (P, R), (P, R)),  # grad * sigmoid(x): linear in the gradient
        ("tanh_bwd", (P, R), (P, R)),
        ("mul", (R, P), (R, P)),  # a factor that is whole
        ("where", (R, P, R), (R, P, P)),  # the other choice is one rank's part of the sum
    ],
)
def test_linear_functions_keep_a_sum_partial(
    fn: str, given: Given, needs: Given, axis: str, dims: tuple[Dim, ...]
) -> None:
    assert answer_for("elementwise", ask(fn, given, axis, dims)) == Answer(needs, (P,))


@pytest.mark.parametrize(
    ("fn", "given"),
    [
        ("softplus", (P,)),  # not linear
        ("mul", (P, P)),  # a product of sums is no sum of products
        ("softplus_bwd", (R, P)),  # linear in the gradient alone
        ("where", (P, R, R)),  # a condition is no summand
    ],
)
def test_others_read_whole_sums(fn: str, given: Given) -> None:
    assert answer_for("elementwise", ask(fn, given, "dp", (8,))) == Answer((R,) * len(given), (R,))


def test_gradients_of_tokens_over_tp_are_completed_where_they_were() -> None:
    tokens: tuple[Dim, ...] = (symbol("mbs"), symbol("seq"), 64)
    assert answer_for("elementwise", ask("gelu_bwd", (P, R), "tp", tokens)) == Answer((R, R), (R,))
    assert answer_for("elementwise", ask("softplus_bwd", (P, R), "dp", (8,), Phase.FORWARD)) == Answer((R, R), (R,))
