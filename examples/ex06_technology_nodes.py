"""Technology nodes from N12 to N1: a training step of a 7B GPT on 1024 accelerators of equal area and power.

The technology engine builds each chip from 826 mm2 and 400 W with units of A100, and stacks of HBM from 2 to 4 beside
it; nodes of eight are joined by InfiniBand of one port a chip. How logic, caches and power scale is our reading of
published studies (`docs/technology.md`), not their numbers, and so are no results of theirs.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from bounds import BOUNDS, STEP_BOUNDS, product_shares, step_bounds
from drawing import stacked
from matplotlib.axes import Axes
from study import Cell, Table, run

import slipstick
from slipstick.backends.technology.data import Technology, load_technology
from slipstick.backends.technology.design import Budget, Design, study
from slipstick.backends.technology.files.chip_file import system_text
from slipstick.frontend import config_of, load_config

CACHE = slipstick.GraphCache.default()
GPUS, NODE, SEQ_LEN = 1024, 8, 2048
BUDGET = Budget("N7", area_mm2=826, power_w=400, unit="a100", memory="hbm2e", link="nvlink3")
# One port a chip, one direction: NDR, XDR, and the step after it.
PORTS = {"NDR": "400Gbit/s", "XDR": "800Gbit/s", "GDR": "1600Gbit/s"}
MEMORIES = ("hbm2", "hbm2e", "hbm3", "hbm4")
# 6.7B of GPT-3: table 2.1 of arXiv 2005.14165.
GPT_7B = {
    "model_type": "gpt2", "n_embd": 4096, "n_inner": 16384, "n_layer": 32, "n_head": 32, "n_positions": SEQ_LEN,
    "vocab_size": 51200,
}  # fmt: skip
FAMILY = slipstick.Family(sp=True, zero=1, kernels="fused")
PLAN = slipstick.make_plan(num_gpus=GPUS, tp=4, micro_batch=1, global_batch=GPUS, seq_len=SEQ_LEN, family=FAMILY)


def system_of(design: Design, technology: Technology, port: str) -> slipstick.System:
    """Put designed chips into nodes of eight behind their own lanes, and join the nodes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{design.budget.node}.yaml"
        text = system_text(design, design.budget.node, NODE, "ndr-infiniband", technology)
        path.write_text(text, encoding="utf-8")
        return slipstick.load_system(path, [f"network.infiniband.bandwidth={port}"], stack="megatron-core")


def row_of(design: Design, technology: Technology, port: str, lowered: slipstick.Lowered) -> list[Cell]:
    """Return a step on such chips: what it waits for, and what its matrix products are bound by."""
    found = slipstick.estimate(lowered.source, system_of(design, technology, PORTS[port]), PLAN, lowered=lowered)
    budget, rates = design.budget, (design.compute.flop_per_s, design.memory.bytes_per_s)
    peak, memory = (float(rate) / 1e12 for rate in rates)
    spent, bound = step_bounds(found), product_shares(found)
    step_s = found.metrics["step_time_s"]
    return [f"{budget.memory} {port}", budget.node, peak, memory, step_s, *spent.values(), *bound.values()]


def make(full: bool) -> Table:
    """Build and run every chip; the reduced grid has the oldest and the newest memory, and one network."""
    technology = load_technology()
    graph = load_config(config_of("gpt-7b", GPT_7B), cache=CACHE)
    lowered = slipstick.lower(graph, FAMILY)
    grid = product(MEMORIES, PORTS) if full else [("hbm2", "NDR"), ("hbm4", "NDR")]
    rows = [
        row_of(design, technology, port, lowered)
        for memory, port in grid
        for design in study(replace(BUDGET, memory=memory), technology)
    ]
    waits = [f"waits for {bound} (s)" for bound in STEP_BOUNDS]
    columns = ["memory and network", "node", "peak (TFLOP/s)", "memory (TB/s)", "step (s)", *waits]
    return Table([*columns, *(f"products bound by {bound}" for bound in BOUNDS)], rows, [
        f"bf16, {PLAN.degrees}, {GPUS} sequences of {SEQ_LEN} tokens, kernels and software as Megatron Core on A100.",
        "A part of a step waits for what its kernels wait for most; shares of products are of the time of all of them.",
    ])  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw the step over the nodes, and what it waits for on the first and the last memory and network."""
    groups = table.groups("memory and network")
    for label, rows in groups.items():
        panels[0].plot([str(node) for node in rows.column("node")], rows.numbers("step (s)"), marker="o", label=label)
    panels[0].set(ylabel="step (s)", ylim=(0, None))
    panels[0].legend(fontsize="x-small")
    for axes, label in zip(panels[1:], (next(iter(groups)), list(groups)[-1]), strict=True):
        rows = groups[label]
        parts = {bound: rows.numbers(f"waits for {bound} (s)") for bound in STEP_BOUNDS}
        stacked(axes, [str(node) for node in rows.column("node")], parts)
        axes.set(title=label, ylabel="step (s)")


if __name__ == "__main__":
    run(__doc__, make, draw, panels=3)
