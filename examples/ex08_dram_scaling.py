"""Inference latency over DRAM technologies: Llama 2 13B, 200 tokens in and 200 out, on one chip and on eight.

The chip is H100 with another memory beside it: bandwidths of a device of such stacks are public figures, that of HBM-X,
a memory to come, is our assumption. A published study of this kind has no public numbers to compare with.
"""

from collections.abc import Sequence

from bounds import STEP_BOUNDS, step_bounds
from drawing import stacked
from matplotlib.axes import Axes
from study import Cell, Table, run

import slipstick

CACHE = slipstick.GraphCache.default()
MODEL, TOKENS_IN, TOKENS_OUT = "llama-2-13b", 200, 200
# A device of the stacks that came with it: 12 chips of GDDR6, V100 and later, A100 80 GB, H100, H200, B200; HBM4 of
# eight stacks of 2 TB/s.
MEMORIES = {
    "GDDR6": "0.768TB/s", "HBM2": "1.2TB/s", "HBM2E": "2.04TB/s", "HBM3": "3.35TB/s", "HBM3E": "4.8TB/s",
    "HBM-X": "6.8TB/s", "HBM3E x8": "8TB/s", "HBM4": "16TB/s",
}  # fmt: skip
REDUCED = ("GDDR6", "HBM2E", "HBM3", "HBM4")
# NVLink 3 and 4, one direction.
LINKS = {"NVLink3": "300GB/s", "NVLink4": "450GB/s"}


def request(
    passes: Sequence[slipstick.Lowered], system: slipstick.System, tp: int
) -> tuple[float, float, dict[str, float]]:
    """Return seconds of the prefill and of all other tokens, and what both wait for.

    Tokens behind the first see 200 to 399 cached ones; a step over 300 stands for each, as its time grows evenly.
    """
    mean = TOKENS_IN + TOKENS_OUT // 2
    seconds, spent = [], dict.fromkeys(STEP_BOUNDS, 0.0)
    for lowered, seq_len, kv_len, times in ((passes[0], TOKENS_IN, 0, 1), (passes[1], mean, mean, TOKENS_OUT)):
        family = slipstick.Family(workload=lowered.source.workload)
        plan = slipstick.make_plan(num_gpus=tp, tp=tp, seq_len=seq_len, kv_len=kv_len, family=family)
        found = slipstick.estimate(lowered.source, system, plan, lowered=lowered)
        seconds.append(times * found.metrics["step_time_s"])
        spent = {bound: spent[bound] + times * s for bound, s in step_bounds(found).items()}
    return seconds[0], seconds[1], spent


def lowered_of(workload: slipstick.Workload) -> slipstick.Lowered:
    """Return the model's pass of a workload, ready to be priced."""
    return slipstick.lower(slipstick.load(MODEL, workload, cache=CACHE), slipstick.Family(workload=workload))


def make(full: bool) -> Table:
    """Estimate every request; the reduced grid has half of the memories and one link."""
    passes = [lowered_of(workload) for workload in (slipstick.Workload.PREFILL, slipstick.Workload.DECODE)]
    rows: list[list[Cell]] = []
    for tp, link in ((1, "NVLink4"), *((8, link) for link in (LINKS if full else ["NVLink4"]))):
        for memory in MEMORIES if full else REDUCED:
            sets = [f"chip.memory.hbm.bandwidth={MEMORIES[memory]}", f"network.nvlink.bandwidth={LINKS[link]}"]
            system = slipstick.load_system("dgx-h100", [*sets, "stack.cuda_graph=true"])
            in_s, out_s, spent = request(passes, system, tp)
            where = f"tp{tp} {link}" if tp > 1 else "tp1"
            rate = float(system.chip.hbm_bytes_per_s) / 1e12
            rows.append([where, memory, rate, in_s + out_s, in_s, out_s, *spent.values()])
    columns = ["chips", "memory", "bandwidth (TB/s)", "latency (s)", "prefill (s)", "decode (s)"]
    return Table([*columns, *(f"waits for {bound} (s)" for bound in STEP_BOUNDS)], rows, [
        "bf16, batch 1, CUDA graphs. Overhead: launches, the fixed work of kernels, second passes of products.",
    ])  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw what a request waits for."""
    names = [f"{chips} {memory}" for chips, memory, *_ in table.rows]
    stacked(panels[0], names, {bound: table.numbers(f"waits for {bound} (s)") for bound in STEP_BOUNDS})
    panels[0].set_ylabel("latency of a request (s)")


if __name__ == "__main__":
    run(__doc__, make, draw)
