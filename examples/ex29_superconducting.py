"""A blade of 64 superconducting processors beside 64 H100: training, and decode over the bandwidth of its memory.

The machine of arXiv 2411.08645 as far as a file says it (`data/scd.yaml`), whose numbers are recalled or our choice.
Of that paper only what its abstract claims could be read: that memory and interconnect no longer limit training and
inference. A board's peak and power are published (Herr and Herr, IEEE Spectrum, May 2024).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from bounds import STEP_BOUNDS, step_bounds
from drawing import stacked
from matplotlib.axes import Axes
from study import Cell, Table, run, say

import slipstick
from slipstick.driver.estimate import estimate

CACHE = slipstick.GraphCache.default()
BLADE, GPUS = str(Path(__file__).parent / "data" / "scd.yaml"), 64
# 20 exaFLOP/s of bf16 and 500 kW, cooling with them, on 100 boards.
BOARD_PFLOPS, BOARD_KW = 200.0, 5.0
# No host issues kernels one by one: captured graphs, or a compiled schedule.
GRAPHS = "stack.cuda_graph=true"
TRAINING, DECODE = "training of GPT-3 175B", "decode of Llama 3.1 405B"
SUPER, GPU = "superconducting", "H100"
BATCHES, RATES = (1, 8, 64), ("3.35TB/s", "10TB/s", "30TB/s")


def machines(rates: Sequence[str]) -> Iterator[tuple[str, slipstick.System]]:
    """Yield the blade at each bandwidth of its memory, and as many GPUs."""
    for rate in rates:
        own = [f"chip.memory.hbm.bandwidth={rate}", "stack.collective_overhead=100ns"]
        yield SUPER, slipstick.load_system(BLADE, [*own, GRAPHS])
    yield GPU, slipstick.load_system("dgx-h100", [GRAPHS])


def steps(
    what: str, batch: int, lowered: slipstick.Lowered, plan: slipstick.Plan, rates: Sequence[str]
) -> Iterator[list[Cell]]:
    """Yield a row a machine: a step, what it waits for, and what its devices reach of their peak."""
    for name, system in machines(rates):
        found = estimate(lowered.source, system, plan, lowered=lowered)
        step_s, peak = found.metrics["step_time_s"], float(system.chip.matmul_flop_per_s("bf16"))
        rate = float(system.chip.hbm_bytes_per_s) / 1e12
        parts = (seconds / step_s for seconds in step_bounds(found).values())
        used = float(found.metrics["mfu"]) if what == TRAINING else 0.0
        yield [
            what,
            batch,
            name,
            rate,
            1e3 * step_s,
            *parts,
            used,
            GPUS * peak / 1e15,
            GPUS * float(system.chip.power_w) / 1e3,
        ]


def make(full: bool) -> Table:
    """Estimate a training step, and decode steps of each batch; the reduced grid has one batch, two bandwidths."""
    rates, batches = (RATES, BATCHES) if full else (RATES[::2], BATCHES[:1])
    family = slipstick.Family(sp=True, pp=True, recompute="selective", kernels="fused")
    lowered = slipstick.lower(slipstick.load("gpt3-175b", cache=CACHE), family)
    plan = slipstick.make_plan(num_gpus=GPUS, tp=8, pp=8, seq_len=2048, global_batch=GPUS, family=family)
    rows = [*steps(TRAINING, GPUS, lowered, plan, rates)]
    family = slipstick.Family(workload=slipstick.Workload.DECODE, kernels="fused")
    lowered = slipstick.lower(slipstick.load("llama-3.1-405b", slipstick.Workload.DECODE, cache=CACHE), family)
    for batch in batches:
        plan = slipstick.make_plan(num_gpus=GPUS, tp=16, micro_batch=batch, seq_len=2048, kv_len=2048, family=family)
        rows += steps(DECODE, batch, lowered, plan, rates)
    shares = [f"waits for {bound}" for bound in STEP_BOUNDS]
    columns = ["what", "batch", "machine", "memory (TB/s)", "step (ms)", *shares, "MFU", "peak (PFLOP/s)", "power (kW)"]
    return Table(columns, rows, [
        "Training: 64 sequences of 2048 tokens, tp8 pp8. Decode: four replicas of tp16, each a batch on 2048 tokens.",
        "Of a board 200 PFLOP/s and 5 kW are published: 20 exaFLOP/s and 500 kW on 100 (IEEE Spectrum, May 2024).",
        "Both run captured graphs; a kernel or a collective of the blade has 100 ns besides its work, our choice.",
        "Power of H100 is that of chips alone; that of the blade has its cooling in it.",
    ])  # fmt: skip


def conclude(table: Table) -> Iterator[str]:
    """Say what the blade gains, what memory brings it, and how far its file is from the published board."""
    most = max(table.numbers("memory (TB/s)"))

    def at(what: str, machine: str, column: str = "step (ms)", rate: float = most, batch: float = 1.0) -> float:
        cells: dict[str, Cell] = {"what": what, "machine": machine, "batch": GPUS if what == TRAINING else batch}
        return table.number(column, cells | ({"memory (TB/s)": rate} if machine == SUPER else {}))

    gains = [at(what, GPU) / at(what, SUPER) for what in (TRAINING, DECODE)]
    peaks = at(TRAINING, SUPER, "peak (PFLOP/s)") / at(TRAINING, GPU, "peak (PFLOP/s)")
    yield say(
        "A blade trains {train:.1f} times as fast as as many GPUs and decodes one request {decode:.1f} times as fast, "
        "with {peak:.1f} times their peak and {rate:.1f} times their bandwidth",
        min(gains) > 1, train=gains[0], decode=gains[1], peak=peaks,
        rate=most / at(DECODE, GPU, "memory (TB/s)"),
    )  # fmt: skip
    shares = [at(TRAINING, name, "waits for network") + at(TRAINING, name, "waits for memory") for name in (GPU, SUPER)]
    yield say(
        "In training memory and network take {old:.0%} of a step on GPUs and {new:.0%} on the blade, as its authors "
        "claim in words",
        shares[1] < shares[0], old=shares[0], new=shares[1],
    )  # fmt: skip
    least = min(table.only({"machine": SUPER}).numbers("memory (TB/s)"))
    slow = at(DECODE, SUPER, rate=least) / at(DECODE, SUPER)
    yield say(
        "With the bandwidth of {least:g} TB/s it decodes one request {slow:.1f} times as slowly as with {most:g}",
        slow > 1, least=least, most=most, slow=slow,
    )  # fmt: skip
    peak, power = (at(TRAINING, SUPER, name) for name in ("peak (PFLOP/s)", "power (kW)"))
    yield say(
        "The file's blade has {peak:.0f} PFLOP/s, {part:.0%} of a published board, and takes {pj:.3f} pJ a FLOP with "
        "its cooling where the board takes {board:.3f}",
        0.5 < peak / BOARD_PFLOPS < 2, peak=peak, part=peak / BOARD_PFLOPS, pj=power / peak,
        board=BOARD_KW / BOARD_PFLOPS,
    )  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw what decode of one request, and training, wait for."""
    for panel, (what, rows) in zip(panels, table.groups("what").items(), strict=True):
        first = rows.only({"batch": rows.column("batch")[0]})
        names = [f"{GPU if name == GPU else 'blade'} {rate:g} TB/s" for _, _, name, rate, *_ in first.rows]
        step = first.numbers("step (ms)")
        parts = {b: [s * t for s, t in zip(first.numbers(f"waits for {b}"), step, strict=True)] for b in STEP_BOUNDS}
        stacked(panel, names, parts)
        panel.set(ylabel="step (ms)", title=what)


if __name__ == "__main__":
    run(__doc__, make, draw, panels=2, conclude=conclude, panel_in=2.6)
