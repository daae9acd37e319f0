"""Traits of ops: what each answers is true of the ops that declare it, by their own type rules and names."""

import pytest

from slipstick.ir.graph import Node
from slipstick.ir.ops import OPS, OpClass, Trait, has
from slipstick.ir.ops.base import OpDef


def with_trait(trait: Trait) -> list[OpDef]:
    return [op for op in OPS.values() if trait in op.traits]


@pytest.mark.parametrize("trait", Trait)
def test_every_trait_has_an_op(trait: Trait) -> None:
    assert with_trait(trait)


def test_no_trait_is_called_as_a_class_is() -> None:
    """Both are asked for by `has`, and strings of one spelling are equal."""
    assert not {str(t) for t in Trait} & {str(c) for c in OpClass}


@pytest.mark.parametrize("op", [n for n in OPS if n.endswith("_bwd")])
def test_a_backward_op_has_the_class_and_the_traits_of_its_forward_op(op: str) -> None:
    forward, backward = OPS[op.removesuffix("_bwd")], OPS[op]
    assert backward.kind is forward.kind
    assert backward.traits == forward.traits - {Trait.READS_TABLE} | {Trait.BACKWARD}


def test_nothing_else_is_a_backward_op() -> None:
    assert {op.name for op in with_trait(Trait.BACKWARD)} == {n for n in OPS if n.endswith("_bwd")}


@pytest.mark.parametrize("op", with_trait(Trait.VIEW), ids=lambda op: op.name)
def test_a_view_costs_nothing(op: OpDef) -> None:
    assert op.kind is OpClass.FREE


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (Trait.CASTS, Trait.SAME_VALUES),
        (Trait.COPIES, Trait.SAME_VALUES),
        (Trait.QUANTISES, Trait.SAME_VALUES),
        (Trait.RENAMES, Trait.SAME_VALUES),
        (Trait.RESHAPES, Trait.VIEW),
        (Trait.PERMUTES, Trait.VIEW),
        (Trait.EXPANDS, Trait.VIEW),
        (Trait.TAKES_RANGE, Trait.VIEW),
        (Trait.ROUTES, Trait.HOLDS_EXPERTS),
        (Trait.BANK, Trait.HOLDS_EXPERTS),
        (Trait.APPENDS, Trait.WRITES_CACHE),
        (Trait.SCATTERS, Trait.SUMS),
        (Trait.SUMS_EVERYWHERE, Trait.SUMS),
    ],
)
def test_what_has_the_narrow_trait_has_the_wide_one(narrow: Trait, wide: Trait) -> None:
    assert all(wide in op.traits for op in with_trait(narrow))


COLLECTIVES = (
    Trait.GATHERS, Trait.SUMS, Trait.SCATTERS, Trait.RING, Trait.EXCHANGES, Trait.SENDS, Trait.RECEIVES,
)  # fmt: skip


@pytest.mark.parametrize("trait", COLLECTIVES)
def test_what_is_asked_of_collectives_no_other_op_answers(trait: Trait) -> None:
    assert {op.kind for op in with_trait(trait)} == {OpClass.COMMUNICATION}


def test_an_op_is_asked_for_a_class_a_trait_or_a_direction() -> None:
    forward, backward = Node("attention", (0, 1, 2), (3, 4)), Node("attention_bwd", (0, 1, 2, 3, 4, 5), (6, 7, 8))
    for node, is_backward in ((forward, False), (backward, True)):
        assert has(node, OpClass.ATTENTION)
        assert has(node, Trait.SOFTMAX, Trait.ATTENDS)
        assert not has(node, Trait.SOFTMAX)
        assert has(node, Trait.ATTENDS, backward=True) is is_backward
        assert has(node, Trait.ATTENDS, backward=False) is not is_backward
