"""Products: numbers worked out by hand, and laws that hold for all sizes, chips and constants."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.kernels.constants import kind_of
from slipstick.backends.kernels.gemm import (
    GemmConstants,
    GemmSizes,
    gemm_sizes,
    gemm_times,
    stacked,
)
from slipstick.backends.kernels.limits import Scope, limits_of
from slipstick.backends.kernels.operands import OPERAND_BYTES, gemm_kinds
from slipstick.backends.machine.chip import Chip, Peaks
from slipstick.backends.machine.load import load_system
from slipstick.ir.errors import UnknownNameError

# 100 units of 1 GHz, 100 TFLOP/s, 1 TB/s: a tile of 128 x 128 takes 2 * 128^2 / 1e12 s a step of k.
PEAKS = Peaks(bf16=1e14, fp16=1e14, tf32=5e13, fp32=1e13, fp8=2e14, int8=2e14)
CHIP = Chip("round", PEAKS, 1e13, 1e9, 1e10, 1e12, 100.0, num_sms=100, l2_bytes=1e7)
# Nothing but whole tiles of 128 x 128: no start, no feed that shows, no cap, no splits.
PLAIN = GemmConstants(
    overhead_s=1e-6, sustained=1.0, quantise=0.5, warm=0.0, memory=0.5, tensor=1.0, prologue=0.0, feed=1.0, cache=4.0,
    pace=0.0, draw=1e9, small=0.0, split_s=1e-6, waves=1.0, smallest_tile=16384, largest_tile=16384, most_splits=1,
    slack=1e9, ramp_s=0.0,
)  # fmt: skip
KINDS = load_system("dgx-h100").kernels.gemm


def seconds(sizes: GemmSizes, chip: Chip = CHIP, **changed: float) -> float:
    return float(gemm_times(sizes, chip, dataclasses.replace(PLAIN, **changed)).time_s)


def terms(sizes: GemmSizes, **changed: float) -> dict[str, float]:
    found = gemm_times(sizes, CHIP, dataclasses.replace(PLAIN, **changed)).terms
    return {name: float(term) for name, term in found.items()}


def test_tiles_run_in_whole_waves() -> None:
    """100 tiles fill the chip once; one column more makes 110 tiles, and two waves of 128 x 128 x 1024 each."""
    wave_s = 2 * 128 * 128 * 1024 / 1e12
    assert terms(gemm_sizes(1280, 1280, 1024))["tensor"] == pytest.approx(wave_s, rel=1e-3)
    assert terms(gemm_sizes(1280, 1281, 1024))["tensor"] == pytest.approx(2 * wave_s, rel=1e-3)
    assert terms(gemm_sizes(1280, 1281, 1024), waves=0.0)["tensor"] == pytest.approx(1.1 * wave_s, rel=1e-3)
    # One tile on a hundred units takes as long as it takes one of them, however work is distributed.
    assert terms(gemm_sizes(128, 128, 1024), waves=0.0)["tensor"] == pytest.approx(wave_s, rel=1e-3)


def test_a_tile_is_padded_to_its_whole_size_and_k_to_whole_steps() -> None:
    assert terms(gemm_sizes(1, 1, 33))["tensor"] == terms(gemm_sizes(128, 128, 64))["tensor"]


def test_the_start_of_a_tile_counts_as_so_much_of_k() -> None:
    with_start = terms(gemm_sizes(1280, 1280, 1024), prologue=512.0)["tensor"]
    assert with_start == pytest.approx(1.5 * 2 * 128 * 128 * 1024 / 1e12, rel=1e-3)


def test_on_chip_memory_feeds_tiles() -> None:
    """(128 + 128) * 2 bytes a step and 1/100 of 0.01 bytes a FLOP at 1e14 FLOP/s: 51.2 ns against 32.8 of compute."""
    step_s = np.hypot(512 / (0.01 * 1e14 / 100), 2 * 128 * 128 / 1e12)
    of = terms(gemm_sizes(1280, 1280, 1024), feed=0.01)
    assert np.hypot(of["tensor"], of["ingest"]) == pytest.approx(1024 * step_s)


def test_a_step_takes_some_clocks_at_least() -> None:
    step_s = np.hypot(50e-9, 2 * 128 * 128 / 1e12)
    of = terms(gemm_sizes(128, 128, 1024), pace=50.0)
    assert np.hypot(of["tensor"], of["ingest"]) == pytest.approx(1024 * step_s, rel=1e-3)


def test_units_draw_so_many_bytes_of_memory_in_a_clock() -> None:
    """100 units at 1 GHz draw 0.5 TB/s at 5 bytes a clock, as much as memory gives, beside the feeds of tiles."""
    free, drawn = (terms(gemm_sizes(100, 200, 300), draw=draw) for draw in (1e9, 5.0))
    assert drawn["memory"] == free["memory"]
    assert drawn["ingest"] ** 2 - free["ingest"] ** 2 == pytest.approx(free["memory"] ** 2, rel=1e-4)
    # A chip that says what its units take in has SMs of as many bytes a clock: 12.8 TB/s is twice 64 a clock of each.
    wider = dataclasses.replace(CHIP, ingest_bytes_per_s=12.8e12)
    of = gemm_times(gemm_sizes(100, 200, 300), wider, dataclasses.replace(PLAIN, draw=5.0)).terms
    assert float(of["ingest"]) ** 2 - free["ingest"] ** 2 == pytest.approx(free["memory"] ** 2 / 4, rel=1e-4)


def test_a_core_far_wider_than_an_sm_works_like_several() -> None:
    """10 cores of 16384 FLOPs a clock are 20 SMs of 8192: 40 tiles take 2 turns, not 4 of tiles twice as fast."""
    chip = dataclasses.replace(CHIP, num_sms=10, peak_flop_per_s=PEAKS.times(10 * 16384 / 1e5))
    cut = dataclasses.replace(PLAIN, pace=50.0)
    of = gemm_times(gemm_sizes(40 * 128, 128, 1024), chip, cut).terms
    turn_s = 1024 * float(np.hypot(2 * 128 * 128 / 8192e9, 50e-9))
    assert float(np.hypot(of["tensor"], of["ingest"])) == pytest.approx(2 * turn_s, rel=1e-3)


def test_small_tiles_lose_time_of_their_own() -> None:
    """A tile of 64 x 64 is a quarter of 128 x 128: 1 + 0.1 * (4 - 1) times its time."""
    small = {"smallest_tile": 4096.0, "feed": 1e3}
    plain, slower = (terms(gemm_sizes(64, 64, 1024), **small, small=s)["tensor"] for s in (0.0, 0.1))
    assert plain == pytest.approx(2 * 64 * 64 * 1024 / 1e12)
    assert slower == pytest.approx(1.3 * plain)


def test_memory_is_each_operand_once_and_the_result() -> None:
    moved = 2 * (100 * 300 + 300 * 200) + 8 * 100 * 200
    assert terms(gemm_sizes(100, 200, 300, c_bytes=8.0))["memory"] == pytest.approx(moved / 0.5e12)


def test_memory_and_tiles_overlap_and_the_rest_adds() -> None:
    """Tiles and memory as the sides of a right angle, the cap close to a maximum with them, the launch on top."""
    of = terms(gemm_sizes(1280, 1280, 1024))
    tiled = float(np.linalg.norm([of["tensor"], of["ingest"], of["memory"]]))
    busy = np.linalg.norm([tiled, of["sustained"]], 8)
    assert seconds(gemm_sizes(1280, 1280, 1024)) == pytest.approx(1e-6 + float(busy))


def test_the_clock_that_power_allows_is_a_floor() -> None:
    flops = 2 * 8192.0**3
    assert seconds(gemm_sizes(8192, 8192, 8192), sustained=0.5) == pytest.approx(1e-6 + flops / 0.5e14, rel=2e-3)


def test_splits_use_idle_units_and_pay_for_adding_up() -> None:
    """One tile of k 12800 on 100 units: 16 splits of 800 in one wave; each writes and reads 4 bytes of 128 x 128."""
    of = terms(gemm_sizes(128, 128, 12800), most_splits=16)
    assert of["tensor"] == pytest.approx(2 * 128 * 128 * 800 / 1e12, rel=1e-3)
    assert of["split"] == pytest.approx(1e-6 + 16 * 8 * 128 * 128 / 4e12)
    assert terms(gemm_sizes(128, 128, 128), most_splits=16)["split"] == 0.0


def test_a_quantised_operand_is_read_whole_and_written_small() -> None:
    plain, quantised = (seconds(gemm_sizes(4096, 4096, 4096, "fp8", quantised=q)) for q in (0.0, 1.0))
    assert quantised - plain == pytest.approx(4096 * 4096 * 3 / 0.5e12)


def test_what_the_cache_still_holds_comes_from_there() -> None:
    """Half of a cache of 10 MB: 1 MB is in it, 5 MB is not; two partitions hold half as much."""
    small, large = gemm_sizes(1, 500, 1000), gemm_sizes(1, 2500, 1000)
    moved = 2 * (1000 + 500 * 1000 + 500)
    assert terms(small, warm=0.5)["memory"] == pytest.approx(moved / 4e12)
    assert terms(large, warm=0.5)["memory"] == terms(large)["memory"]
    halves = dataclasses.replace(CHIP, l2_partitions=2)
    between = gemm_times(small, halves, dataclasses.replace(PLAIN, warm=0.5)).terms["memory"]
    assert terms(small, warm=0.5)["memory"] < float(between) < terms(small)["memory"]


def test_weights_stored_in_fewer_bits_move_fewer_bytes_and_compute_as_activations() -> None:
    stored = gemm_sizes(1, 8192, 8192, "bf16", weights="int4")
    assert stored.unit == "bf16"
    ratio = terms(stored)["memory"] / terms(gemm_sizes(1, 8192, 8192))["memory"]
    assert ratio == pytest.approx(OPERAND_BYTES["int4"] / 2, rel=1e-3)


def test_a_skinny_product_is_its_bytes() -> None:
    """Up to 64 rows the weights decide: 8192 x 8192 in bf16, 134 MB at 0.90 of 3350 GB/s, is 44.5 us and a launch."""
    rows = np.array([1.0, 8.0, 16.0, 32.0, 64.0])
    chip, constants = load_system("dgx-h100").chip, KINDS["bf16"]
    times = gemm_times(gemm_sizes(rows, 8192, 8192), chip, constants).time_s
    moved = 2 * (rows * 8192 + 8192 * 8192 + rows * 8192)
    assert times == pytest.approx(constants.overhead_s + moved / (0.90 * 3350e9), rel=0.1)


@pytest.mark.parametrize(("dtype", "kind"), [("bf16", "bf16"), ("fp16", "bf16"), ("fp32", "fp32"), ("fp4", "nvfp4")])
def test_every_dtype_has_constants(dtype: str, kind: str) -> None:
    assert kind_of(KINDS, *gemm_kinds(dtype)) is KINDS[kind]


def test_a_unit_that_a_chip_lacks_is_named_with_those_it_has() -> None:
    with pytest.raises(UnknownNameError, match=r"fp4.*bf16"):
        gemm_times(gemm_sizes(1, 1, 1, "nvfp4"), CHIP, PLAIN)


def test_only_what_carries_over_is_a_kernels_own() -> None:
    """Overheads and sustained clocks belong to a library, the share of the bandwidth to a chip."""
    scopes = {name: limit.scope for name, limit in limits_of(GemmConstants).items()}
    assert {n for n, s in scopes.items() if s is Scope.LIBRARY} == {"overhead_s", "sustained", "quantise", "warm"}
    assert {n for n, s in scopes.items() if s is Scope.CHIP} == {"memory"}


COUNTS = st.integers(1, 40_000).map(float)
DTYPES = st.sampled_from(["bf16", "tf32", "fp8", "int8"])


@st.composite
def products(draw: st.DrawFn) -> GemmSizes:
    batch = draw(st.sampled_from([1.0, 3.0, 64.0]))
    return gemm_sizes(draw(COUNTS), draw(COUNTS), draw(COUNTS), draw(DTYPES), batch=batch)


@st.composite
def constants(draw: st.DrawFn) -> GemmConstants:
    """Anything within limits; the tiles there are, as shipped."""
    kept = {"smallest_tile": draw(st.sampled_from([4096.0, 16384.0])), "largest_tile": 32768.0}
    free = {
        name: draw(st.floats(limit.low, limit.high)) for name, limit in limits_of(GemmConstants).items()
        if name not in kept
    }  # fmt: skip
    return GemmConstants(**kept, **free)


def faster(chip: Chip, **factors: float) -> Chip:
    given = dataclasses.asdict(chip) | {"peak_flop_per_s": chip.peak_flop_per_s, "host_link": None}
    return Chip(**{name: value * factors.get(name, 1) if name in factors else value for name, value in given.items()})


def at_most(less: float, more: float) -> bool:
    """Whether a time is no longer than another, rounding aside."""
    return less <= more * (1 + 1e-9)


@given(products(), constants(), st.floats(1.0, 8.0))
@settings(max_examples=150, deadline=None)
def test_no_product_slows_on_a_chip_that_is_faster_in_one_thing(
    sizes: GemmSizes, constants: GemmConstants, factor: float
) -> None:
    before = float(gemm_times(sizes, CHIP, constants).time_s)
    for chip in (
        faster(CHIP, hbm_bytes_per_s=factor),
        faster(CHIP, l2_bytes=factor),
        faster(CHIP, clock_hz=factor),
        dataclasses.replace(CHIP, peak_flop_per_s=PEAKS.times(factor)),
    ):
        assert at_most(float(gemm_times(sizes, chip, constants).time_s), before)


@given(products(), constants(), st.integers(1, 300))
@settings(max_examples=100, deadline=None)
def test_more_units_of_the_same_speed_never_slow(sizes: GemmSizes, constants: GemmConstants, more: int) -> None:
    """With the peak of the whole chip kept, more and slower units may leave a last wave emptier: no law there."""
    share = (CHIP.num_sms + more) / CHIP.num_sms
    wider = dataclasses.replace(CHIP, num_sms=CHIP.num_sms + more, peak_flop_per_s=PEAKS.times(share))
    before, after = (float(gemm_times(sizes, chip, constants).time_s) for chip in (CHIP, wider))
    assert at_most(after, before)


@given(products(), constants())
@settings(max_examples=100, deadline=None)
def test_twice_the_units_at_half_the_speed_never_help_without_a_pace(
    sizes: GemmSizes, constants: GemmConstants
) -> None:
    """Every second wave may end half empty, none fuller; only clocks of a step and draws of memory are by the unit."""
    of = dataclasses.replace(constants, pace=0.0, draw=1e9)
    halved = dataclasses.replace(CHIP, num_sms=2 * CHIP.num_sms)
    assert at_most(float(gemm_times(sizes, CHIP, of).time_s), float(gemm_times(sizes, halved, of).time_s))


def grown(sizes: GemmSizes, name: str, more: float) -> GemmSizes:
    s, by = sizes, {name: more}
    return GemmSizes(
        s.m + by.get("m", 0), s.n + by.get("n", 0), s.k + by.get("k", 0), s.unit, s.batch + by.get("batch", 0),
        s.a_bytes + by.get("a_bytes", 0), s.b_bytes + by.get("b_bytes", 0), s.c_bytes + by.get("c_bytes", 0),
        s.quantised,
    )  # fmt: skip


@given(products(), constants(), st.sampled_from(["m", "n", "k", "batch", "a_bytes", "b_bytes", "c_bytes"]), COUNTS)
@settings(max_examples=200, deadline=None)
def test_more_work_never_takes_less_time(sizes: GemmSizes, constants: GemmConstants, name: str, more: float) -> None:
    larger = grown(sizes, name, more)
    assert at_most(*(float(gemm_times(s, CHIP, constants).time_s) for s in (sizes, larger)))


@given(products(), constants())
@settings(max_examples=150, deadline=None)
def test_no_product_beats_its_flops_or_its_bytes(sizes: GemmSizes, constants: GemmConstants) -> None:
    """FLOPs at the peak; bytes at the bandwidth, at the cache's for what it may hold."""
    found = float(gemm_times(sizes, CHIP, constants).time_s) - constants.overhead_s
    m, n, k, batch = (float(x) for x in (sizes.m, sizes.n, sizes.k, sizes.batch))
    moved = batch * (m * k * float(sizes.a_bytes) + k * n * float(sizes.b_bytes) + m * n * float(sizes.c_bytes))
    bandwidth = float(CHIP.hbm_bytes_per_s) * (constants.cache if constants.warm else 1.0)
    assert at_most(2 * m * n * k * batch / float(CHIP.matmul_flop_per_s(sizes.unit)), found + 1e-15)
    assert at_most(moved / bandwidth, found + 1e-15)


@given(products(), constants(), st.integers(2, 50))
@settings(max_examples=100, deadline=None)
def test_a_batch_takes_as_long_as_one_at_least_and_as_its_parts_at_most(
    sizes: GemmSizes, constants: GemmConstants, times: int
) -> None:
    """Its parts one after the other, in a cache that holds nothing: together they may not fit it."""
    cold = dataclasses.replace(constants, warm=0.0)
    many = dataclasses.replace(sizes, batch=sizes.batch * times)
    one, all_of_them = (float(gemm_times(s, CHIP, cold).time_s) for s in (sizes, many))
    assert at_most(one, all_of_them)
    assert at_most(all_of_them, times * one)


@given(products(), constants())
@settings(max_examples=100, deadline=None)
def test_what_a_library_may_do_more_never_costs(sizes: GemmSizes, constants: GemmConstants) -> None:
    found = float(gemm_times(sizes, CHIP, constants).time_s)
    for poorer in ({"most_splits": 1.0}, {"smallest_tile": 16384.0}, {"waves": 1.0}, {"warm": 0.0}):
        assert at_most(found, float(gemm_times(sizes, CHIP, dataclasses.replace(constants, **poorer)).time_s))


@given(st.lists(st.tuples(COUNTS, COUNTS, COUNTS), min_size=1, max_size=30), constants())
@settings(max_examples=50, deadline=None)
def test_a_product_alone_is_the_product_among_many(
    shapes: list[tuple[float, float, float]], constants: GemmConstants
) -> None:
    alone = [gemm_sizes(*shape) for shape in shapes]
    together = gemm_times(stacked(alone * 100), CHIP, constants)
    for i, one in enumerate(gemm_times(size, CHIP, constants) for size in alone):
        assert float(one.time_s) == together.time_s[i] == together.time_s[i + 99 * len(alone)]
        assert all(float(term) == together.terms[name][i] for name, term in one.terms.items())


def test_sizes_broadcast() -> None:
    grid = gemm_times(gemm_sizes(np.arange(1.0, 4.0)[:, None], np.array([64.0, 128.0]), 256.0), CHIP, PLAIN)
    assert grid.time_s.shape == (3, 2)
    assert grid.time_s[2, 1] == seconds(gemm_sizes(3, 128, 256))
    assert grid.bound(0, 0) == "tensor"
