"""Dynamic energy of designs: what the engine's own budget says, node by node and volt by volt."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.technology.data import load_technology
from slipstick.backends.technology.design import Budget, design_table, study
from slipstick.backends.technology.dynamic import logic_energy, wire_energy

TECHNOLOGY = load_technology()
NODES = TECHNOLOGY.node_names
BUDGET = Budget("N7", 826.0, 400.0, unit="a100", memory="hbm2e", link="nvlink3")


def test_the_series_of_nodes_falls_by_the_law_of_the_engine() -> None:
    """12 nm to 1 nm: power falls by 1.3 a node, and energy with the square of the voltage as well."""
    made = study(BUDGET, TECHNOLOGY)
    found = [float(one.logic_energy) for one in made]
    by_hand = [1.3 ** (3 - place) * (one.compute.at.voltage_v / 0.8) ** 2 for place, one in enumerate(made)]
    assert found == pytest.approx(by_hand, rel=1e-9)
    assert found == sorted(found, reverse=True)
    # N12 over N7: 1.69 x (0.963 / 0.801)^2.
    assert found[0] / found[2] == pytest.approx(2.44, abs=0.01)


@settings(max_examples=200)
@given(
    st.sampled_from(NODES), st.sampled_from(NODES), st.sampled_from(("v100", "a100", "h100")),
    st.floats(300.0, 800.0), st.floats(150.0, 1500.0), st.floats(150.0, 1500.0),
)  # fmt: skip
def test_energy_of_an_operation_is_that_of_the_budget(
    one: str, other: str, unit: str, area: float, first_w: float, then_w: float
) -> None:
    """Watts over FLOP/s of the units, of two designs of one unit, are as the energies of their logic."""
    kept = []
    for node, watts in ((one, first_w), (other, then_w)):
        made = design_table(Budget(node, area, watts, unit=unit), TECHNOLOGY)
        if not made.fit.holds.all():
            return
        kept.append((made.compute.power_w / made.compute.flop_per_s, made.logic_energy, made.compute.at.voltage_v))
    (first, first_e, first_v), (then, then_e, then_v) = kept
    assert np.asarray(first / then) == pytest.approx(np.asarray(first_e / then_e), rel=1e-6)
    law = logic_energy(TECHNOLOGY, one) * first_v**2 / (logic_energy(TECHNOLOGY, other) * then_v**2)
    assert np.asarray(first_e / then_e) == pytest.approx(np.asarray(law), rel=1e-9)


def test_wires_go_by_their_length_and_voltage_alone() -> None:
    assert wire_energy(814.0) == 1.0
    assert wire_energy(814.0 / 4, 0.5) == pytest.approx(0.125)
