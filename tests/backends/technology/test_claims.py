"""Who owns the budgets of a chip: by hand, and laws over many chips."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slipstick.backends.technology.claims import Claim, claims_of
from slipstick.backends.technology.data import load_technology
from slipstick.backends.technology.design import Budget, Design, design
from slipstick.backends.technology.shares import Knobs, most_lanes, most_stacks, shared_out
from slipstick.backends.technology.speeds import rated_speeds, speeds_text
from slipstick.ir.errors import SystemFileError, UsageError

TECHNOLOGY = load_technology()
H100 = Budget("N5", 814.0, 700.0)


def named(made: Design) -> dict[str, Claim]:
    return {claim.part: claim for claim in claims_of(made, TECHNOLOGY)}


@pytest.mark.parametrize("unit", TECHNOLOGY.section.units)
def test_all_power_of_a_unit_has_an_owner(unit: str) -> None:
    assert TECHNOLOGY.unit(unit).power_shares.total == pytest.approx(1.0)


def test_power_by_hand() -> None:
    found = named(design(H100, TECHNOLOGY))
    # 700 W less what caches, memory and lanes get are 525 W: 132 x 4 units of 0.98936 W take 522.4 W at 0.8 V and
    # 1.83 GHz, 0.98936 W / (1024 x 1.83 GHz) = 0.528 pJ/FLOP; Blackwell, of the same node, measures 0.533.
    assert found["units"].power_w == pytest.approx(525.0)
    assert found["units"].joules == pytest.approx(0.528e-12, rel=0.005)
    # 80 GB at rest draw 4 W; 101 W move bytes of 3.9 pJ/bit.
    assert found["memory"].rest_w == pytest.approx(4.0)
    assert found["memory"].joules == pytest.approx(8 * 3.9e-12)
    assert found["memory"].rate == pytest.approx(101.0 / (8 * 3.9e-12))
    # 36 lanes of 100 Gbit/s each way at 6 pJ/bit.
    assert found["links"].power_w == pytest.approx(2 * 36 * 100e9 * 6e-12)
    assert found["memory"].reason == "3.24 TB/s x 31.2 pJ/B + 4 W of leakage"


def test_speeds_of_a_chip_by_hand() -> None:
    made = design(H100, TECHNOLOGY)
    assert speeds_text(made, TECHNOLOGY) == "matrix 100%, vector 100%, caches 101%, memory 79%, links 100%"
    # Five stacks of HBM4 need 5 x 2048 x 8 Gbit/s x 3.2 pJ/bit = 262 W, and their share is 105 W less 12 W at rest.
    newer = rated_speeds(design(replace(H100, memory="hbm4", num_stacks=4), TECHNOLOGY), TECHNOLOGY)
    assert float(newer["memory"]) == pytest.approx((105 - 4 * 48 * 0.05) / (4 * 2048 * 8e9 * 3.2e-12))


def test_a_memory_is_no_voltage_knob() -> None:
    rates = [design(replace(H100, power_w=power), TECHNOLOGY).memory for power in (300.0, 400.0, 700.0, 1000.0)]
    for one in rates:
        assert one.power_w - 4.0 == pytest.approx(one.bytes_per_s * 8 * 3.9e-12)
    assert rates[-1].speed == 1.0
    paper = design(replace(H100, power_w=400.0, clamp="paper"), TECHNOLOGY).memory
    assert paper.bytes_per_s > rates[1].bytes_per_s


def test_more_than_all_power_is_refused() -> None:
    with pytest.raises(SystemFileError, match=r"units\.h100\.power_shares: the shares add up to 1\.15"):
        load_technology(overrides=["units.h100.power_shares.memory=0.3"])


def test_claims_add_up_to_what_a_chip_uses_and_are_within_its_budgets() -> None:
    rng, num = np.random.default_rng(0), 0
    for _ in range(300):
        budget = Budget(
            str(rng.choice(TECHNOLOGY.node_names)), float(rng.uniform(300, 3000)), float(rng.uniform(100, 3000)),
            str(rng.choice(["v100", "a100", "h100"])), str(rng.choice(["hbm2e", "hbm3", "hbm4"])),
            str(rng.choice(["nvlink3", "nvlink5", "pcie5"])), int(rng.integers(1, 5)),
        )  # fmt: skip
        if budget.num_dies > 1 and rng.random() < 0.5:
            budget = replace(budget, d2d="ucie-advanced", d2d_bytes_per_s=5e11)
        try:
            made = design(budget, TECHNOLOGY)
        except UsageError:
            continue
        num += 1
        claims, devices = claims_of(made, TECHNOLOGY), float(budget.num_ranks)
        assert sum(one.power_w for one in claims) == pytest.approx(float(made.used_w), rel=1e-9)
        assert sum(one.power_w for one in claims) <= budget.power_w / devices * (1 + 1e-9)
        assert sum(one.area_mm2 for one in claims) <= budget.area_mm2 / devices * (1 + 1e-9)
        assert sum(one.edge_mm for one in claims) <= float(budget.edge_mm) / devices * (1 + 1e-9)
        # Joules of a FLOP go as the power of the node times V^2, which is what `energy.logic` says.
        units, logic = claims[0], float(made.logic_energy)
        unit = TECHNOLOGY.unit(budget.unit)
        fitted = unit.power.si / (unit.flop_per_clock.si * unit.clock.si) * TECHNOLOGY.scale(unit.node, "N5").power
        assert units.joules == pytest.approx(fitted * logic, rel=1e-9)
    assert num > 150


def test_what_is_chosen_is_what_a_chip_has() -> None:
    limit, rng = replace(H100, memory="hbm4", link="nvlink5"), np.random.default_rng(1)
    stacks, lanes = most_stacks(limit, TECHNOLOGY), most_lanes(limit, TECHNOLOGY)
    # 0.61 x 814 mm2 of 100 mm2 each; 0.6516 x 814 mm2 of 0.327 mm2 each, which 0.8 of the edge has room for.
    assert stacks == 4
    assert lanes == 1622 < 0.8 * 4 * np.sqrt(814.0) * 20
    for _ in range(100):
        knobs = Knobs(
            area_mm2=float(rng.uniform(700, 814)), power_w=float(rng.uniform(500, 700)),
            num_stacks=int(rng.integers(1, 5)), memory_speed=float(rng.uniform(0.3, 1.0)),
            num_lanes=int(rng.integers(1, 100)), core_share=float(rng.uniform(0.5, 1.0)),
        )  # fmt: skip
        if knobs.num_stacks * 100 > 0.61 * knobs.area_mm2:
            continue
        made = design(shared_out(limit, knobs, TECHNOLOGY), TECHNOLOGY)
        assert (made.memory.num_stacks, made.network.num_lanes) == (knobs.num_stacks, knobs.num_lanes)
        assert float(made.memory.speed) == pytest.approx(knobs.memory_speed)
        assert float(made.network.at.speed) == pytest.approx(1.0)
        # The units take what is left, to the watt; above their greatest voltage they cannot.
        assert made.compute.at.voltage_v == pytest.approx(1.1) or float(made.used_w) == pytest.approx(knobs.power_w)
