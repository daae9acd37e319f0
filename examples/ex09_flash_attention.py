"""Attention that writes its scores against attention that never does, over the length of the sequence.

Kernels: eager (products apart, passes over the scores between them), imec, the additive model of flash attention (load,
products, pointwise work and store, nothing hidden), and flash 1, 2 and 3 as their kernels overlap. Sizes of Llama 2 7B:
32 heads of 128, causal; kernels alone and the whole model's prefill. The papers' own figures are not public.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from drawing import curves, stacked
from matplotlib.axes import Axes
from study import Cell, Table, run, say

import slipstick
from slipstick.backends.kernels.attention.additive import additive_times
from slipstick.backends.kernels.attention.flash import flash_times
from slipstick.backends.kernels.attention.sizes import AttentionSizes
from slipstick.backends.kernels.attention.unfused import unfused_times
from slipstick.backends.kernels.terms import KernelTimes

CACHE = slipstick.GraphCache.default()
MODEL, HEADS = "llama-2-7b", 32
PREFILL = slipstick.Family(workload=slipstick.Workload.PREFILL)
# Flash 3 is written for Hopper alone.
KERNELS = {
    "dgx-a100-80gb": ("eager", "imec", "flash1", "flash2"),
    "dgx-h100": ("eager", "imec", "flash1", "flash2", "flash3"),
}
TERMS = {"load": "load", "tensor": "products", "softmax": "pointwise", "store": "store"}


def times(system: slipstick.System, kind: str, seq_len: int, backward: bool) -> KernelTimes:
    """Return the time of one layer's attention for one sequence."""
    sizes = AttentionSizes.of(1, HEADS, HEADS, seq_len, seq_len, backward=backward)
    kernels = system.kernels
    if kind in kernels.attention:
        return flash_times(sizes, system.chip, kernels.attention[kind])
    if kind in kernels.additive_attention:
        return additive_times(sizes, system.chip, kernels.additive_attention[kind])
    return unfused_times(sizes, system.chip, kernels.unfused_attention[kind])


def term_ms(found: KernelTimes, name: str) -> Cell:
    """Return one of the additive model's terms; other kernels hide theirs behind one another."""
    return 1e3 * float(found.terms[name]) if "store" in found.terms else ""


def rows_of(name: str, kind: str, lengths: Sequence[int], lowered: slipstick.Lowered) -> Iterator[list[Cell]]:
    """Yield a row a length: forward, backward, the terms of the forward phase, and the prefill of the whole model."""
    system = slipstick.load_system(name, [f"stack.attention={kind}"])
    plans = [slipstick.make_plan(num_gpus=1, seq_len=n, family=PREFILL) for n in lengths]
    prefill_s = slipstick.estimate_many(lowered, system, plans).metrics["step_time_s"]
    for length, whole_s in zip(lengths, prefill_s, strict=True):
        forward, backward = (times(system, kind, length, phase) for phase in (False, True))
        both = [1e3 * float(found.time_s) for found in (forward, backward)]
        yield [name, kind, length, *both, *(term_ms(forward, term) for term in TERMS), float(whole_s)]


def make(full: bool) -> Table:
    """Price every kernel at every length; the reduced grid is of H100 and five lengths."""
    lowered = slipstick.lower(slipstick.load(MODEL, PREFILL.workload, cache=CACHE), PREFILL)
    lengths = [2**k for k in (range(8, 16) if full else range(9, 14))]
    systems = list(KERNELS) if full else ["dgx-h100"]
    rows = [row for name in systems for kind in KERNELS[name] for row in rows_of(name, kind, lengths, lowered)]
    standard = {(row[0], row[2]): float(row[3]) for row in rows if row[1] == "eager"}
    rows = [[*row, standard[row[0], row[2]] / float(row[3])] for row in rows]
    columns = ["system", "kernel", "sequence", "forward (ms)", "backward (ms)", *(f"{t} (ms)" for t in TERMS.values())]
    return Table([*columns, "prefill of the model (s)", "speed-up of the forward phase"], rows, [
        "bf16, one sequence, one layer's attention; products and pointwise work of the additive model take causal "
        "masking for half of the pairs, standard attention computes them all and masks.",
    ])  # fmt: skip


def conclude(table: Table) -> Iterator[str]:
    """Say what flash attention gains over attention in products, and how that grows with the sequence."""
    rows = table.only({"system": "dgx-h100"})
    lengths = sorted(set(rows.numbers("sequence")))
    short, long = lengths[0], lengths[-1]
    name = "speed-up of the forward phase"
    gains = {
        kernel: [rows.number(name, {"kernel": kernel, "sequence": length}) for length in (short, long)]
        for kernel in ("flash1", "flash2", "flash3")
    }
    yield say(
        "On {system} {kernel} takes {low:.1f} times less time than attention in products at {short:g} tokens and "
        "{high:.1f} times less at {long:g}",
        gains["flash3"][1] > gains["flash3"][0], system="H100", kernel="flash3", low=gains["flash3"][0], short=short,
        high=gains["flash3"][1], long=long,
    )  # fmt: skip
    yield say(
        "At {long:g} tokens {old} gains {a:.1f}, {new} {b:.1f} and {newest} {c:.1f} times",
        gains["flash1"][1] < gains["flash2"][1] < gains["flash3"][1], long=long, old="flash1", new="flash2",
        newest="flash3", a=gains["flash1"][1], b=gains["flash2"][1], c=gains["flash3"][1],
    )  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw the forward phase and the prefill over the length, and the terms of the additive model."""
    rows = list(table.groups("system").values())[-1]
    kinds = rows.groups("kernel")
    curves(panels[0], kinds, "sequence", "forward (ms)")
    curves(panels[1], kinds, "sequence", "prefill of the model (s)")
    for axes in panels[:2]:
        axes.set(xscale="log", yscale="log", title=str(rows.rows[0][0]))
    shares = {term: kinds["imec"].numbers(f"{term} (ms)") for term in TERMS.values()}
    whole = np.sum(list(shares.values()), axis=0)
    names = [str(length) for length in kinds["imec"].column("sequence")]
    stacked(panels[2], names, {term: [float(x) for x in np.asarray(ms) / whole] for term, ms in shares.items()})
    panels[2].set(title="additive model", ylabel="share of its terms")


if __name__ == "__main__":
    run(__doc__, make, draw, panels=3, conclude=conclude, panel_in=4.4)
