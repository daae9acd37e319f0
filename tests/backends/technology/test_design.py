"""Chips from budgets: parts by hand, chips that exist, laws, data of users, and the file that comes out."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_chip, load_system
from slipstick.backends.technology import engine
from slipstick.backends.technology.data import Technology, load_technology
from slipstick.backends.technology.design import Budget, Design, design, design_table, study
from slipstick.backends.technology.engine import Share
from slipstick.backends.technology.files.chip_file import chip_text, system_text
from slipstick.backends.technology.fits import Reason
from slipstick.ir.errors import SystemFileError, UnknownNameError, UsageError

TECHNOLOGY = load_technology()
A100 = Budget("N7", 826.0, 400.0, "a100", "hbm2e", "nvlink3")
B200 = Budget("N5", 1600.0, 1000.0, "b200", "hbm3e", "nvlink5", num_dies=2, num_stacks=8)


@pytest.fixture(scope="module")
def technology() -> Technology:
    return TECHNOLOGY


def test_compute_by_hand(technology: Technology) -> None:
    # DeepFlow's A100: 435 mm2 / 1.006 mm2 = 432.4 units in 108 multiprocessors of four. Their arithmetic takes 0.13 W,
    # 14.1 % of the chip, with what is around it 67 / 14.1 as much, 0.61773 W: on 432 times that they run at 0.8 V and
    # 1.41 GHz: 432 x 512 x 1.41 GHz = 311.87 TFLOP/s.
    nominal_w = 432 * 0.13 * 0.67 / 0.141
    made = engine.compute(Share(435.0, nominal_w), technology.unit("a100"), 1.0, 1.0)
    assert (made.num_sms, made.num_units) == (108, 432)
    assert made.at.voltage_v == pytest.approx(0.8, rel=1e-7)
    assert made.flop_per_s == pytest.approx(432 * 512 * 1.41e9, rel=1e-7)
    assert made.power_w == pytest.approx(nominal_w, rel=1e-9)


def test_compute_on_a_newer_node_by_hand(technology: Technology) -> None:
    # One step: 435 / (1.006 / 1.8) = 778.3 units, 194 multiprocessors, 776 units at 0.61773 / 1.3 W.
    made = engine.compute(Share(435.0, 776 * 0.6177305 / 1.3), technology.unit("a100"), 1 / 1.8, 1 / 1.3)
    assert made.num_sms == 194
    assert made.flop_per_s == pytest.approx(776 * 512 * 1.41e9, rel=1e-9)


def test_cache_by_hand(technology: Technology) -> None:
    # 180 mm2 / 2.25 mm2 = 80 banks of 512 KiB = 40 MiB, which leak 40 x 1.048576 x 0.12 = 5.033 W of 12 W;
    # the rest moves bytes at 0.13 pJ/bit = 1.04 pJ each.
    made = engine.cache(Share(180.0, 12.0), technology.unit("a100").cache, 1.0, 1.0)
    assert (made.num_banks, made.num_bytes) == (80, 40 * 2**20)
    assert made.bytes_per_s == pytest.approx((12 - 40 * 1.048576 * 0.12) / 1.04e-12, rel=1e-9)


def test_memory_by_hand(technology: Technology) -> None:
    # Beside the die 503 / 86 = 5.8 stacks fit, on it 90 / 15 = 6 controllers: 5 stacks, 5120 wires of 3.6 Gbit/s.
    # At rest 80 GB x 0.05 W; rated, 5120 x 3.6e9 x 4.5 pJ = 82.944 W, which is given: the wires run at their rate.
    kind = technology.memory("hbm2e")
    made = engine.memory(Share(90.0, 4.0 + 82.944, 60.0), kind, 503.0, 1.0)
    assert (made.num_stacks, made.num_links, made.num_bytes) == (5, 5120, 80e9)
    assert made.bytes_per_s == pytest.approx(5120 * 3.6e9 / 8, rel=1e-9)
    assert made.power_w == pytest.approx(86.944, rel=1e-9)
    # More power does not drive them above it, and 10 mm of edge take 4000 wires.
    assert engine.memory(Share(90.0, 500.0, 60.0), kind, 503.0, 1.0).bytes_per_s == pytest.approx(made.bytes_per_s)
    assert engine.memory(Share(90.0, 500.0, 10.0), kind, 503.0, 1.0).num_links == 4000


def test_network_by_hand(technology: Technology) -> None:
    # 16 / 0.327 = 48.9 lanes of 50 Gbit/s, 300 GB/s each way; 2 x 48 x 50e9 x 8 pJ = 38.4 W.
    made = engine.network(Share(16.0, 38.4, 30.0), technology.link("nvlink3"), 1.0)
    assert made.num_lanes == 48
    assert made.power_w == pytest.approx(38.4, rel=1e-9)
    assert made.bytes_per_s == pytest.approx(300e9, rel=1e-9)
    assert engine.network(Share(16.0, 38.4, 2.0), technology.link("nvlink3"), 1.0).num_lanes == 40


def test_scales_multiply_over_nodes_and_undo_each_other(technology: Technology) -> None:
    # N12 to N7 are two steps: logic 1.8 x 1.8, caches 1.8 x 1.5, power 1.3 x 1.3; pads stay.
    found = technology.scale("N12", "N7")
    assert (found.logic, found.cache, found.analog, found.power) == pytest.approx((1 / 3.24, 1 / 2.7, 1.0, 1 / 1.69))
    back = technology.scale("N7", "N12")
    assert (found.logic * back.logic, found.cache * back.cache, found.power * back.power) == pytest.approx((1, 1, 1))


def test_the_edge_of_dies() -> None:
    assert replace(A100, area_mm2=800.0).edge_mm == pytest.approx(4 * sqrt(800))
    assert replace(A100, area_mm2=800.0, num_dies=2).edge_mm == pytest.approx(2 * 4 * 20)


@pytest.mark.parametrize(
    ("budget", "chip", "link"),
    [
        (Budget("N12", 815.0, 300.0, "v100", "hbm2", "nvlink2"), "v100-sxm2-32gb", 150e9),
        (A100, "a100-sxm-80gb", 300e9),
        (Budget("N5", 814.0, 700.0), "h100-sxm-80gb", 450e9),
        (B200, "b200-sxm-180gb", 900e9),
    ],
)
def test_units_give_back_about_the_chips_that_they_are_from(budget: Budget, chip: str, link: float) -> None:
    # B200 is sold with stacks of eight dies of 24 Gbit, of which hbm3e has twelve.
    stacks = load_technology(overrides=("memories.hbm3e.capacity=24GiB",))
    made, real = design(budget, stacks), load_chip(chip)[0]
    peak = real.peak_flop_per_s.fp16
    assert peak is not None
    assert made.compute.num_sms == real.num_sms
    # V100's unit is of DeepFlow, at the clock that a kernel holds.
    assert made.compute.flop_per_s == pytest.approx(peak, rel=0.02 if chip[0] != "v" else 0.15)
    assert made.cache.num_bytes == pytest.approx(real.l2_bytes, rel=0.05)
    assert made.memory.num_bytes == pytest.approx(real.hbm_bytes, rel=0.08)
    assert made.memory.bytes_per_s == pytest.approx(real.hbm_bytes_per_s, rel=0.12)
    assert made.network.bytes_per_s == pytest.approx(link, rel=0.02)
    peaks = {dtype: rate for dtype, rate in real.peak_flop_per_s.by_dtype().items() if rate is not None}
    # Every narrow dtype that the chip has, fp4 of Blackwell among them; none that it has not.
    narrow = {"fp8", "fp6", "fp4", "int8"}
    assert {d for d, _ in made.peaks} & narrow == peaks.keys() & narrow
    assert all(rate == pytest.approx(peaks[d], rel=0.02) for d, rate in made.peaks if d in narrow)


BUDGETS = st.builds(
    Budget,
    node=st.sampled_from(TECHNOLOGY.node_names),
    area_mm2=st.floats(400.0, 3000.0),
    power_w=st.floats(200.0, 3000.0),
    unit=st.sampled_from(["v100", "a100", "h100", "b200"]),
    memory=st.sampled_from(["hbm2", "hbm2e", "hbm3", "hbm3e", "hbm4"]),
    link=st.sampled_from(["nvlink2", "nvlink3", "nvlink4", "nvlink5"]),
    num_dies=st.integers(1, 4),
)


def made(budget: Budget) -> Design | None:
    """A design, or None where a budget is too small for even one of a part."""
    try:
        return design(budget, TECHNOLOGY)
    except UsageError:
        return None


@settings(max_examples=60)
@given(BUDGETS, st.floats(1.0, 4.0))
def test_more_area_is_never_less_compute_or_cache_or_lanes(budget: Budget, factor: float) -> None:
    before, after = made(budget), made(replace(budget, area_mm2=budget.area_mm2 * factor))
    if before is None or after is None:
        return
    assert before.compute.flop_per_s <= after.compute.flop_per_s * (1 + 1e-9)
    assert before.cache.num_bytes <= after.cache.num_bytes
    assert before.memory.num_bytes <= after.memory.num_bytes
    assert before.network.bytes_per_s <= after.network.bytes_per_s * (1 + 1e-9)


@settings(max_examples=60)
@given(BUDGETS, st.floats(1.0, 4.0))
def test_more_power_is_never_less_of_anything(budget: Budget, factor: float) -> None:
    before, after = made(budget), made(replace(budget, power_w=budget.power_w * factor))
    # No cooling takes more than 3 W/mm2.
    if before is None or budget.power_w * factor > 3.0 * budget.area_mm2:
        return
    assert after is not None
    pairs = (
        (before.compute.flop_per_s, after.compute.flop_per_s),
        (before.cache.bytes_per_s, after.cache.bytes_per_s),
        (before.memory.bytes_per_s, after.memory.bytes_per_s),
        (before.network.bytes_per_s, after.network.bytes_per_s),
    )
    assert all(less <= more * (1 + 1e-9) for less, more in pairs)


@settings(max_examples=60)
@given(BUDGETS)
def test_no_part_takes_more_than_its_budget(budget: Budget) -> None:
    found = made(budget)
    if found is None:
        return
    unit = TECHNOLOGY.unit(budget.unit)
    shares = unit.power_shares
    for part, share in (
        (found.compute, shares.core), (found.cache, shares.cache), (found.memory, shares.memory),
        (found.network, shares.network),
    ):  # fmt: skip
        assert part.power_w <= share.si * budget.power_w * (1 + 1e-9)
    shrink = TECHNOLOGY.scale(unit.node, budget.node).logic
    assert found.compute.num_units * unit.area.si * shrink <= unit.area_shares.core.si * budget.area_mm2 * (1 + 1e-9)
    assert found.used_w <= budget.power_w * (1 + 1e-9)


def test_nodes_at_equal_area_and_power_only_gain_where_they_shrink(technology: Technology) -> None:
    found = study(A100, technology)
    assert [d.budget.node for d in found] == list(technology.node_names)
    peaks = [d.compute.flop_per_s for d in found]
    caches = [d.cache.num_bytes for d in found]
    assert peaks == sorted(peaks)
    assert peaks[-1] > 10 * peaks[0]
    assert caches == sorted(caches)
    # Controllers and lanes do not shrink: without another memory a chip drifts away from its data.
    assert len({float(d.memory.bytes_per_s) for d in found}) == 1
    assert len({float(d.network.bytes_per_s) for d in found}) == 1
    assert [d.budget.node for d in study(A100, technology, ["N5", "N3"])] == ["N5", "N3"]


def test_a_newer_memory_gives_the_bandwidth_back(technology: Technology) -> None:
    rates = [
        design(replace(A100, memory=m, power_w=1000.0), technology).memory.bytes_per_s
        for m in ("hbm2", "hbm2e", "hbm3", "hbm3e", "hbm4")
    ]
    assert rates == sorted(rates)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"area_mm2": 3.0}, "no room for a multiprocessor: 1.58 mm2 of its budget, and one takes 4.02 mm2"),
        ({"area_mm2": 100.0}, "no room for a stack of memory beside the die"),
        ({"power_w": 15.0}, "no power left to use the cache: 0.45 W of its budget, at rest it takes 5.03 W"),
        ({"area_mm2": -1.0}, "a chip needs area and power: given -1 mm2 and 400 W"),
        ({"power_w": float("inf")}, "a chip needs area and power"),
        ({"num_dies": 0}, "a chip needs a die"),
        ({"node": "N6"}, "unknown node 'N6'; did you mean"),
        ({"unit": "a10"}, "unknown unit of compute 'a10'; did you mean 'a100'?"),
        ({"memory": "hbm5"}, "unknown memory 'hbm5'"),
        ({"link": "nvlink6"}, "unknown link 'nvlink6'"),
    ],
)
def test_what_cannot_be_built_says_why(technology: Technology, change: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        design(replace(A100, **change), technology)  # type: ignore[arg-type]
    assert message.split("; did")[0] in str(caught.value)


def test_data_of_a_user_go_before_what_is_shipped(technology: Technology, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    gain = "{value: %s, confidence: estimated, source: mine}"
    node = ", ".join(f"{key}: {gain % 2}" for key in ("logic", "cache", "analog", "power"))
    path.write_text(f"nodes:\n  N7: {{{node}}}\n  N4: {{{node}}}\n", encoding="utf-8")
    mine = load_technology(path)
    assert mine.node_names == ("N7", "N4")
    assert mine.scale("N7", "N4").logic == 0.5
    assert mine.section.units == technology.section.units
    found = design(replace(A100, node="N4"), mine)
    assert found.compute.num_sms == 216 == 2 * design(A100, technology).compute.num_sms


def test_faults_of_data_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("links:\n  fast:\n    rate: {value: 3, source: s}\n    are: 3\n", encoding="utf-8")
    with pytest.raises(SystemFileError) as caught:
        load_technology(path)
    assert f"{path}:3: links.fast.rate: missing unit of '3'" in str(caught.value)
    assert f"{path}:4: links.fast: unknown key 'are'; did you mean 'area'?" in str(caught.value)
    path.write_text("knots: {}\n", encoding="utf-8")
    with pytest.raises(SystemFileError, match="has none of: nodes, units, memories, links"):
        load_technology(path)


def test_a_number_of_the_data_may_be_set() -> None:
    shares = ["units.a100.power_shares.memory=30%", "units.a100.power_shares.core=57%"]
    faster = load_technology(overrides=["memories.hbm2e.rate=4 Gbit/s", *shares])
    assert design(A100, faster).memory.bytes_per_s == pytest.approx(5120 * 4e9 / 8)
    with pytest.raises(UnknownNameError, match="did you mean 'area_shares'"):
        load_technology(overrides=["units.a100.area_share.core=1"])
    with pytest.raises(SystemFileError, match=r"the shares add up to 1\.246"):
        load_technology(overrides=["units.a100.area_shares.core=0.9"])


def test_a_designed_chip_is_a_chip_of_a_system(technology: Technology, tmp_path: Path) -> None:
    found = design(A100, technology)
    (tmp_path / "chip.yaml").write_text(chip_text(found, "mine", technology), encoding="utf-8")
    chip, records = load_chip(tmp_path / "chip.yaml")
    assert (chip.name, chip.num_sms, chip.hbm_bytes) == ("mine", 108, 80e9)
    assert chip.matmul_flop_per_s("bf16") == pytest.approx(found.compute.flop_per_s, rel=1e-5)
    assert all(r.source.startswith("technology engine: ") and r.confidence == "estimated" for r in records)
    (tmp_path / "system.yaml").write_text(system_text(found, "box", 4, "ndr-infiniband", technology), encoding="utf-8")
    system = load_system(tmp_path / "system.yaml")
    assert (system.node_size, [v.name for v in system.levels]) == (4, ["scale-up", "infiniband"])
    assert system.levels[0].bytes_per_s == pytest.approx(found.network.bytes_per_s, rel=1e-5)
    referring = (tmp_path / "system.yaml").read_text(encoding="utf-8").splitlines()
    chip_at, node_at = referring.index("chip:"), referring.index("node:")
    text = "\n".join([*referring[:chip_at], "chip: chip.yaml", *referring[node_at:]])
    (tmp_path / "refers.yaml").write_text(text, encoding="utf-8")
    assert load_system(tmp_path / "refers.yaml").chip == chip


@pytest.mark.parametrize(("cooling", "most"), [("air", 1.0), ("liquid", 2.0), ("two-phase", 3.0), ("", 3.0)])
def test_dies_get_rid_of_what_their_cooling_takes(cooling: str, most: float) -> None:
    at_most = Budget("N5", 800.0, 800.0 * most, cooling=cooling)
    assert design(at_most, TECHNOLOGY).power_w == 800.0 * most
    with pytest.raises(UsageError, match=rf"get rid of {most + 0.1:.3g} W/mm2, and their cooling takes {most:g} W/mm2"):
        design(replace(at_most, power_w=800.0 * (most + 0.1)), TECHNOLOGY)
    watts = np.array([799.0, 801.0]) * most
    fits = design_table(replace(at_most, power_w=watts), TECHNOLOGY).fit.reason
    assert fits.tolist() == [Reason.FITS, Reason.COOLING]
