"""What DRAM decides of decode: Llama 2 13B on one H100 and on eight, over kinds of memory and batches of 1 to 64.

The chip is H100's in all rows; beside it stand six stacks of HBM or sixteen devices of another kind, with rate,
capacity and energy of the technology's records and the price of the price book. Every request has 2048 tokens cached,
so that a batch needs its keys and values as well as the weights. Joules are of the memory alone: bytes that kernels
move, and the standby of what is installed. A published study of this kind has no public numbers to compare with.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from bounds import STEP_BOUNDS, step_bounds
from drawing import dots, plain_ticks
from matplotlib.axes import Axes
from study import Cell, Table, run, say

import slipstick
from slipstick.backends.prices.book import load_prices
from slipstick.backends.technology.data import load_technology
from slipstick.driver.estimate import estimate
from slipstick.report.bounds import node_seconds

CACHE = slipstick.GraphCache.default()
MODEL, CONTEXT, BATCHES = "llama-2-13b", 2048, (1, 4, 16, 64)
# Kinds in the order of their bandwidth; those that the technology has no record of are left out.
KINDS = ("gddr6", "lpddr5x", "gddr7", "lpddr6", "hbm2e", "hbm3", "hbm3e", "hbm4", "hbm4e")
REDUCED = ("gddr6", "hbm3", "hbm4")
FAMILY = slipstick.Family(workload=slipstick.Workload.DECODE)


class Memory(NamedTuple):
    """The memory beside one chip: all its devices together."""

    kind: str
    devices: int
    bytes_per_s: float
    num_bytes: float
    j_per_byte: float
    standby_w: float
    usd: float


def memories(full: bool) -> Iterator[Memory]:
    """Yield the memory of every kind that has a record."""
    technology, prices = load_technology(), load_prices().section.memories
    for kind in KINDS if full else REDUCED:
        if kind in technology.section.memories:
            record, devices = technology.memory(kind), 6 if kind.startswith("hbm") else 16
            num_bytes = devices * record.capacity.si
            yield Memory(
                kind, devices, devices * record.links.si * record.rate.si, num_bytes, record.energy.si,
                num_bytes * record.leakage.si, num_bytes * prices[kind].price.si,
            )  # fmt: skip


def bytes_of(step: slipstick.Estimate) -> float:
    """Return the bytes that the kernels of one device move in a step."""
    sizes, moved = step.table.plans.columns, 0.0
    for priced, row, entry, seconds in node_seconds(step):
        if entry.message is None:
            times = seconds / float(priced.time_s[row, int(priced.point[0])])
            moved += times * float(np.asarray(entry.work.num_bytes.evaluate(sizes)).item())
    return moved


def row_of(lowered: slipstick.Lowered, memory: Memory, chips: int, batch: int) -> list[Cell]:
    """Return one step of a batch on chips with a memory; a batch that does not fit has no numbers of its own."""
    sets = [f"chip.memory.hbm.bandwidth={memory.bytes_per_s / 1e9:.9g}GB/s"]
    sets += [f"chip.memory.hbm.capacity={memory.num_bytes / 1e9:.9g}GB", "stack.cuda_graph=true"]
    plan = slipstick.make_plan(
        num_gpus=chips, tp=chips, seq_len=CONTEXT, kv_len=CONTEXT, micro_batch=batch, family=FAMILY
    )
    step = estimate(lowered.source, slipstick.load_system("dgx-h100", sets), plan, lowered=lowered)
    step_s = float(step.metrics["step_time_s"])
    joules = chips * (bytes_of(step) * memory.j_per_byte + memory.standby_w * step_s) / batch
    standby = chips * memory.standby_w * step_s / batch / joules
    usd = chips * memory.usd
    return [
        f"tp{chips}", memory.kind, memory.devices, memory.bytes_per_s / 1e12, memory.num_bytes / 1e9, usd, batch,
        "yes" if step.fits else "no", 1e3 * step_s, *(1e3 * s for s in step_bounds(step).values()), 1e3 * joules,
        standby, usd * step_s / batch,
    ]  # fmt: skip


def make(full: bool) -> Table:
    """Estimate every step; the reduced grid has three memories and two batches."""
    lowered = slipstick.lower(slipstick.load(MODEL, slipstick.Workload.DECODE, cache=CACHE), FAMILY)
    rows = [
        row_of(lowered, memory, chips, batch)
        for chips in (1, 8)
        for memory in memories(full)
        for batch in (BATCHES if full else BATCHES[::3])
    ]
    columns = ["chips", "memory", "devices", "bandwidth (TB/s)", "capacity (GB)", "price ($)", "batch", "fits"]
    waits = [f"waits for {bound} (ms)" for bound in STEP_BOUNDS]
    return Table([*columns, "step (ms)", *waits, "DRAM (mJ/token)", "standby", "DRAM $ per token/s"], rows, [
        f"bf16, {CONTEXT} tokens cached, CUDA graphs; bandwidth, capacity and devices are of a chip, prices of all.",
        "A batch that does not fit is priced as if it did: its time is that of the bandwidth alone.",
        "The compute of the chip stays H100's, also where a newer chip would come with a newer memory.",
    ])  # fmt: skip


def conclude(table: Table) -> Iterator[str]:
    """Say what bandwidth, capacity, energy and price decide, on one chip and on eight."""
    alone, together = (table.only({"chips": chips}) for chips in ("tp1", "tp8"))
    kinds, few, many = list(alone.groups("memory")), 1.0, max(alone.numbers("batch"))
    slow, fast = kinds[0], kinds[-1]
    rate = _ratio(alone, "bandwidth (TB/s)", (fast, slow), many)
    gain, shared = (_ratio(rows, "step (ms)", (slow, fast), few) for rows in (alone, together))
    yield say(
        "From {slow} to {fast} bandwidth grows {rate:.1f} times, and a step of one request shrinks {gain:.1f} times "
        "on one chip and {shared:.1f} times on eight, which wait for one another",
        rate > gain > shared > 1, slow=slow, fast=fast, rate=rate, gain=gain, shared=shared,
    )  # fmt: skip
    fits = {
        kind: rows.only({"batch": many}).column("fits")[0] == "yes" for kind, rows in alone.groups("memory").items()
    }
    yield say(
        "Capacity decides before bandwidth does: one chip holds {many:g} requests with {holds}, not with {lacks}",
        any(fits.values()) and not all(fits.values()), many=many, holds=_names(fits, True), lacks=_names(fits, False),
    )  # fmt: skip
    joules = {kind: alone.number("DRAM (mJ/token)", {"memory": kind, "batch": few}) for kind in kinds}
    least, most = (pick(joules, key=lambda kind: joules[kind]) for pick in (min, max))
    batched = alone.number("DRAM (mJ/token)", {"memory": least, "batch": many})
    yield say(
        "A token of one request takes {joules:.0f} mJ of {least} and {ratio:.1f} times as much of {most}; a batch of "
        "{many:g} takes {saved:.1f} times less, more than any memory saves",
        joules[least] / batched > joules[most] / joules[least] > 1, joules=joules[least], least=least, most=most,
        ratio=joules[most] / joules[least], many=many, saved=joules[least] / batched,
    )  # fmt: skip
    cheapest = {batch: _cheapest(alone, batch) for batch in (few, many)}
    flips = cheapest[few] != cheapest[many]
    yield say(
        "By DRAM dollars for a token/s {a} is cheapest for one request and {b} for {many:g}: "
        + ("the ranking flips with the batch" if flips else "the batch does not change the best"),
        flips == (cheapest[few] != cheapest[many]), a=cheapest[few], b=cheapest[many], many=many,
    )  # fmt: skip
    parts = {
        (chips, kind): [rows.number(f"waits for {b} (ms)", {"memory": kind, "batch": few}) for b in STEP_BOUNDS]
        for chips, rows in table.groups("chips").items()
        for kind in (slow, fast)
    }
    share = {key: waits[STEP_BOUNDS.index("memory")] / sum(waits) for key, waits in parts.items()}
    yield say(
        "One request waits for {slow} for {one:.0%} of its step on one chip and {eight:.0%} on eight, there for "
        "{fast} for {last:.0%}: faster DRAM could bring {left:.2f} times at most",
        share["tp1", slow] > share["tp8", slow] > share["tp8", fast], slow=slow, fast=fast, one=share["tp1", slow],
        eight=share["tp8", slow], last=share["tp8", fast], left=1 / (1 - share["tp8", fast]),
    )  # fmt: skip


def _ratio(table: Table, name: str, kinds: tuple[str, str], batch: float) -> float:
    over, under = (table.number(name, {"memory": kind, "batch": batch}) for kind in kinds)
    return over / under


def _names(fits: Mapping[str, bool], which: bool) -> str:
    return ", ".join(kind for kind, does in fits.items() if does is which)


def _cheapest(table: Table, batch: float) -> str:
    rows = table.only({"batch": batch, "fits": "yes"})
    usd = rows.numbers("DRAM $ per token/s")
    return str(rows.column("memory")[usd.index(min(usd))])


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw time, energy and price of a token on one chip: a row a memory, a mark a batch that fits."""
    alone = table.only({"chips": "tp1", "fits": "yes"})
    kinds = list(table.groups("memory"))
    for panel, name in zip(panels, ("step (ms)", "DRAM (mJ/token)", "DRAM $ per token/s"), strict=True):
        points = {
            f"batch {float(batch):g}": [
                (kinds.index(str(kind)), number)
                for kind, number in zip(rows.column("memory"), rows.numbers(name), strict=True)
            ]
            for batch, rows in alone.groups("batch").items()
        }
        dots(panel, kinds, points)
        panel.set(xscale="log", xlabel=f"{name}, one chip")
        plain_ticks(panel.xaxis)
    panels[0].legend(ncols=4, loc="lower center", bbox_to_anchor=(0.4, 1.0), columnspacing=0.8, handletextpad=0.1)


if __name__ == "__main__":
    run(__doc__, make, draw, panels=3, conclude=conclude)
