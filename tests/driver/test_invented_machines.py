"""Decode on machines that are no GPUs, beside published rates and beside bytes over bandwidth worked out by hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from slipstick import Family, load, lower, make_plan
from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import Estimate, estimate
from slipstick.ir.graph import Workload
from slipstick.report.bounds import bound_seconds

MACHINES = Path(__file__).parents[1] / "data" / "machines"
FAMILY = Family(workload=Workload.DECODE, kernels="fused")
# Llama-2-13B, one token behind 2,048: 12.85e9 weights of two bytes without the table of embeddings, of which one row
# is read, and keys and values of 40 layers of 5,120.
BYTES = 2 * 12.85e9 + 2048 * 40 * 2 * 5120 * 2
# Above bytes over bandwidth: slack 0.65 over the 0.92 that products reach, 1.79; attention reaches 0.94.
CALIBRATION = 1.8
# What an H100 has if memory is all that holds it back: units that take in what memory gives, and no fixed time.
FREE = ("chip.fixed_time=0us", "chip.memory.ingest.bandwidth=10000TB/s")


@cache
def decode(model: str, machine: str, *overrides: str) -> Estimate:
    system = load_system(MACHINES / machine if machine.endswith(".yaml") else machine, overrides, stack="vllm")
    plan = make_plan(num_gpus=1, family=FAMILY, seq_len=2048, kv_len=2048)
    graph = load(model, Workload.DECODE)
    return estimate(graph, system, plan, lowered=lower(graph, FAMILY))


def test_a_wafer_decodes_about_as_fast_as_published() -> None:
    """Llama 3.1 8B at 1,800 tokens/s a user (Cerebras, August 2024), later 2,100: kernels that cross the wafer.

    32 layers of 9 kernels and 3 around them at 1.73 us are 503 us, 1,990 tokens/s; 16 GB at 21 PB/s are 0.8 us.
    """
    rate = 1.0 / decode("llama-3.1-8b", "wafer_scale.yaml").metrics["step_time_s"]
    assert 1800 <= rate <= 2100
    assert rate == pytest.approx(1 / (291 * 1.73e-6), rel=0.05)
    assert next(iter(bound_seconds(decode("llama-3.1-8b", "wafer_scale.yaml")))) == "launch"


def test_four_wafers_decode_in_turn_and_are_faster_than_first_published() -> None:
    """Llama 3.1 70B is 141 GB, four wafers: a token passes all of them, 20 layers each, and four messages of 16 KiB.

    723 kernels at 1.73 us, and a message with two latencies of 5 us or fewer and its start, are 1.3 to 1.4 ms. Cerebras
    published 450 tokens/s in August 2024; that would take messages of 200 us, which no Ethernet does, so that what is
    missing is no term of the machine.
    """
    system = load_system(MACHINES / "wafer_scale.yaml", stack="vllm")
    family = Family(workload=Workload.DECODE, kernels="fused", pp=True)
    graph = load("llama-3.1-70b", Workload.DECODE)
    plan = make_plan(num_gpus=4, pp=4, family=family, seq_len=2048, kv_len=2048)
    found = estimate(graph, system, plan, lowered=lower(graph, family))
    assert found.fits
    kernels_s = (80 * 9 + 3) * 1.73e-6
    assert kernels_s <= found.metrics["step_time_s"] <= kernels_s + 4 * (2 * 5e-6 + 8192 * 2 / 150e9 + 30e-6)
    assert 450 <= 1.0 / found.metrics["step_time_s"] <= 2 * 450
    alone = decode("llama-3.1-70b", "wafer_scale.yaml").metrics["step_time_s"]
    assert found.metrics["step_time_s"] > alone  # one that held all of it would have no messages


@pytest.mark.parametrize(
    ("machine", "tb_per_s", "overrides"),
    [
        ("lpu.yaml", 80, ("chip.memory.hbm.capacity=64GB",)),  # SRAM of so many chips, as one
        ("dgx-h100", 16, FREE),  # HBM4: 8 stacks of 2 TB/s
        ("dgx-h100", 60, FREE),  # 3D-stacked DRAM
        ("wafer_scale.yaml", 1000, ("chip.fixed_time=0us",)),  # compute in memory
    ],
)
def test_a_machine_held_back_by_memory_alone_takes_its_bytes(
    machine: str, tb_per_s: int, overrides: tuple[str, ...]
) -> None:
    """27.4 GB at 16, 60, 80 and 1,000 TB/s: 1.71 ms, 456, 342 and 27.4 us, and no more above it than kernels lose."""
    found = decode("llama-2-13b", machine, f"chip.memory.hbm.bandwidth={tb_per_s}TB/s", *overrides)
    light = BYTES / (tb_per_s * 1e12)
    assert light <= found.metrics["step_time_s"] <= light * CALIBRATION + ELSEWHERE[machine]


# Attention of GPUs beside its bytes: thread blocks of 1,430 clocks and rows of 240, rows and columns of norms and
# pointwise kernels, 40 layers: 20 us a layer at most. Elsewhere padded heads on arrays.
ELSEWHERE = {"dgx-h100": 40 * 20e-6, "lpu.yaml": 0.2e-3, "wafer_scale.yaml": 20e-6}


def test_on_chip_ingest_bounds_a_gpu_whose_memory_alone_is_faster() -> None:
    """132 SMs take 55 bytes a clock of 1.98 GHz each, 14 TB/s: 26 GB of weights take 1.8 ms whatever the memory."""
    at_60, at_1000 = (decode("llama-2-13b", "dgx-h100", f"chip.memory.hbm.bandwidth={bw}TB/s") for bw in (60, 1000))
    assert at_1000.metrics["step_time_s"] == pytest.approx(at_60.metrics["step_time_s"], rel=0.02)
    assert next(iter(bound_seconds(at_1000))) == "ingest"
    assert at_1000.metrics["step_time_s"] >= 2 * 12.85e9 / (132 * 64 * 1.98e9)
    wider = decode("llama-2-13b", "dgx-h100", "chip.memory.hbm.bandwidth=1000TB/s", FREE[1])
    assert wider.metrics["step_time_s"] < 0.5 * at_1000.metrics["step_time_s"]
