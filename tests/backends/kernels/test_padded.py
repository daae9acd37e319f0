"""Products on chips that nobody has built: near the roofline of their padded rows, from 1 to 1,000 FLOP/B."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from slipstick.backends.kernels.attention.sizes import AttentionSizes
from slipstick.backends.kernels.experts import ExpertSizes
from slipstick.backends.kernels.gemm import GemmConstants, GemmSizes, gemm_sizes, gemm_times, stacked
from slipstick.backends.kernels.limits import ANY, FITTED
from slipstick.backends.kernels.operands import OPERAND_BYTES, unit_of
from slipstick.backends.kernels.padded import PaddedRoofline
from slipstick.backends.kernels.rowwise import RowwiseSizes
from slipstick.backends.kernels.terms import Array
from slipstick.backends.machine.chip import Chip, Peaks, SystolicArray
from slipstick.backends.machine.load import load_system
from slipstick.validation.kernels.attention import TimedAttention
from slipstick.validation.kernels.collectives import CollectiveSizes
from slipstick.validation.kinds import kernel_judges
from slipstick.validation.rows.cases import Case
from slipstick.validation.rows.gather import CasePool, gather
from slipstick.validation.rows.machine_room import MachineRoom
from slipstick.validation.rows.tables import read_table

NUM_CHIPS = 1000
SHAPES = ((1, 5120, 5120), (1, 64, 16384), (3, 13824, 5120), (16, 32000, 4096), (64, 1024, 8192), (2048, 5120, 5120))
DTYPES = ("bf16", "fp32", "fp8", "nvfp4")
ROUNDING = 1.0 + 1e-9
FORMS = {"SMs": None, "arrays": SystolicArray(128, 128), "dataflow": None}


def random_chips(form: str) -> Chip:
    """A table of chips whose bf16 peak is 1 to 1,000 FLOP a byte of memory, evenly over the logarithm."""
    rng = np.random.default_rng(44)

    def some(low: float, high: float) -> Array:
        return np.exp(rng.uniform(np.log(low), np.log(high), NUM_CHIPS))

    peak = some(1e13, 1e16)
    peaks = Peaks(peak, peak, peak / 2, peak / 8, peak * 2, peak * 2, fp4=peak * 4)
    return Chip(
        name=form, peak_flop_per_s=peaks, vector_flop_per_s=peak / some(4, 64), clock_hz=some(5e8, 3e9),
        hbm_bytes=np.full(NUM_CHIPS, 1e11), hbm_bytes_per_s=peak / some(1, 1000), power_w=np.full(NUM_CHIPS, 500.0),
        num_sms=1 if form == "dataflow" else np.floor(some(2, 1000)), array=FORMS[form],
        l2_bytes=0.0 if form == "dataflow" else 5e7, ingest_bytes_per_s=some(1e13, 1e17) if form == "SMs" else None,
    )  # fmt: skip


def calls(form: str) -> Iterator[tuple[GemmSizes, GemmConstants]]:
    kernels = load_system("tpu-v5p-pod" if form == "arrays" else "dgx-b200").kernels
    for dtype in DTYPES:
        for m, n, k in SHAPES:
            yield gemm_sizes(m, n, k, dtype), kernels.gemm[dtype]


def roofline_s(chip: Chip, sizes: GemmSizes, dtype: str) -> Array:
    """The slowest of memory, on-chip ingest and padded FLOPs at the rates of the data sheet, written out by hand."""
    m, n, k, each = float(sizes.m), float(sizes.n), float(sizes.k), OPERAND_BYTES[dtype]
    moved = each * (m * k + k * n) + 2.0 * m * n
    # Instructions of GPUs take 8 rows; an array of 128 takes its weights in the time of 128; dataflow pads nothing.
    rows = {"SMs": 8.0 * np.ceil(m / 8.0), "arrays": max(m, 128.0), "dataflow": m}[chip.name]
    flops = 2.0 * rows * n * k  # all widths in SHAPES are whole arrays but 64 columns, which fill half of one
    flops *= 2.0 if chip.name == "arrays" and n == 64 else 1.0
    levels: list[Array | float] = [moved / chip.hbm_bytes_per_s, flops / chip.matmul_flop_per_s(unit_of(dtype))]
    if chip.ingest_bytes_per_s is not None:
        levels.append(moved / chip.ingest_bytes_per_s)
    return np.asarray(np.max(np.broadcast_arrays(*levels), axis=0))


@pytest.mark.parametrize("form", FORMS)
def test_a_product_is_within_its_calibration_of_the_roofline_of_padded_rows(form: str) -> None:
    """T <= max(bytes / BW of each level, FLOPs of padded rows / peak) (1 + calibration) + fixed, on 1,000 chips."""
    chip = random_chips(form)
    for dtype, (sizes, c) in zip(np.repeat(DTYPES, len(SHAPES)), calls(form), strict=True):
        time_s = gemm_times(sizes, chip, c).time_s
        calibration = (1.0 + c.slack) / min(c.memory, c.sustained, c.draw / 64.0)
        bound = roofline_s(chip, sizes, str(dtype)) * calibration + c.overhead_s + c.ramp_s
        assert np.all(time_s <= bound * ROUNDING), (dtype, sizes.m)
        # Nothing is faster than its bytes through memory.
        assert np.all(time_s * ROUNDING >= roofline_memory_s(chip, sizes)), (dtype, sizes.m)


def roofline_memory_s(chip: Chip, sizes: GemmSizes) -> Array:
    moved = sizes.m * sizes.k * sizes.a_bytes + sizes.k * sizes.n * sizes.b_bytes + sizes.m * sizes.n * sizes.c_bytes
    return np.asarray(moved / chip.hbm_bytes_per_s)


@pytest.mark.parametrize("form", FORMS)
def test_more_bandwidth_peak_or_ingest_never_slows_a_product(form: str) -> None:
    chip = random_chips(form)
    better = {
        "memory": replace(chip, hbm_bytes_per_s=chip.hbm_bytes_per_s * 2.0),
        "peak": replace(chip, peak_flop_per_s=chip.peak_flop_per_s.times(2.0)),
        "vector": replace(chip, vector_flop_per_s=chip.vector_flop_per_s * 2.0),
    }
    if chip.ingest_bytes_per_s is not None:
        better["ingest"] = replace(chip, ingest_bytes_per_s=chip.ingest_bytes_per_s * 2.0)
    for sizes, c in calls(form):
        before = gemm_times(sizes, chip, c).time_s
        for part, faster in better.items():
            assert np.all(gemm_times(sizes, faster, c).time_s <= before * ROUNDING), (part, sizes.m)


def test_an_array_that_says_its_ingest_pads_no_rows() -> None:
    """One row on arrays of 320 x 320: weights at a row of each array a clock take as long as 320 rows of products."""
    peaks = Peaks(1.88e14, 1.88e14, None, 1e13, None, None)
    chip = Chip("arrays", peaks, 1e11, 9e8, 2.3e8, 8e13, 215.0, array=SystolicArray(320, 320))
    moved = 2 * (3200.0 + 3200.0**2)
    one_row = [np.array(x) for x in (1.0, 3200.0, 3200.0, 1.0, moved)]
    computed, _, loaded = PaddedRoofline.of(chip, 8e13, np.inf, 1.88e14).seconds(*one_row)
    assert (float(computed), float(loaded)) == pytest.approx((320 * 2 * 3200.0**2 / 1.88e14, moved / 8e13))
    fed = replace(chip, ingest_bytes_per_s=4e13)
    computed, ingest, _ = PaddedRoofline.of(fed, 8e13, 4e13, 1.88e14).seconds(*one_row)
    assert (float(computed), float(ingest)) == pytest.approx((2 * 3200.0**2 / 1.88e14, moved / 4e13))


def rows_of(table: str = "gemm") -> tuple[CasePool, ...]:
    rows = read_table(Path(__file__).parents[2] / "validation" / f"{table}.csv", [])
    return gather(kernel_judges()[table], rows, MachineRoom(), []).pools


def test_measured_products_are_below_the_padded_roofline_and_keep_their_tiles() -> None:
    """Of the published rows 98 in 100 lie below what slack and ramp allow, and no prediction of a row is cut by it."""
    below: list[bool] = []
    for pool in rows_of():
        cases = [case for case in pool.cases if not case.outlier]
        sizes, c = stacked([cast("GemmSizes", case.sizes) for case in cases]), pool.constants
        assert isinstance(c, GemmConstants)
        tiled = gemm_times(sizes, pool.system.chip, c)
        assert not np.any(tiled.terms["ramp"])
        # Without tiles that a chip could keep, all of a product is its padded roofline.
        cut = gemm_times(sizes, pool.system.chip, replace(c, tensor=1e-6))
        below += [case.measured_s <= most for case, most in zip(cases, cut.time_s, strict=True)]
    assert np.mean(below) >= 0.98


def inputs_of(pool: CasePool, case: Case[object]) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Yield class and kind of the constants that a row judges, and its inputs; of experts both products."""
    sizes, chip = (case.sizes.sizes if isinstance(case.sizes, TimedAttention) else case.sizes), pool.system.chip
    memory = float(chip.hbm_bytes_per_s)
    if isinstance(sizes, GemmSizes):
        rate = float(chip.matmul_flop_per_s(sizes.unit)) / memory
        yield "products", pool.kind, {"m": float(sizes.m), "n": float(sizes.n), "k": float(sizes.k), "FLOP/B": rate}
    elif isinstance(sizes, AttentionSizes):
        lengths = {"q": float(sizes.q_len), "kv": float(sizes.kv_len), "head": float(sizes.qk_dim)}
        yield "attention", ANY, {**lengths, "FLOP/B": float(chip.matmul_flop_per_s("bf16")) / memory}
    elif isinstance(sizes, ExpertSizes):
        rate = float(chip.matmul_flop_per_s(unit_of(pool.kind))) / memory
        for n, k in ((sizes.up_width, sizes.hidden), (sizes.hidden, sizes.ffn)):
            rows = {"rows": float(np.max(sizes.rows)), "n": float(np.max(n)), "k": float(np.max(k))}
            yield "experts", pool.kind, {**rows, "FLOP/B": rate}
    elif isinstance(sizes, RowwiseSizes):
        yield "element-wise", ANY, {"bytes": float(sizes.num_bytes), "TB/s": memory / 1e12}
    elif isinstance(sizes, CollectiveSizes):
        yield "messages", ANY, {"bytes": float(sizes.num_bytes), "ranks": float(sizes.group_size)}


def test_the_ranges_of_fits_are_those_of_the_rows() -> None:
    """Sizes to the digit, rates within the rounding of the table."""
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for table in kernel_judges():
        for pool in rows_of(table):
            for case in pool.cases:
                for cls, kind, inputs in inputs_of(pool, case):
                    found.setdefault((cls, kind), []).append(inputs)
    assert set(found) == {(cls, kind) for cls, kinds in FITTED.items() for kind in kinds}
    for (cls, kind), rows in found.items():
        for name, ends in FITTED[cls][kind].items():
            told = [row[name] for row in rows]
            near = 0.02 if "/" in name else 1e-12
            assert (min(told), max(told)) == pytest.approx(ends, rel=near), (cls, kind, name)
