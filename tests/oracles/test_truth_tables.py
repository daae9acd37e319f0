"""No sharding rule promises what is not so, and the index maps of the proof are the ops' own: run on 2 and 3 ranks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

from slipstick.ir.ops import OPS as ALL
from slipstick.ir.ops import Trait, index_map_of, op_def
from slipstick.ir.ops.index_map import PlacementEntry, name_of
from slipstick.ir.placement import PARTIAL, REPLICATE, Shard
from slipstick.passes.sharding.rules import rule_of

from .truth.cases import CASES
from .truth.table import Row, holds, row

pytestmark = pytest.mark.oracle
OPS = tuple(dict.fromkeys(c.op for c in CASES))
# Ops with a rule and no case: what they do is not said by the op (a user's own run whole), or there is nothing to do.
NO_CASE = {"unpriced", "custom", "fill"}
GOLDEN = Path(__file__).parent / "truth" / "missing.txt"


@cache
def rows(op: str) -> dict[str, Row]:
    """All tables of an op, by case and axis."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return {f"{c.op} | {c.name} | {axis}": row(c, axis) for c in CASES if c.op == op for axis in c.axes}
    finally:
        torch.set_num_threads(before)


def entries(op: str, kind: str) -> Iterator[str]:
    """What was found of a kind, as lines."""
    for name, found in rows(op).items():
        yield from (f"{name} | {entry}" for entry in sorted(getattr(found, kind)))


def test_every_rule_has_a_case() -> None:
    assert set(filter(rule_of, ALL)) - set(OPS) == NO_CASE


@pytest.mark.parametrize("op", OPS)
def test_no_rule_promises_what_is_not_so(op: str) -> None:
    assert list(entries(op, "wrong")) == []
    assert all(found.right for found in rows(op).values())


def test_index_maps_that_differ_between_axes_say_so() -> None:
    axes = ("tp", "up", "cp", "ep", "fsdp", "dp")
    rules = [(c, rule) for c in CASES if (rule := op_def(c.op).index_map) is not None and not op_def(c.op).by_axis]
    assert [c.name for c, rule in rules if len({rule(c.call, axis) for axis in axes}) > 1] == []


def test_a_gradient_without_a_factor_of_the_one_it_is_made_of_is_a_sum_over_it() -> None:
    """Also where ranks read positions of a neighbour, of which there is no truth table."""
    wrong = []
    for c in (c for c in CASES if Trait.BACKWARD in op_def(c.op).traits):
        for axis in ("tp", "cp", "dp"):
            index_map = index_map_of(c.call, axis)
            assert index_map is not None
            given = {name_of(f) for dim in index_map.inputs[0] for f in dim}
            wrong += [f"{c.name} {axis}: {f} of output {k}" for f, k in index_map.same if f in given]
    assert wrong == []


@pytest.mark.parametrize("op", OPS)
def test_index_maps_are_true_and_hold_all_that_rules_say(op: str) -> None:
    """Written without the rules, they must agree with the op's numbers, and know every true answer of a rule."""
    assert op_def(op).index_map is not None
    assert list(entries(op, "false_laws")) == []
    assert list(entries(op, "unlawful")) == []


def test_what_rules_give_up_does_not_grow(request: pytest.FixtureRequest) -> None:
    """Entries that would be right as inputs lie, where the rule asks for another placement."""
    text = "\n".join(line for op in OPS for line in entries(op, "missing")) + "\n"
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_a_wrong_entry_is_found() -> None:
    """The table is no rubber stamp: a softmax of summands, a sum that is said to be whole, a block for a packed dim."""
    cases = {c.name: c for c in CASES}
    wrong = [
        ("softmax", PlacementEntry((PARTIAL,), (PARTIAL,))),
        ("sum of columns", PlacementEntry((Shard(2),), (REPLICATE,))),
        ("linear", PlacementEntry((Shard(2), Shard(1)), (REPLICATE,))),
        ("slice of halves", PlacementEntry((Shard(2),), (Shard(2),))),
        ("causal", PlacementEntry((Shard(2), Shard(2), Shard(2)), (Shard(1), Shard(2)))),
        ("rms back", PlacementEntry((Shard(0), Shard(0), Shard(0), REPLICATE), (Shard(0), REPLICATE))),
    ]
    for name, entry in wrong:
        assert not holds(cases[name], entry, "tp", 2), f"{name}: {entry}"
