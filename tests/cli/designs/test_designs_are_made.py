"""What `slipstick design` writes, `slipstick cost` prices; what it refuses as a package, cost refuses."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.load import read_system
from slipstick.backends.prices.book import USUAL
from slipstick.backends.technology.d2d import JOINS
from slipstick.backends.technology.data import load_technology, scaling_names
from slipstick.backends.technology.design import Budget, Design, design
from slipstick.backends.technology.files.chip_file import system_text
from slipstick.backends.technology.files.package_file import JOINTS, Joint
from slipstick.cli.designs.design import check_design
from slipstick.cost.money import Terms, system_money
from slipstick.ir.errors import UsageError

KNOWN = {name: load_technology(overrides=(f"scaling={name}",)) for name in scaling_names()}


@st.composite
def designs(draw: st.DrawFn) -> tuple[str, Budget, Joint | None]:
    """Budgets that a user may type, of which many have no room for something, or make no package."""
    scaling = draw(st.sampled_from(scaling_names()))
    known = KNOWN[scaling]
    dies = draw(st.sampled_from([1, 1, 2, 3, 4, 8]))
    area_mm2 = dies * draw(st.sampled_from([100.0, 300.0, 600.0, 800.0, 858.0, 900.0]))
    d2d = draw(st.sampled_from(["", *known.section.d2d])) if dies > 1 else ""
    budget = Budget(
        node=draw(st.sampled_from(known.node_names)),
        area_mm2=area_mm2,
        power_w=area_mm2 * draw(st.sampled_from([0.5, 1.0, 2.0])),
        unit=draw(st.sampled_from([*known.section.units])),
        memory=draw(st.sampled_from([*known.section.memories])),
        link=draw(st.sampled_from([*known.section.links])),
        num_dies=dies,
        d2d=d2d,
        d2d_bytes_per_s=draw(st.sampled_from([100e9, 1e12, 4e12])) if d2d else 0.0,
        join=draw(st.sampled_from(JOINS)) if d2d else "line",
    )
    return scaling, budget, draw(st.sampled_from([None, *JOINTS]))


def made(scaling: str, budget: Budget) -> Design | None:
    try:
        return design(budget, KNOWN[scaling])
    except UsageError:
        return None


def is_refused(scaling: str, found: Design, joint: Joint | None) -> bool:
    try:
        check_design(found, KNOWN[scaling], joint, USUAL)
    except UsageError:
        return True
    return False


def check(asked: tuple[str, Budget, Joint | None]) -> None:
    scaling, budget, joint = asked
    found = made(scaling, budget)
    if found is None:
        return
    text = system_text(found, "box", 8, "ndr-infiniband", KNOWN[scaling], joint, like="dgx-h100")
    if is_refused(scaling, found, joint):
        with pytest.raises(UsageError):
            system_money(read_system(text, "box"), 8, Terms(basis="build"))
    else:
        assert system_money(read_system(text, "box"), 8, Terms(basis="build")).package is not None


@given(designs())
@settings(max_examples=60)
def test_what_design_writes_cost_prices(asked: tuple[str, Budget, Joint | None]) -> None:
    check(asked)


@pytest.mark.deep
@pytest.mark.slow
@given(designs())
@settings(max_examples=1000)
def test_a_thousand_designs(asked: tuple[str, Budget, Joint | None]) -> None:
    check(asked)
