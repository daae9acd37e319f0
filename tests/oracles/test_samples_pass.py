"""Samples that an op only hands on stay where they are: where numbers say so, rules over data parallelism do too."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from slipstick.ir.graph import Node, Phase
from slipstick.ir.ops import OpCall
from slipstick.ir.ops.index_map import PlacementEntry
from slipstick.ir.placement import PARTIAL, REPLICATE, Placement, Shard
from slipstick.ir.sizes.expr import Dim, symbol
from slipstick.ir.types import TensorType
from slipstick.passes.sharding.ask import Ask
from slipstick.passes.sharding.rules import answer_of

from .truth.cases import CASES
from .truth.table import Case, fits, holds

pytestmark = pytest.mark.oracle
SAMPLES = symbol("mbs") * symbol("dp")
HAVE_DP = [c for c in CASES if "dp" in c.axes and c.inputs]


def first(case: Case) -> int:
    """The size of the dim of samples: the first of the first input that is no parameter."""
    return next((d[0] for i, d in enumerate(case.inputs) if i not in case.params and d), 0)


def lies(case: Case) -> PlacementEntry:
    """Every sample with its replica; a result that has none is what a replica adds to a sum."""
    size = first(case)
    of: dict[bool, Placement] = {True: Shard(0), False: REPLICATE}
    given = tuple(of[i not in case.params and bool(d) and d[0] == size] for i, d in enumerate(case.inputs))
    return PlacementEntry(given, tuple(Shard(0) if d and d[0] == size else PARTIAL for d in case.outputs))


@cache
def is_handed_on(case: Case) -> bool:
    """Whether ranks that have some of the samples make together what one rank makes of all."""
    torch.set_num_threads(1)
    entry = lies(case)
    try:
        return all(fits(case, entry, n) and holds(case, entry, "dp", n) for n in (2, 3))
    except KeyError:  # a parameter of as many rows as there are samples, which was cut with them
        return False


def kinds(
    dims: tuple[tuple[int, ...], ...], types: tuple[TensorType, ...], lain: tuple[Placement, ...]
) -> list[TensorType]:
    """The types with the samples of all replicas as their first dim."""
    found = []
    for shape, kind, p in zip(dims, types, lain, strict=True):
        opened: tuple[Dim, ...] = (SAMPLES, *shape[1:]) if isinstance(p, Shard) else shape
        found.append(kind.with_dims(opened))
    return found


@pytest.mark.parametrize("case", HAVE_DP, ids=lambda c: f"{c.op}: {c.name}")
def test_a_rule_hands_on_what_numbers_hand_on(case: Case) -> None:
    if not is_handed_on(case):
        pytest.skip("samples meet one another")
    entry = lies(case)
    inputs = kinds(case.inputs, case.call.inputs, entry.inputs)
    outputs = kinds(case.outputs, case.call.outputs, entry.outputs)
    call = OpCall(case.op, case.attrs, tuple(inputs), tuple(outputs))
    node = Node(case.op, tuple(range(len(inputs))), tuple(range(len(inputs), len(inputs) + len(outputs))), case.attrs)
    for phase in case.phases:
        forward = next((f for f in case.forward if f and f[0] in (Shard(0), REPLICATE)), ())
        ask = Ask(
            "dp", call, entry.inputs, tuple(i in case.params for i in range(len(inputs))),
            (REPLICATE,) * len(inputs), phase, forward,
        )  # fmt: skip
        found = answer_of(node, ask, replicate_unknown=False)
        assert found.inputs == entry.inputs
        sharded = [
            (have, want) for have, want in zip(found.outputs, entry.outputs, strict=True) if isinstance(want, Shard)
        ]
        assert all(have == want for have, want in sharded)
        assert phase is Phase.FORWARD or found.outputs == entry.outputs


def test_most_cases_hand_samples_on() -> None:
    """What is left: samples flattened or transposed, rows of experts, and weights of as many rows as samples."""
    assert sum(map(is_handed_on, HAVE_DP)) >= 0.8 * len(HAVE_DP)
