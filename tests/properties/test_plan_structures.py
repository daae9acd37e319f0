"""A family either has the structure of a plan's degrees, and the estimate of the derived one, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import Lowered, estimate, evaluate, lower, screen
from slipstick.ir.errors import PlanError, SlipstickError
from slipstick.ir.graph import Graph
from slipstick.ir.plan import CP_METHODS, Family, Plan, PlanNumbers, PlanTable, make_plan
from slipstick.ir.plan.structure import RULES, Defaults, check_axes

DEGREES = {
    "tp": st.sampled_from([1, 2, 4]), "cp": st.sampled_from([1, 2, 4]), "pp": st.sampled_from([1, 2]),
    "ep": st.sampled_from([1, 2, 4]), "cp_ulysses": st.sampled_from([1, 1, 2]), "dp": st.sampled_from([4, 8]),
    "dp_shard": st.sampled_from([1, 1, 2]), "expert_imbalance": st.sampled_from([1.0, 1.0, 1.5]),
}  # fmt: skip
STRUCTURES = {
    "cp": st.sampled_from(["none", *CP_METHODS]), "usp": st.booleans(), "ep": st.booleans(), "pp": st.booleans(),
    "hsdp": st.booleans(), "imbalance": st.booleans(), "etp": st.sampled_from([True, True, False]),
    "sp": st.booleans(), "zero": st.sampled_from([0, 1, 3]),
}  # fmt: skip


class Lowerings:
    """One graph lowered once a family, and a machine."""

    def __init__(self, graph: Graph) -> None:
        self.system = load_system("dgx-h100")
        self._of = cache(lambda family: lower(graph, family))

    def __call__(self, family: Family) -> Lowered:
        return self._of(family)


@pytest.fixture(scope="module")
def lowered(traced: Callable[[str], Graph]) -> Lowerings:
    return Lowerings(traced("tiny-mixtral.train"))


def planned(degrees: dict[str, float], family: Family | None, like: Family) -> Plan:
    """A plan of one family, or of the one that its degrees make with the policy and the words of another."""
    of = {name: int(number) for name, number in degrees.items() if name != "expert_imbalance"}
    gpus = of["tp"] * of["cp"] * of["pp"] * of["dp"]
    words = {"num_gpus": gpus, "seq_len": 64, "global_batch": 4 * of["dp"], **of}
    load = degrees["expert_imbalance"]
    if family is not None:
        return make_plan(family=family, expert_imbalance=load, **words)  # pyright: ignore[reportArgumentType]
    left_open = Defaults(
        policy=like, cp_method="allgather" if like.cp == "none" else like.cp, sp=like.sp, kernels=like.kernels
    )
    derived = left_open.family(PlanNumbers(
        seq_len=64, tp=of["tp"], pp=of["pp"], cp=of["cp"], ep=of["ep"], etp=None if like.etp else 1,
        cp_ulysses=of["cp_ulysses"], dp_shard=of["dp_shard"] if like.hsdp or of["dp_shard"] > 1 else None,
        expert_imbalance=load,
    ))  # fmt: skip
    return make_plan(family=derived, expert_imbalance=load, **words)  # pyright: ignore[reportArgumentType]


@settings(max_examples=60, deadline=None)
@given(st.fixed_dictionaries(DEGREES), st.fixed_dictionaries(STRUCTURES))
def test_a_structure_is_that_of_the_degrees_or_refused(
    lowered: Lowerings, degrees: dict[str, float], structure: dict[str, object]
) -> None:
    """A shard group of one (`--dp-shard 1`) is a choice; other structure without a use is priced as none, or told.

    A family that contradicts itself is refused for that first.
    """
    family = Family(**structure)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    lacking = [rule.spelling for rule in RULES if degrees[rule.degree] > 1 and not rule.has(family)]
    try:
        right = planned(degrees, None, family)
        source = lowered(right.family).source
        wanted = estimate(source, lowered.system, right, lowered=lowered(right.family)).metrics
    except SlipstickError:
        assume(False)
        return
    try:
        plan = planned(degrees, family, family)
        # What is given is what the words of the plan make, worked out anew.
        assert replace(plan).family == replace(family, tp=plan.family.tp)
        found = estimate(source, lowered.system, plan, lowered=lowered(plan.family))
    except SlipstickError as error:
        refusal = str(error)
    else:
        assert lacking == []
        if not any("degrees that have no use for it" in line for line in found.warnings):
            assert dict(found.metrics) == pytest.approx(dict(wanted), rel=1e-9)
        return
    if "no rows travel" in refusal:
        assert family.imbalance
        assert not family.ep
        return
    # What is lacking is said as it is to be written, in words of a family or of flags.
    assert not lacking or any(
        words in refusal for words in (*lacking, "--cp-method ring or allgather", "use Family(")
    ), refusal


@pytest.mark.parametrize("axis", ["cp", "up", "ep", "pp", "fsdp"])
def test_no_table_is_priced_by_a_graph_without_its_axis(lowered: Lowerings, axis: str) -> None:
    degree = {"up": "cp_ulysses", "fsdp": "dp_shard"}.get(axis, axis)
    whole = Family(cp="ring", usp=axis == "up", ep=True, pp=True, hsdp=axis == "fsdp", zero=1)
    given = {degree: 2, **({"cp": 2} if axis == "up" else {})}
    plan = make_plan(num_gpus=8, seq_len=64, family=whole, **given)
    assert plan.mesh[axis] == 2
    bare = lowered(Family(zero=1))
    for ask in (evaluate, screen):
        with pytest.raises(PlanError, match=rf"plans have .*{axis}=2.*lower\(graph, plan\.family\)"):
            ask(bare, lowered.system, PlanTable.of([plan]))
    with pytest.raises(PlanError, match=rf"plans have .*{axis}=2"):
        estimate(bare.source, lowered.system, plan, lowered=bare)
    without = replace(whole, cp="none", usp=False, ep=False, pp=False, hsdp=False)
    for make in (lambda: plan.under(without), lambda: replace(PlanTable.of([plan]), family=without)):
        with pytest.raises(PlanError, match=rf"{degree}=2.* (use Family\(.*or Defaults|lies inside --cp-method)"):
            make()


def test_axes_of_degree_one_need_not_be_there(lowered: Lowerings) -> None:
    table = PlanTable.of([make_plan(num_gpus=n, tp=n, seq_len=64, family=Family()) for n in (1, 2)])
    check_axes(lowered(Family()).graph.axes, table.mesh)
    assert table.mesh == {"tp": 2, "up": 1, "cp": 1, "ep": 1, "fsdp": 1, "dp": 1, "pp": 1}
    assert len(table.part(np.array([], dtype=np.intp))) == 0
