"""Kernel times on a made-up chip, derived by hand: 50 TFLOP/s, 2 vector TFLOP/s, 0.8 TB/s reached, 2 us a launch."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.kernels.terms import KernelTimes
from slipstick.backends.machine.system import System
from slipstick.backends.pricing.program import PricedEntry, group_of
from slipstick.backends.pricing.roofline import Roofline
from slipstick.ir.graph import Phase
from slipstick.ir.ops import OpClass, Work
from slipstick.ir.ops.base import AttentionShape, GemmShape
from slipstick.ir.sizes.expr import as_expr
from slipstick.ir.sizes.masking import executed_share
from slipstick.ir.types import DType

LAUNCH_S = 2e-6


def entry(work: Work, dtype: DType = DType.BF16) -> PricedEntry:
    return PricedEntry("r", 1, "op", OpClass.MATMUL, Phase.FORWARD, "a.b", 1, dtype, work)


def gemm(m: int, n: int, k: int) -> Work:
    moved = 2 * (m * k + n * k)
    shape = GemmShape(as_expr(1), as_expr(m), as_expr(n), as_expr(k))
    return Work(as_expr(2 * m * n * k), read_bytes=as_expr(moved), write_bytes=as_expr(2 * m * n), gemms=(shape,))


def attention(q: int, kv: int, causal: bool, window: int = 0) -> Work:
    one = as_expr(1)
    shape = AttentionShape(one, one, one, as_expr(q), as_expr(kv), 128, 128, causal, window, 2)
    return Work(as_expr(512 * q * kv), as_expr(7 * q * kv), as_expr(512), as_expr(512), attention=shape)


def price(system: System, *entries: PricedEntry) -> KernelTimes:
    group = group_of((), entries)
    return Roofline().bind(group, system)(group.amounts({}, 1))


def test_a_large_matmul_is_bound_by_the_tensor_units(made_up: System) -> None:
    times = price(made_up, entry(gemm(4096, 4096, 4096)))
    # 2 x 4096^3 = 137.4 GFLOP at 100 TFLOP/s x 0.5; 3 x 4096^2 x 2 B at 1 TB/s x 0.8.
    assert times.terms["tensor"][0, 0] == pytest.approx(137438953472 / 50e12, rel=1e-12)
    assert times.terms["memory"][0, 0] == pytest.approx(100663296 / 0.8e12, rel=1e-12)
    assert times.time_s[0, 0] == pytest.approx(137438953472 / 50e12 + LAUNCH_S, rel=1e-12)
    assert times.bound(0, 0) == "tensor"


def test_a_thin_matmul_is_bound_by_memory(made_up: System) -> None:
    times = price(made_up, entry(gemm(1, 8192, 8192)))
    # 2 x (8192 + 8192^2 + 8192) B at 0.8 TB/s; its 134 MFLOP take 2.7 us.
    assert times.time_s[0, 0] == pytest.approx(2 * (8192**2 + 2 * 8192) / 0.8e12 + LAUNCH_S, rel=1e-12)
    assert times.bound(0, 0) == "memory"


def test_vector_code_is_bound_by_the_vector_units(made_up: System) -> None:
    times = price(made_up, entry(Work(vector_flops=as_expr(10**9), read_bytes=as_expr(10**6))))
    # 1 GFLOP at 8 TFLOP/s x 0.25.
    assert times.time_s[0, 0] == pytest.approx(0.5e-3 + LAUNCH_S, rel=1e-12)
    assert times.bound(0, 0) == "vector"


def test_a_small_kernel_is_bound_by_its_launch(made_up: System) -> None:
    times = price(made_up, entry(Work(read_bytes=as_expr(8))))
    assert times.time_s[0, 0] == pytest.approx(1e-11 + LAUNCH_S, rel=1e-12)
    assert times.bound(0, 0) == "launch"


def test_the_peak_is_that_of_the_operands(made_up: System) -> None:
    times = price(made_up, entry(gemm(512, 512, 512)), entry(gemm(512, 512, 512), DType.FP32))
    # 100 TFLOP/s for bf16, 10 for fp32.
    assert times.terms["tensor"][1, 0] == pytest.approx(10 * times.terms["tensor"][0, 0], rel=1e-12)


def test_vector_code_needs_no_tensor_peak_of_its_type(made_up: System) -> None:
    times = price(made_up, entry(Work(read_bytes=as_expr(800)), DType.INT64))
    assert times.time_s[0, 0] == pytest.approx(1e-9 + LAUNCH_S, rel=1e-12)


@pytest.mark.parametrize(
    ("q", "kv", "causal", "window", "share"),
    [
        (4, 4, False, 0, 1.0),
        (4, 4, True, 0, 10 / 16),  # 1 + 2 + 3 + 4 of 16
        (1, 1000, True, 0, 1.0),  # a decode step sees all that is cached
        (2, 6, True, 0, 11 / 12),  # 5 + 6 of 12
        (4, 4, True, 2, 7 / 16),  # 1 + 2 + 2 + 2
        (1, 1000, True, 100, 0.1),
        (4096, 4096, True, 8192, 4097 / 8192),  # a window longer than the sequence changes nothing
    ],
)
def test_masked_positions_cost_nothing(
    made_up: System, q: int, kv: int, causal: bool, window: int, share: float
) -> None:
    times = price(made_up, entry(attention(q, kv, causal, window)))
    assert times.terms["tensor"][0, 0] == pytest.approx(512 * q * kv * share / 50e12, rel=1e-12)
    assert times.terms["vector"][0, 0] == pytest.approx(7 * q * kv * share / 2e12, rel=1e-12)


def test_each_attention_of_a_group_has_its_own_mask(made_up: System) -> None:
    times = price(made_up, entry(attention(8, 8, False)), entry(gemm(8, 8, 8)), entry(attention(8, 8, True)))
    assert times.terms["tensor"][2, 0] / times.terms["tensor"][0, 0] == pytest.approx(36 / 64, rel=1e-12)
    assert times.terms["tensor"][1, 0] == pytest.approx(1024 / 50e12, rel=1e-12)


@given(st.integers(1, 24), st.integers(0, 24), st.integers(0, 30))
def test_the_share_of_a_causal_mask_is_what_counting_gives(q: int, cached: int, window: int) -> None:
    kv = q + cached
    # Query i stands at position cached + i and sees keys 0..cached + i, the last `window` of them if there is one.
    seen = sum(min(cached + i + 1, window or kv) for i in range(q))
    share = executed_share(np.array(float(q)), np.array(float(kv)), True, window)
    assert float(share) == pytest.approx(seen / (q * kv), rel=1e-12)


@given(st.integers(0, 2**20), st.integers(0, 2**20), st.integers(1, 2**20), st.floats(1.0, 100.0))
def test_a_faster_chip_is_never_slower(made_up: System, tensor: int, vector: int, moved: int, factor: float) -> None:
    work = Work(as_expr(tensor), as_expr(vector), as_expr(moved), gemms=gemm(1, 1, 1).gemms)
    before = float(price(made_up, entry(work)).time_s[0, 0])
    chip = made_up.chip
    peaks = chip.peak_flop_per_s.times(factor)
    for faster in (
        dataclasses.replace(chip, peak_flop_per_s=peaks),
        dataclasses.replace(chip, vector_flop_per_s=chip.vector_flop_per_s * factor),
        dataclasses.replace(chip, hbm_bytes_per_s=chip.hbm_bytes_per_s * factor),
    ):
        after = float(price(dataclasses.replace(made_up, chip=faster), entry(work)).time_s[0, 0])
        assert LAUNCH_S <= after <= before


def test_only_numbers_of_units_in_use_are_named(made_up: System) -> None:
    def peaks(work: Work) -> list[str]:
        return [n for n in Roofline().numbers(entry(work), made_up) if n.startswith(("chip.matmul", "chip.vector"))]

    assert peaks(gemm(8, 8, 8)) == ["chip.matmul.bf16"]
    assert peaks(Work(vector_flops=as_expr(1), read_bytes=as_expr(2))) == ["chip.vector.fp32"]
    assert peaks(Work(read_bytes=as_expr(2))) == []
