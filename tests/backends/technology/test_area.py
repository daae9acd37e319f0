"""Areas from what is on a die: parts by hand, photos of dies, laws."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.technology.area import (
    Floorplan,
    area_of,
    core_areas,
    density_of,
    floorplan,
    register_file_mm2,
)
from slipstick.backends.technology.data import load_technology
from slipstick.ir.errors import UnknownNameError

TECHNOLOGY = load_technology()
GA100 = floorplan("ga100", TECHNOLOGY)


@pytest.fixture(scope="module")
def photo() -> dict[str, float]:
    """Parts of GA100, annotated on photos of the die (LLMCompass, ISCA 2024; see the column `source`)."""
    path = Path(__file__).parents[2] / "data" / "die_area.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return {row["component"]: float(row["area_mm2"]) for row in csv.DictReader(file)}


def test_the_total_of_ga100_is_that_of_its_photo(photo: dict[str, float]) -> None:
    found = area_of(GA100, TECHNOLOGY)
    total = sum(photo.values())
    assert total == pytest.approx(822.72)
    assert found.total_mm2 == pytest.approx(total, rel=0.15)
    # Our own bound, so that a change shows: 4.3 % above the photo.
    assert found.total_mm2 == pytest.approx(total, rel=0.05)


def test_the_photo_that_is_shipped_is_the_table(photo: dict[str, float]) -> None:
    shipped = {part: area.si for part, area in TECHNOLOGY.die("ga100").photo.items()}
    assert list(shipped.values()) == [area for area in photo.values() if area]


@pytest.mark.parametrize(
    ("parts", "on_photo", "bound"),
    [
        (("cores",), ("cores",), 0.11),
        (("interconnect",), ("on_chip_interconnect",), 0.24),
        (("cache",), ("global_buffer_l2",), 0.05),
        (("memory_phy",), ("memory_phy",), 0.09),
        (("memory_controller",), ("memory_controller",), 0.09),
        # On the photo the controllers of links are no part of their own.
        (("network_phy", "network_controller", "other"),
         ("off_chip_interconnect_phy", "off_chip_interconnect_controller", "other"), 0.05),
    ],
)  # fmt: skip
def test_parts_of_ga100(
    photo: dict[str, float], parts: tuple[str, ...], on_photo: tuple[str, ...], bound: float
) -> None:
    found = dict(area_of(GA100, TECHNOLOGY).parts())
    assert sum(float(found[p]) for p in parts) == pytest.approx(sum(photo[p] for p in on_photo), rel=bound)


@pytest.mark.parametrize("die", ["gh100", "aldebaran"])
def test_dies_that_no_constant_was_taken_from_alone(die: str) -> None:
    # 814 mm2 of GH100 (NVIDIA H100 white paper) and 724 mm2 of Aldebaran (LLMCompass).
    real = TECHNOLOGY.die(die).area
    assert real is not None
    assert area_of(floorplan(die, TECHNOLOGY), TECHNOLOGY).total_mm2 == pytest.approx(real.si, rel=0.06)


def test_parts_by_hand() -> None:
    found = area_of(GA100, TECHNOLOGY)
    # 48 MiB of cells of 1.7e-7 mm2 a bit, which are 0.602 of the cache.
    assert found.cache_mm2 == pytest.approx(48 * 2**20 * 8 * 1.7e-7 / 0.602)
    assert found.memory_phy_mm2 == pytest.approx(6 * 10.45)
    assert found.memory_controller_mm2 == pytest.approx(6 * 552.743 / 96.3)
    assert found.network_phy_mm2 == pytest.approx(12 * 1.888 + 16 * 0.48)
    assert found.network_controller_mm2 == pytest.approx((12 * 74.632 + 16 * 3.9625) / 96.3)
    assert found.interconnect_mm2 == pytest.approx(128 * 44.3 / 96.3)


def test_a_multiprocessor_by_hand() -> None:
    core = TECHNOLOGY.multiprocessor("a100")
    found = core_areas(core, density_of("N7", TECHNOLOGY), TECHNOLOGY)
    assert found.control_mm2 == pytest.approx(4 * 32 * 0.9962 / 96.3)
    # A unit of fp16 is (10 / 52)^2 of one of fp64: 25344 transistors, 256 of them in a quarter.
    assert found.matrix_mm2 == pytest.approx(4 * 256 * 0.6853 * (10 / 52) ** 2 / 96.3)
    vector = 16 * 0.17769 + 8 * 0.6853 + 16 * 0.6853 * (23 / 52) ** 2
    assert found.vector_mm2 == pytest.approx(4 * vector / 96.3)
    # EMPIRE, 16384 registers of 32 bits and 4 ports: 23.553 mm2 at 90 nm.
    assert register_file_mm2(core) == pytest.approx(23.553, rel=1e-4)
    assert found.registers_mm2 == pytest.approx(4 * 23.553 * 1.6 / 96.3, rel=1e-4)
    assert found.total_mm2 == pytest.approx(4.10, abs=0.01)


def test_other_nodes_by_the_steps_between() -> None:
    # N3 is one step from N5: logic 1.8 times as dense, cells 1.1 times.
    five, three = density_of("N5", TECHNOLOGY), density_of("N3", TECHNOLOGY)
    assert three.logic == pytest.approx(1.8 * five.logic)
    assert three.cell_mm2 == pytest.approx(five.cell_mm2 / 1.1)
    ten = density_of("N10", TECHNOLOGY)
    assert ten.logic == pytest.approx(96.3e6 / 1.8)


def test_names_that_there_are_not() -> None:
    with pytest.raises(UnknownNameError, match="unknown node 'N8'"):
        area_of(replace(GA100, node="N8"), TECHNOLOGY)
    with pytest.raises(UnknownNameError, match="unknown kind of pads 'nvlnk3'; did you mean 'nvlink3'"):
        area_of(replace(GA100, phys=(("nvlnk3", 12),)), TECHNOLOGY)
    with pytest.raises(UnknownNameError, match="unknown die 'ga10'; did you mean 'ga100'"):
        floorplan("ga10", TECHNOLOGY)


@given(
    st.lists(st.tuples(st.integers(1, 200), st.integers(1, 200), st.integers(0, 40)), min_size=1, max_size=5),
    st.sampled_from(TECHNOLOGY.node_names),
)
def test_tables_and_parts_that_add_up(rows: list[tuple[int, int, int]], node: str) -> None:
    sms, mib, modules = (np.array(c, np.float64) for c in zip(*rows, strict=True))
    plan = Floorplan(
        node=node, multiprocessor="h100", num_sms=sms, l2_bytes=mib * 2**20, phys=(("ucie-advanced", modules),)
    )
    found = area_of(plan, TECHNOLOGY)
    assert found.total_mm2 == pytest.approx(sum(np.asarray(a) for _, a in found.parts()))
    assert found.d2d_mm2 == pytest.approx(modules * 0.4055184)
    for i, (n, m, d) in enumerate(rows):
        one = area_of(replace(plan, num_sms=n, l2_bytes=m * 2**20, phys=(("ucie-advanced", d),)), TECHNOLOGY).total_mm2
        assert np.asarray(found.total_mm2)[i] == pytest.approx(one)
        more = area_of(replace(plan, num_sms=n + 1, l2_bytes=m * 2**20, phys=()), TECHNOLOGY).total_mm2
        assert more > area_of(replace(plan, num_sms=n, l2_bytes=m * 2**20, phys=()), TECHNOLOGY).total_mm2
