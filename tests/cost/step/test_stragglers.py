"""What a step waits for the slowest of its ranks, against order statistics and against a step without a spread."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from slipstick.backends.machine.load import load_system
from slipstick.cost.step.stragglers import expected_maximum
from slipstick.driver.estimate import estimate
from slipstick.frontend import load
from slipstick.ir.plan import Family, make_plan

SPREAD = 0.013


def order_statistic(ranks: int) -> float:
    """Integrate x n phi(x) Phi(x)^(n-1) over x."""
    x = np.linspace(-8.0, 8.0, 4001)
    below = np.array([NormalDist().cdf(value) for value in x])
    density = np.exp(-x * x / 2.0) / np.sqrt(2.0 * np.pi)
    return float(np.sum(x * ranks * density * below ** (ranks - 1)) * (x[1] - x[0]))


def test_the_asymptote_is_near_the_order_statistics() -> None:
    ranks = (8, 64, 512, 8192)
    found, known = expected_maximum(np.array(ranks, dtype=float)), np.array([order_statistic(n) for n in ranks])
    assert found == pytest.approx(known, rel=0.07)
    # What is used is how much more it is than that of 8.
    assert found - found[0] == pytest.approx(known - known[0], abs=0.12)


def parts(gpus: int, spread: float, system: str = "dgx-h100") -> dict[str, float]:
    plan = make_plan(num_gpus=gpus, seq_len=2048, global_batch=gpus, family=Family(zero=3))
    answer = estimate(load("llama-3.1-8b"), load_system(system, [f"stack.rank_spread={spread}"]), plan)
    return dict(answer.breakdown_s)


def test_a_node_waits_for_nobody_and_more_ranks_for_more() -> None:
    assert parts(8, SPREAD)["stragglers"] == 0.0
    waits = [parts(n, SPREAD)["stragglers"] for n in (16, 128, 1024)]
    assert waits == sorted(waits)
    assert waits[0] > 0.0


def test_it_is_the_spread_of_what_a_rank_does_itself() -> None:
    free, spread = parts(512, 0.0), parts(512, SPREAD)
    assert "stragglers" not in free
    work = sum(s for part, s in free.items() if not part.startswith(("comm.", "offload")))
    more = expected_maximum(np.array([512.0]))[0] - expected_maximum(np.array([8.0]))[0]
    assert spread["stragglers"] == pytest.approx(SPREAD * more * work, rel=1e-12)


@pytest.mark.parametrize("system", ["tpu-v4-pod", "tpu-v5p-pod", "tpu-v6e-pod", "trn2-ultraserver", "hls-gaudi-3"])
def test_systolic_arrays_keep_step_by_the_data_of_stacks(system: str) -> None:
    assert load_system(system).stack.rank_spread == 0.0
    assert load_system(system, stack="megatron-core").stack.rank_spread == 0.0
    assert parts(64, SPREAD, system)["stragglers"] > 0.0
