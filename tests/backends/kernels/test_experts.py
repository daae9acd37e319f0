"""Experts of a rank and grouped products: padding, touched weights, imbalance, and what must always hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.kernels.experts import ExpertsConstants, ExpertSizes, experts_times, of_loads, of_mean
from slipstick.backends.kernels.grouped import GroupedConstants, GroupedSizes, PaddedGroups, grouped_times, padded
from slipstick.backends.kernels.loads import balanced_loads, power_law_loads
from slipstick.backends.kernels.operands import unit_of
from slipstick.backends.kernels.padded import ingest_of
from slipstick.backends.kernels.terms import Array
from slipstick.backends.machine.chip import Chip, Peaks, SystolicArray
from slipstick.backends.machine.load import load_system
from slipstick.validation.kinds import kernel_judges
from slipstick.validation.rows.gather import gather
from slipstick.validation.rows.machine_room import MachineRoom
from slipstick.validation.rows.tables import read_table

H100 = load_system("dgx-h100").chip
PEAK = H100.matmul_flop_per_s("bf16")
ONE = ExpertsConstants(overhead_s=20e-6, tensor=0.8, memory=0.8, row_passes=3.0, token_passes=5.0)


def array(x: float) -> Array:
    return np.array(float(x))


def bank(loads: Array, tokens: float = 4096.0) -> ExpertSizes:
    return of_loads(loads, array(tokens), array(4096), array(1536), True, "bf16")


def mean_bank(rows: float, tokens: float) -> ExpertSizes:
    return replace(bank(np.zeros(1), tokens), rows=array(rows))


def seconds(sizes: ExpertSizes) -> float:
    return float(experts_times(sizes, PEAK, H100, ONE).time_s)


def test_each_term_by_hand() -> None:
    # 3 x 4096 x 1536 weights an expert; experts of 100 and 0 and 64 rows pad to 128 + 64; two are read.
    times = experts_times(bank(np.array([100.0, 0.0, 64.0])), PEAK, H100, ONE)
    weights = 3 * 4096 * 1536
    assert float(times.terms["tensor"]) == pytest.approx(2 * weights * 192 / (0.8 * 989e12))
    assert float(times.terms["weights"]) == pytest.approx(2 * weights * 2 / (0.8 * 3.35e12))
    assert float(times.terms["row_passes"]) == pytest.approx(3 * 2 * 164 * (2 * 4096 + 3 * 1536) / 3.35e12)
    assert float(times.terms["token_passes"]) == pytest.approx(5 * 2 * 4096 * 4096 / 3.35e12)
    products = np.hypot(times.terms["tensor"], times.terms["weights"])
    passes = times.terms["row_passes"] + times.terms["token_passes"]
    assert float(times.time_s) == pytest.approx(20e-6 + products + passes)


def test_backward_is_twice_forward_but_for_the_launches() -> None:
    forward = bank(np.full(8, 512.0))
    assert seconds(replace(forward, passes=2.0)) - 20e-6 == pytest.approx(2 * (seconds(forward) - 20e-6))


def power_law_imbalance(tokens: int, num_experts: int, top_k: int, ep: int, exponent: float) -> float:
    """Rows of the busiest rank over the mean, averaged over draws."""
    loads = power_law_loads(tokens, num_experts, top_k, ep, exponent)
    return float(loads.sum(axis=1).mean() / (tokens * top_k / ep))


@given(st.integers(1, 5000), st.sampled_from([(8, 2, 8), (64, 6, 8), (256, 8, 16), (128, 8, 1)]))
def test_no_row_is_lost_and_none_is_taken_twice(tokens: int, shape: tuple[int, int, int]) -> None:
    experts, top_k, ep = shape
    whole = power_law_loads(tokens, experts, top_k, 1, 1.2, 4)
    assert (whole.sum(axis=1) == tokens * top_k).all()
    assert whole.max() <= tokens
    assert whole.min() >= 0
    assert balanced_loads(tokens, experts, top_k, 1).sum() == tokens * top_k
    assert 1.0 <= power_law_imbalance(tokens, experts, top_k, ep, 1.2) <= ep


def test_draws_are_the_same_every_time_and_more_skewed_with_the_exponent() -> None:
    power_law_loads.cache_clear()
    first = power_law_loads(4096, 128, 8, 32, 1.2)
    power_law_loads.cache_clear()
    assert (power_law_loads(4096, 128, 8, 32, 1.2) == first).all()
    assert power_law_imbalance(4096, 128, 8, 32, 1.6) > power_law_imbalance(4096, 128, 8, 32, 1.01) > 1.5
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0] = 1.0


def test_a_level_is_reached_as_if_units_were_added_one_by_one() -> None:
    # Two experts are drawn full; what is missing goes to the least loaded. One token: never two rows on one expert.
    assert sorted(power_law_loads(1, 8, 2, 1, 1.2, 1)[0].tolist()) == [0, 0, 0, 0, 0, 0, 1, 1]


@given(st.floats(0.0, 1e5), st.floats(1.0, 3.0), st.sampled_from([1.0, 4.0, 32.0]))
def test_more_rows_and_more_imbalance_never_cost_less(rows: float, factor: float, experts: float) -> None:
    mean = of_mean(mean_bank(rows, 4096), array(experts), array(1), "bf16")
    more = of_mean(mean_bank(rows * factor, 4096), array(experts), array(1), "bf16")
    skewed = of_mean(mean_bank(rows, 4096), array(experts), array(factor), "bf16")
    assert seconds(mean) <= seconds(more) * (1 + 1e-12)
    assert seconds(mean) <= seconds(skewed) * (1 + 1e-12)


@pytest.mark.parametrize("tokens", [256, 4096, 16384])
def test_the_factor_of_imbalance_stands_for_the_draws(tokens: int) -> None:
    """Estimates know the busiest rank's rows, not how they lie on its experts: within 8 % of the mean over draws."""
    loads = power_law_loads(tokens, 128, 8, 8, 1.2)
    drawn = experts_times(bank(loads, tokens), PEAK, H100, ONE).time_s.mean()
    factor = power_law_imbalance(tokens, 128, 8, 8, 1.2)
    sizes = of_mean(mean_bank(tokens * 8 / 8, tokens), array(16), array(factor), "bf16")
    assert seconds(sizes) == pytest.approx(float(drawn), rel=0.08)


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=32))
def test_time_is_above_what_flops_and_weights_take(rows: list[int]) -> None:
    loads = np.array(rows, dtype=np.float64)
    weights = 3 * 4096 * 1536
    least = max(2 * weights * loads.sum() / PEAK, 2 * weights * (loads > 0).sum() / H100.hbm_bytes_per_s)
    assert seconds(bank(loads)) >= least


@given(st.integers(0, 20000))
def test_even_loads_pad_least_but_for_a_tile_an_expert(rows: int) -> None:
    even = np.full(8, rows // 8) + (np.arange(8) < rows % 8)
    assert rows <= padded(even.astype(np.float64), 64) < rows + 8 * 64


def test_a_bank_is_priced_as_among_many() -> None:
    loads = power_law_loads(1000, 64, 4, 4, 1.2)
    many = experts_times(bank(loads), PEAK, H100, ONE).time_s
    assert many.tolist() == [seconds(bank(one)) for one in loads]


def test_grouped_products_by_hand() -> None:
    sizes = GroupedSizes(array(8192), array(8000), array(4), array(4096), array(7168), 1.0, 2.0)
    times = grouped_times(sizes, 1979e12, H100, GroupedConstants(5e-6, 0.7, 0.8))
    flops, moved = 2 * 8192 * 4096 * 7168, 4 * 4096 * 7168 + 8000 * (7168 + 2 * 4096)
    assert float(times.time_s) == pytest.approx(5e-6 + np.hypot(flops / (0.7 * 1979e12), moved / (0.8 * 3.35e12)))
    assert times.bound() == "tensor"
    # Matrices in half a byte an element: rows keep theirs. A clock a weight over all units, once each 64 padded rows.
    low = grouped_times(replace(sizes, matrix_bytes=0.5), 1979e12, H100, GroupedConstants(5e-6, 0.7, 0.8), 1.0)
    fewer = 4 * 4096 * 7168 * 0.5 + 8000 * (7168 + 2 * 4096)
    widen = 4096 * 7168 * (8192 / 64) / (H100.num_sms * H100.clock_hz)
    assert float(low.terms["memory"]) == pytest.approx(fewer / (0.8 * 3.35e12))
    assert float(low.terms["widen"]) == pytest.approx(widen)
    products = np.hypot(flops / (0.7 * 1979e12), fewer / (0.8 * 3.35e12))
    assert float(low.time_s) == pytest.approx(5e-6 + (products**4 + widen**4) ** 0.25)


def test_measured_banks_keep_their_tiles() -> None:
    """Predictions of published rows keep their tiles: at 100 to 300 FLOP/B 64 rows take less than their weights."""
    table = read_table(Path(__file__).parents[2] / "validation" / "moe.csv", [])
    changed: list[float] = []
    for pool in gather(kernel_judges()["moe"], table, MachineRoom(), []).pools:
        chip, c, kind = pool.system.chip, pool.constants, pool.kind.split("_")[0]
        if not isinstance(c, ExpertsConstants | GroupedConstants):
            continue
        peak = chip.matmul_flop_per_s(unit_of(kind))
        most = PaddedGroups.of(chip, chip.hbm_bytes_per_s * c.memory, peak * c.tensor, pool.system.kernels.gemm[kind])
        for case in pool.cases:
            sizes = case.sizes
            if isinstance(sizes, ExpertSizes) and isinstance(c, ExpertsConstants):
                tiled, held = (experts_times(sizes, peak, chip, c, 0.0, one).time_s for one in (None, most))
            elif isinstance(sizes, GroupedSizes) and isinstance(c, GroupedConstants):
                tiled, held = (grouped_times(sizes, peak, chip, c, 0.0, one).time_s for one in (None, most))
            else:
                continue
            changed += [abs(float(held.mean() / tiled.mean()) - 1.0)]
    assert len(changed) > 400
    assert max(changed) < 5e-4  # two banks, a few of whose drawn loads are most uneven
    assert np.mean(np.array(changed) > 0.0) < 0.005


@settings(max_examples=300, deadline=None)
@given(
    st.floats(0.5e12, 500e12),
    st.floats(1.0, 1000.0),
    st.integers(1, 400),
    st.sampled_from([None, SystolicArray(128, 128), SystolicArray(8, 8)]),
    st.floats(1.0, 4096.0),
    st.sampled_from([1, 8, 64]),
)
def test_groups_are_below_their_padded_roofline_on_any_chip(
    bandwidth: float, ratio: float, sms: int, array: SystolicArray | None, rows: float, groups: int
) -> None:
    """Chips of 1 to 1,000 FLOP/B: bytes over each level's rate, padded rows over the peak, slack, start."""
    peak = bandwidth * ratio
    peaks = Peaks(peak, peak, None, peak / 16, peak * 2, None)
    chip = Chip("any", peaks, peak / 16, 1.5e9, 80e9, bandwidth, 700.0, num_sms=sms, l2_bytes=5e7, array=array)
    c, like = GroupedConstants(5e-6, 0.7, 0.8), load_system("dgx-h100").kernels.gemm["bf16"]
    most, tile = PaddedGroups.of(chip, chip.hbm_bytes_per_s * c.memory, peak * c.tensor, like), 64
    n = k = np.array(4096.0)
    each, routed = np.array(float(groups)), np.array(rows * groups)
    sizes = GroupedSizes(np.ceil(rows / tile) * tile * each, routed, each, n, k, 2.0, 2.0)
    found = grouped_times(sizes, peak, chip, c, 0.0, most)
    moved = float(each * n * k * 2.0 + routed * (k * 2.0 + n * 2.0))
    # 8 rows of an instruction, or a whole column of an array; a row a clock while it takes its weights.
    step, least, inner = (8.0, 1.0, 1.0) if array is None else (1.0, float(array.inner), float(array.inner))
    padded_rows = max(np.ceil((rows + (3.5 if array is None and rows > 1 else 0.0)) / step) * step, least)
    columns = 4096.0 if array is None else np.ceil(4096 / array.columns) * array.columns
    flops = 2.0 * padded_rows * columns * np.ceil(4096 / inner) * inner * groups
    ingest = float(moved / ingest_of(chip, like.draw))
    bound = max(moved / (c.memory * bandwidth), ingest, flops / (c.tensor * peak))
    assert float(found.time_s) <= 5e-6 + like.ramp_s + (1.0 + like.slack) * bound * (1 + 1e-9)
    assert float(found.time_s) >= ingest
