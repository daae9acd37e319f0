"""Weights in few bits: what widening them adds, counted by hand, and laws of products with two types."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from slipstick.backends.kernels.dequantise import widen_clocks, widens
from slipstick.backends.kernels.experts import ExpertSizes, experts_times
from slipstick.backends.kernels.gemm import GemmMachine, gemm_sizes
from slipstick.backends.kernels.operands import OPERAND_BYTES, UNITS
from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.ir.types import DType


@pytest.fixture(scope="module")
def h100() -> System:
    return load_system("dgx-h100")


def times(system: System, m: float, weights: str | None) -> float:
    machine = GemmMachine.of(system.chip, "bf16", system.kernels.gemm["bf16"], weights)
    return float(machine.times(gemm_sizes(m, 4096, 14336, "bf16", weights=weights)).time_s)


def test_bytes_of_operands_are_those_of_their_types() -> None:
    shared = {d.value for d in DType} & OPERAND_BYTES.keys() - {"int4"}  # int4 alone has no scales as a type
    assert {"int4_group", "mxfp4", "fp8_tile"} <= shared
    assert all(OPERAND_BYTES[name] == DType(name).num_bytes for name in shared)
    assert {"int4_group", "mxfp4", "fp8_tile"} <= UNITS.keys()


@pytest.mark.parametrize("weights", ["int4_group", "mxfp4", "int8", "fp8"])
def test_few_rows_cost_what_their_weights_do(h100: System, weights: str) -> None:
    # 8 rows: 2 bytes a weight, or fewer; widening and launches leave no more than half as much again.
    plain, low = times(h100, 8, None), times(h100, 8, weights)
    share = OPERAND_BYTES[weights] / 2.0
    assert share < low / plain < 1.5 * share + 3e-6 / plain


@pytest.mark.parametrize("weights", ["int4_group", "mxfp4", "int8"])
def test_times_rise_with_rows(h100: System, weights: str) -> None:
    found = [times(h100, m, weights) for m in (1, 8, 16, 64, 256, 1024, 8192)]
    assert found == sorted(found)


def test_a_bank_widens_the_weights_of_each_tile_once(h100: System) -> None:
    # Four experts of 64 x (128 + 64) weights with a row each, and one tile each: 4 x 12288 weights over all SMs.
    one = np.array(1.0)
    sizes = ExpertSizes(
        padded_rows=64 * one, rows=4 * one, touched=4 * one, tokens=4 * one, hidden=64 * one, ffn=64 * one,
        up_width=128 * one, weight_bytes=0.53125 * one,
    )  # fmt: skip
    chip, constants = h100.chip, h100.kernels.experts["bf16"]
    peak, clocks = chip.matmul_flop_per_s("bf16"), widen_clocks("mxfp4")
    plain, low = (experts_times(sizes, peak, chip, constants, c) for c in (0.0, clocks))
    expected = 4 * 64 * (128 + 64) * (7 / 64 + 2 / 128) / 4 / (chip.num_sms * chip.clock_hz)
    assert float(low.terms["widen"]) == pytest.approx(expected)
    assert "widen" not in plain.terms
    products = [float(t.time_s) - sum(float(t.terms[n]) for n in ("overhead", "row_passes", "token_passes"))
                for t in (plain, low)]  # fmt: skip
    assert products[1] == pytest.approx((products[0] ** 4 + expected**4) ** 0.25)
    twice = experts_times(replace(sizes, padded_rows=8 * 64 * one), peak, chip, constants, clocks)
    assert float(twice.terms["widen"]) == pytest.approx(2 * expected)


def test_a_product_widens_the_columns_of_each_tile_along_all_of_k(h100: System) -> None:
    # One tile a unit and nothing but widening: k steps of the fewest columns there are, 64, at so many clocks a weight.
    constants = replace(h100.kernels.gemm["bf16"], prologue=0.0, smallest_tile=4096, most_splits=1)
    machine = GemmMachine.of(h100.chip, "bf16", constants, "int4_group")
    clocks = (3 / 64 + 4 / 128) / 4
    assert machine.widen_s == pytest.approx(clocks / h100.chip.clock_hz)
    alone = replace(machine, compute_squared=0.0 * machine.compute_squared, feed_s=0.0, pace_squared=0.0)
    alone = replace(alone, memory_bytes_per_s=math.inf)
    found = alone.times(gemm_sizes(16, 256, 4096, "bf16", weights="int4_group"))
    assert float(found.terms["ingest"]) == pytest.approx(64 * 4096 * clocks / h100.chip.clock_hz)


def test_units_that_take_both_types_widen_nothing() -> None:
    assert not widens("fp8", "mxfp4")
    assert not widens("bf16", "fp16")
    assert not widens("bf16", None)
