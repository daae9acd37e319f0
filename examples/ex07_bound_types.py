"""What bounds each matrix product of Llama 2 13B on A100 and H100: prefill and decode, small and larger batches.

A product is bound by compute where its tiles take longest, by memory where its bytes do, by overhead where its launch,
its fixed work and the second pass of a split do. The papers' own table is not public; nothing is compared with it.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from bounds import BOUNDS, bound_of, shares
from drawing import stacked
from matplotlib.axes import Axes
from study import Cell, Table, run

import slipstick
from slipstick.backends.pricing.program import PricedEntry
from slipstick.report.bounds import node_seconds

CACHE = slipstick.GraphCache.default()
MODEL, PROMPT = "llama-2-13b", 200
SYSTEMS = ("dgx-a100-80gb", "dgx-h100")


def answer(system: str, workload: slipstick.Workload, batch: int) -> slipstick.Estimate:
    """Estimate one pass of a batch of prompts, or one token for each behind them."""
    family = slipstick.Family(workload=workload)
    kv_len = PROMPT if workload is slipstick.Workload.DECODE else 0
    plan = slipstick.make_plan(num_gpus=1, seq_len=PROMPT, kv_len=kv_len, micro_batch=batch, family=family)
    graph = slipstick.load(MODEL, workload, cache=CACHE)
    return slipstick.estimate(graph, slipstick.load_system(system), plan)


def intensity_of(entry: PricedEntry, answered: slipstick.Estimate) -> float:
    """Return FLOPs a byte of a product, each operand moved once."""
    sizes = answered.table.plans.columns
    flops, moved = (np.asarray(e.evaluate(sizes)) for e in (entry.work.tensor_flops, entry.work.num_bytes))
    return float((flops / moved).item())


def rows_of(system: str, workload: slipstick.Workload, batch: int) -> Iterator[list[Cell]]:
    """Yield a row a product of one pass."""
    answered = answer(system, workload, batch)
    for priced, row, entry, seconds in node_seconds(answered):
        if entry.op == "matmul":
            name, intensity = entry.scope.rpartition(".")[2], intensity_of(entry, answered)
            yield [system, str(workload), batch, name, intensity, 1e3 * seconds, bound_of(priced, row)]


def make(full: bool) -> Table:
    """Price every product; the reduced grid has two batches."""
    rows = [
        row
        for system in SYSTEMS
        for workload in (slipstick.Workload.PREFILL, slipstick.Workload.DECODE)
        for batch in ((1, 4, 16, 64, 256) if full else (1, 16))
        for row in rows_of(system, workload, batch)
    ]
    columns = ["system", "phase", "batch", "product", "intensity (FLOP/B)", "time (ms)", "bound"]
    return Table(columns, rows, [
        f"bf16, one GPU, prompts of {PROMPT} tokens; times of all layers together. Attention's own products are one "
        "kernel with its softmax and are not listed.",
    ])  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw the shares of the bounds in the time of all products of a pass."""
    spent: dict[str, list[tuple[str, float]]] = {}
    for system, phase, batch, _, _, time_ms, bound in table.rows:
        spent.setdefault(f"{system} {phase} {batch}", []).append((str(bound), float(time_ms)))
    found = {name: shares(parts) for name, parts in spent.items()}
    stacked(panels[0], list(found), {bound: [parts[bound] for parts in found.values()] for bound in BOUNDS})
    panels[0].set_ylabel("share of the products' time")


if __name__ == "__main__":
    run(__doc__, make, draw)
