"""Between which joules a step lies: by hand, and for every machine of the catalogue."""

import numpy as np
import pytest

from slipstick.backends.machine.files.catalogue import names
from slipstick.backends.machine.load import load_system
from slipstick.backends.prices.book import load_prices
from slipstick.cost.ownership.activity import Activity, idle_w
from slipstick.cost.ownership.energy import StepEnergy, joules_interval, level_factors, step_energy
from slipstick.cost.ownership.system import system_cost


def spent(name: str, doing: float, num_gpus: int = 8) -> StepEnergy:
    """A second of a machine whose matrix units take `doing` joules and whose wires take a tenth of that."""
    system, prices = load_system(name), load_prices()
    parts = Activity({"matrix units": np.array([doing]), "network": np.array([doing / 10])})
    return step_energy(system_cost(system, num_gpus, prices), system, prices, 1.0, parts)


def test_ends_of_an_h100_by_hand() -> None:
    """8 packages at rest, 0.84 pJ for 0.81 both ways; links of 5.5 to 10 for 8 pJ/bit, 5.5 to 8 for 6.5 of PCIe."""
    energy, system, prices = spent("dgx-h100", 1_000.0), load_system("dgx-h100"), load_prices()
    found = joules_interval(energy, system, prices)
    off, rest_j = 0.84 / 0.81, 8 * 129.5
    hosts_j, network_j = (float(np.asarray(energy.parts_j[name]).item()) for name in ("hosts", "network"))
    low = (rest_j + 1_000) / off + 100 * 5.5 / 8 + hosts_j * 0.63 / 0.64 + network_j
    high = (rest_j + 1_000) * off + 100 * 10 / 8 + hosts_j * 1 / 0.64 + network_j
    assert found.low_j == pytest.approx(low)
    assert found.high_j == pytest.approx(high)


@pytest.mark.parametrize("name", names("systems"))
def test_the_interval_holds_the_joules_and_no_more_than_packages_may_draw(name: str) -> None:
    system, prices = load_system(name), load_prices()
    rest_w = float(np.asarray(idle_w(system, prices)).item())
    for share in (0.0, 0.1, 0.5, 1.0, 3.0):
        energy = spent(name, share * system.node_size * (float(system.chip.power_w) - rest_w), system.node_size)
        found = joules_interval(energy, system, prices)
        low, at, high = (float(np.asarray(j).item()) for j in (found.low_j, energy.machines_j, found.high_j))
        assert low <= at * (1 + 1e-9)
        assert at <= high * (1 + 1e-9)
        hosts, switches = (float(np.asarray(energy.parts_j[part]).item()) for part in ("hosts", "network"))
        beside = hosts * found.factors["hosts"][1] + switches
        packages = float(np.asarray(energy.num_bought).item()) * float(system.chip.power_w)
        assert high - beside <= packages * (1 + 1e-9)


def test_what_was_measured_is_known_better_than_what_follows_from_a_node() -> None:
    """Matrix units were measured on H100 and on Blackwell, whose caches go by the law of nodes, 1.5 times off."""
    prices = load_prices()
    hopper, blackwell, ampere = (
        level_factors(load_system(name), prices) for name in ("dgx-h100", "dgx-b200", "dgx-a100-80gb")
    )
    assert hopper["matrix units"] == blackwell["matrix units"]
    assert ampere["matrix units"][1] == pytest.approx(0.81 / 0.533)
    assert blackwell["cache"] == ampere["cache"] == ampere["matrix units"]
