"""Attention on MI355X beside timings of AITER's kernels: half of the rows fitted its constants, half judge."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from slipstick.backends.kernels.attention.flash import flash_times
from slipstick.backends.kernels.attention.sizes import AttentionSizes
from slipstick.backends.machine.load import load_system
from slipstick.validation.rows.split import in_first_half

TABLE = Path(__file__).parents[2] / "data" / "mi355x_attention.csv"


def errors() -> dict[str, float]:
    system = load_system("mi355x-platform")
    found = {}
    with TABLE.open() as file:
        for row in csv.DictReader(file):
            names = ("batch", "heads", "kv_heads", "length", "length", "head_dim", "head_dim")
            causal, backward = row["causal"] == "1", row["phase"] == "bwd"
            sizes = AttentionSizes.of(*(float(row[name]) for name in names), causal=causal, backward=backward)
            time_s = float(flash_times(sizes, system.chip, system.kernels.attention["cudnn"]).time_s)
            found[row["id"]] = time_s / (float(row["time_ms"]) * 1e-3) - 1.0
    return found


@pytest.mark.parametrize(("fitted", "median", "p90"), [(True, 0.02, 0.06), (False, 0.025, 0.12)])
def test_kernels_of_aiter(fitted: bool, median: float, p90: float) -> None:
    found = [abs(error) for row, error in errors().items() if in_first_half("attention", row) is fitted]
    assert len(found) >= 10
    assert float(np.median(found)) < median
    assert float(np.quantile(found, 0.9)) < p90


def test_other_chips_of_amd_run_them_at_their_sustained_rate() -> None:
    """No attention is faster than the best product that was found on the chip, here of 8192 tokens by 64 heads."""
    for name, best in (("mi300x", 668e12), ("mi325x", 785e12), ("mi355x", 1565e12)):
        system = load_system(f"{name}-platform")
        for backward in (False, True):
            sizes = AttentionSizes.of(1, 64, 8, 8192, 8192, 128, backward=backward)
            flops = float(sizes.pairs() * sizes.flops_a_pair)
            rate = flops / float(flash_times(sizes, system.chip, system.kernels.attention["cudnn"]).time_s)
            assert 0.6 * best < rate < best
