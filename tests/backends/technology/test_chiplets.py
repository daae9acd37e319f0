"""Chips of several dies: what the interface takes, what is left, laws, and the files that come out."""

from __future__ import annotations

from dataclasses import fields, replace
from math import sqrt
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_chip, load_system
from slipstick.backends.machine.package import D2d, Die
from slipstick.backends.technology.d2d import JOINS, Join
from slipstick.backends.technology.data import load_technology
from slipstick.backends.technology.design import Budget, Design, design
from slipstick.backends.technology.files.chip_file import chip_text, system_text
from slipstick.backends.technology.files.package_file import as_joint, usual_joint
from slipstick.backends.technology.packaging import packaged
from slipstick.ir.errors import UnknownNameError, UsageError

TECHNOLOGY = load_technology()
# Two dies of 814 mm2 and 700 W each, joined by 2 TB/s each way.
PAIR = Budget("N5", 1628.0, 1400.0, num_dies=2, d2d="ucie-advanced", d2d_bytes_per_s=2e12)


def made(budget: Budget) -> Design | None:
    try:
        return design(budget, TECHNOLOGY)
    except UsageError:
        return None


def test_what_the_interface_takes_comes_out_of_the_budgets() -> None:
    # 2 TB/s are eight modules of 256 GB/s: 3.244 mm2, 3.11 mm of edge, 16 Tbit/s of 0.25 pJ are 4 W.
    found = design(PAIR, TECHNOLOGY)
    assert found.interface.num_modules == 8
    assert found.interface.area_mm2 == pytest.approx(8 * 0.4055184)
    assert found.interface.edge_mm == pytest.approx(8 * 0.3888)
    assert found.interface.power_w == pytest.approx(4.0)
    # The rest is shared as on a chip of one die with so much less.
    less = design(Budget("N5", 814.0 - 8 * 0.4055184, 696.0), TECHNOLOGY)
    assert found.compute.num_sms == less.compute.num_sms == 131
    assert found.compute.flop_per_s == pytest.approx(less.compute.flop_per_s, rel=1e-12)
    assert found.cache == less.cache
    edge_mm = 4 * sqrt(814.0) - 8 * 0.3888
    assert found.network.num_lanes <= edge_mm * 0.3 * 20


@pytest.mark.parametrize("join", JOINS)
def test_one_die_with_an_interface_is_one_without(join: Join) -> None:
    plain = Budget("N5", 814.0, 700.0)
    joined = replace(plain, d2d="ucie-advanced", d2d_bytes_per_s=2e12, join=join)
    one, other = design(plain, TECHNOLOGY), design(joined, TECHNOLOGY)
    for part in ("compute", "cache", "memory", "network", "vector_flop_per_s", "used_w", "areas"):
        assert getattr(one, part) == getattr(other, part)


BUDGETS = st.builds(
    Budget,
    node=st.sampled_from(TECHNOLOGY.node_names),
    area_mm2=st.floats(800.0, 6000.0),
    power_w=st.floats(400.0, 6000.0),
    unit=st.sampled_from(["a100", "h100"]),
    memory=st.sampled_from(["hbm2e", "hbm3e"]),
    num_dies=st.sampled_from([1, 2, 4, 6]),
    d2d=st.sampled_from(["ucie-standard", "ucie-advanced", "nvlink-c2c", "area-share"]),
    d2d_bytes_per_s=st.floats(1e10, 5e12),
    join=st.sampled_from(JOINS),
)


@settings(max_examples=60)
@given(BUDGETS)
def test_parts_of_area_add_up_and_none_is_more_than_there_is(budget: Budget) -> None:
    found = made(budget)
    if found is None:
        return
    areas = found.areas
    parts = [float(getattr(areas, f.name)) for f in fields(areas)]
    assert sum(parts) == pytest.approx(budget.area_mm2 / budget.num_dies)
    assert min(parts) >= -1e-9
    assert found.used_w <= budget.power_w / budget.num_dies * (1 + 1e-9)


@settings(max_examples=60)
@given(BUDGETS, st.floats(1.0, 4.0))
def test_more_bandwidth_between_dies_is_never_more_of_anything_else(budget: Budget, factor: float) -> None:
    before = made(budget)
    after = made(replace(budget, d2d_bytes_per_s=budget.d2d_bytes_per_s * factor))
    if before is None or after is None:
        return
    assert after.compute.num_sms <= before.compute.num_sms
    assert after.cache.num_bytes <= before.cache.num_bytes
    assert after.network.num_lanes <= before.network.num_lanes
    assert after.interface.bytes_per_s == pytest.approx(before.interface.bytes_per_s * factor)


@settings(max_examples=60)
@given(BUDGETS, st.floats(1.0, 3.0))
def test_more_area_at_equal_power_is_never_less_compute(budget: Budget, factor: float) -> None:
    # A flat share takes area and nothing else; a larger die has more of it, and still more is left.
    before, after = made(budget), made(replace(budget, area_mm2=budget.area_mm2 * factor))
    if before is None or after is None:
        return
    assert before.compute.flop_per_s <= after.compute.flop_per_s * (1 + 1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d2d_bytes_per_s": 30e12}, "no shoreline for 30 TB/s of ucie-advanced: 118 modules take 45.88 mm"),
        ({"d2d_bytes_per_s": 0.0}, "2 dies that are devices of their own need a bandwidth between them"),
        ({"num_dies": 5, "join": "mesh"}, "5 dies make no mesh of two rows: their number must be even"),
        ({"num_dies": 1.5}, "a chip needs a die, and no part of one: given 1.5"),
        ({"power_w": 7.0}, "the D2D interface takes 4 W of 3.5 W a die: nothing is left"),
        (
            {"num_dies": 6, "join": "fully_connected", "d2d_bytes_per_s": 1e11},
            "lie 16.5 mm apart, and the interface reaches 2 mm",
        ),
        ({"num_stacks": 5}, "5 stacks of memory cannot be shared out evenly among 2 dies"),
        ({"num_stacks": 40}, "no room for 20 stacks of memory: at most 5 fit"),
        ({"d2d": "ucie"}, "unknown D2D interface 'ucie'"),
        # 28.28 mm hold 49 modules of 64 GB/s.
        (
            {"d2d": "ucie-standard", "d2d_bytes_per_s": 3.2e12, "area_mm2": 1600.0},
            "50 modules take 28.57 mm of an edge of 28.28 mm; at most 3.14 TB/s fit",
        ),
    ],
)
def test_what_cannot_be_joined_says_why(change: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        design(replace(PAIR, **change), TECHNOLOGY)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_given_stacks() -> None:
    # Two of a die in place of the five that fit.
    found = design(replace(PAIR, num_stacks=4), TECHNOLOGY)
    assert (found.memory.num_stacks, found.memory.num_links) == (2, 2048)
    assert found.memory.area_mm2 < design(PAIR, TECHNOLOGY).memory.area_mm2


@pytest.mark.parametrize(
    ("num_dies", "join", "topology", "num_links"),
    [
        (2, "ring", "fully_connected", 1),
        (4, "mesh", "ring", 2),
        (6, "mesh", "mesh", 4),
        (3, "line", "line", 2),
        (4, "fully_connected", "fully_connected", 3),
    ],
)
def test_a_system_of_chiplets_has_a_level_inside(
    num_dies: int, join: Join, topology: str, num_links: int, tmp_path: Path
) -> None:
    budget = replace(PAIR, area_mm2=814.0 * num_dies, power_w=700.0 * num_dies, num_dies=num_dies, join=join)
    found = design(budget, TECHNOLOGY)
    path = tmp_path / "box.yaml"
    path.write_text(system_text(found, "box", 8, "ndr-infiniband", TECHNOLOGY), encoding="utf-8")
    system = load_system(path)
    inner, outer = system.levels[:2]
    assert (inner.name, inner.topology, inner.size) == ("d2d", topology, num_dies)
    assert inner.bytes_per_s == pytest.approx(num_links * 2e12)
    assert inner.bytes_per_s == pytest.approx(found.interface.bytes_per_s)
    assert (outer.name, outer.size, system.node_size) == ("scale-up", 8 * num_dies, 8 * num_dies)
    assert outer.bytes_per_s == pytest.approx(found.network.bytes_per_s, rel=1e-5)
    assert system.chip.power_w == pytest.approx(700.0)
    assert system.package is not None
    (die,) = system.package.assembly.dies
    assert (die.node, die.count) == ("N5", num_dies)
    assert die.area_mm2 == pytest.approx(814.0)
    # The interface of the package is that of the network: what is set there holds for both.
    assert die.d2d is not None
    # 0.25 pJ/bit.
    assert die.d2d.energy_j_per_byte == pytest.approx(2e-12)
    energy = die.d2d.energy_j_per_byte
    assert die.d2d == D2d("ucie-advanced", 2e12, float(found.interface.num_neighbours), "d2d", energy)
    faster = load_system(path, ["network.d2d.link_bandwidth=3TB/s"])
    assert faster.package is not None
    assert next(iter(faster.package.assembly.dies)).d2d == replace(die.d2d, bytes_per_s=3e12)
    ((stack, count),) = system.package.assembly.counted_stacks()
    assert (stack.kind, count) == ("hbm3", num_dies * found.memory.num_stacks)
    assert stack.num_bytes * count == pytest.approx(num_dies * system.chip.hbm_bytes)
    assert system.package.num_ranks == num_dies


def test_a_node_of_one_package_has_no_switch(tmp_path: Path) -> None:
    path = tmp_path / "box.yaml"
    path.write_text(system_text(design(PAIR, TECHNOLOGY), "box", 1, "ndr-infiniband", TECHNOLOGY), encoding="utf-8")
    assert [level.name for level in load_system(path).levels] == ["d2d", "infiniband"]


def test_a_chip_alone_says_its_bandwidth_and_a_joint(tmp_path: Path) -> None:
    path = tmp_path / "chip.yaml"
    path.write_text(chip_text(design(PAIR, TECHNOLOGY), "pair", TECHNOLOGY, "fan_out_bridge"), encoding="utf-8")
    assert load_chip(path)[0].name == "pair"
    text = path.read_text(encoding="utf-8")
    assert "joint: fan_out_bridge" in text
    assert "bandwidth: {value: 2000, unit: GB/s" in text
    assert as_joint("organic") == usual_joint(TECHNOLOGY.memory("gddr6"))
    with pytest.raises(UnknownNameError, match="unknown joint 'cowos'"):
        as_joint("cowos")


def test_a_package_has_an_interface_where_dies_are_joined() -> None:
    budget = Budget(node="N5", area_mm2=1600.0, power_w=1400.0, unit="h100", memory="hbm3e", num_dies=2)
    joined = made(replace(budget, d2d="ucie-advanced", d2d_bytes_per_s=1e12))
    alone = made(replace(budget, area_mm2=800.0, power_w=700.0, num_dies=1))
    one_device = made(budget)
    assert joined is not None
    assert alone is not None
    assert one_device is not None

    def d2d_of(design: Design) -> D2d | None:
        die = packaged(design, TECHNOLOGY).assembly.contents[0]
        assert isinstance(die, Die)
        return die.d2d

    assert d2d_of(joined) == D2d("ucie-advanced", 1e12, 1, "d2d")
    assert d2d_of(alone) is None
    assert d2d_of(one_device) is None
