"""What bounds each matrix product of Llama 2 13B on A100 and H100, over phase, batch and length.

A product is bound by compute where its tiles take longest, by memory where its bytes do, by overhead where its
launch, its fixed work and the second pass of a split do. QK^T and PV are kernels of their own, as without flash
attention; the flash kernel that replaces both and their softmax stands beside them. Products of one kind are taken
together, in training with both products of their backward pass. The papers' own table is not public; nothing is
compared with it.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product

import numpy as np
from bounds import BOUNDS, bound_of, shares
from drawing import matrix
from matplotlib.axes import Axes
from study import Cell, Table, run, say

import slipstick
from slipstick.backends.pricing.program import PricedEntry
from slipstick.driver.estimate import estimate
from slipstick.report.bounds import node_seconds

CACHE = slipstick.GraphCache.default()
MODEL = "llama-2-13b"
SYSTEMS = {"dgx-a100-80gb": "A100", "dgx-h100": "H100"}
PHASES = ("prefill", "decode", "training")
PRODUCTS = ("QKV, out", "MLP", "lm_head", "QK^T", "PV", "flash kernel")
ATTENTION = PRODUCTS[3:5]
BATCHES, LENGTHS = (1, 4, 16, 64, 256), (200, 4096)


@cache
def lowered_of(family: slipstick.Family) -> slipstick.Lowered:
    """Return the model's pass of a workload, with attention in products or in one kernel."""
    return slipstick.lower(slipstick.load(MODEL, family.workload, cache=CACHE), family)


def answer(system: slipstick.System, phase: str, batch: int, length: int, attention: str) -> slipstick.Estimate:
    """Estimate one pass of a batch of prompts, one token for each behind them, or a step of training on them."""
    workload = slipstick.Workload("train" if phase == "training" else phase)
    family = slipstick.Family(workload=workload, attention=attention)
    lowered = lowered_of(family)
    plan = slipstick.make_plan(
        num_gpus=1, seq_len=length, kv_len=length if phase == "decode" else 0, micro_batch=batch,
        global_batch=batch, family=family,
    )  # fmt: skip
    return estimate(lowered.source, system, plan, lowered=lowered)


def product_of(entry: PricedEntry) -> str:
    """Return the kind of product of a kernel, empty where it is none; PV alone reads or writes rows of all heads."""
    name = entry.scope.rpartition(".")[2]
    if entry.op.startswith("attention"):
        return "flash kernel"
    if entry.op != "matmul":
        return ""
    if name == "self_attn":
        return "PV" if "acbd" in str(entry.attrs) else "QK^T"
    return {"lm_head": "lm_head"}.get(name, "MLP" if name in ("gate_proj", "up_proj", "down_proj") else "QKV, out")


def rows_of(system: slipstick.System, phase: str, batch: int, length: int) -> Iterator[list[Cell]]:
    """Yield a row a kind of product: FLOPs a byte of operands moved once, time, and what most of it waits for."""
    sums: dict[str, list[tuple[float, float, float, str]]] = {name: [] for name in PRODUCTS}
    for attention in ("unfused", "flash"):
        estimate = answer(system, phase, batch, length, attention)
        sizes = estimate.table.plans.columns
        for priced, row, entry, seconds in node_seconds(estimate):
            name = product_of(entry)
            if name and (attention == "unfused" or name == "flash kernel"):
                work = entry.work.tensor_flops, entry.work.num_bytes
                flops, moved = (float(np.asarray(e.evaluate(sizes)).item()) for e in work)
                sums[name].append((flops, moved, seconds, bound_of(priced, row)))
    for name, kernels in sums.items():
        if kernels:
            flops, moved, seconds = (
                sum(each) for each in ([k[0] for k in kernels], [k[1] for k in kernels], [k[2] for k in kernels])
            )
            parts = shares((bound, spent) for _, _, spent, bound in kernels)
            bound = max(parts, key=lambda kind: parts[kind])
            yield [phase, batch, length, name, flops / moved, 1e3 * seconds, *parts.values(), bound]


def make(full: bool) -> Table:
    """Price every product; the reduced grid has two batches."""
    rows = [
        [SYSTEMS[name], *row]
        for name in SYSTEMS
        for system in [slipstick.load_system(name)]
        for phase in PHASES
        for batch, length in product(BATCHES if full else BATCHES[::4], LENGTHS)
        if phase != "training" or batch <= 16
        for row in rows_of(system, phase, batch, length)
    ]
    columns = ["system", "phase", "batch", "tokens", "product", "intensity (FLOP/B)", "time (ms)"]
    return Table([*columns, *(f"share {bound}" for bound in BOUNDS), "bound"], rows, [
        "bf16, one GPU, whether it fits or not; times of all layers together, attention masked as the model does.",
        "Shares: of the time of a kind's kernels, by what each waits for most; the bound is the largest.",
        "Tokens are those of a prompt, behind which decode has one more, or of a sequence that is trained on.",
    ])  # fmt: skip


def conclude(table: Table) -> Iterator[str]:
    """Say where memory gives way to compute, and what attention's own products are bound by."""
    weights = table.only({"phase": "decode", "product": "MLP", "tokens": min(table.numbers("tokens"))})
    last = {
        system: max(
            b for b, bound in zip(rows.numbers("batch"), rows.column("bound"), strict=True) if bound == "memory"
        )
        for system, rows in weights.groups("system").items()
    }
    yield say(
        "Decode reads weights: the products of the MLP wait for memory up to a batch of {old:g} on {a} and {new:g} on "
        "{b}, of batches up to {most:g}",
        last["A100"] <= last["H100"], old=last["A100"], new=last["H100"], a="A100", b="H100",
        most=max(weights.numbers("batch")),
    )  # fmt: skip
    own = [table.only({"phase": "decode", "product": name}) for name in ATTENTION]
    peak = max(number for rows in own for number in rows.numbers("intensity (FLOP/B)"))
    kinds = sorted({str(bound) for rows in own for bound in rows.column("bound")})
    yield say(
        "Batches do not help attention in decode: QK^T and PV stay at or below {peak:.2f} FLOP/B whatever batch and "
        "length, and wait for {kinds}",
        peak <= 1, peak=peak, kinds=" or ".join(kinds),
    )  # fmt: skip
    short = {"phase": "prefill", "batch": 1.0, "tokens": min(table.numbers("tokens")), "product": "MLP"}
    bounds = {name: str(table.only({"system": name, **short}).column("bound")[0]) for name in SYSTEMS.values()}
    yield say(
        "A prompt of {tokens:g} tokens alone waits for {old} on {a} and for {new} on {b}, whose peak grew more than "
        "its bandwidth",
        bounds["A100"] != bounds["H100"], tokens=short["tokens"], old=bounds["A100"], new=bounds["H100"], a="A100",
        b="H100",
    )  # fmt: skip
    longest = {"system": "H100", "phase": "prefill", "batch": 1.0, "tokens": max(table.numbers("tokens"))}
    apart, fused = (
        sum(table.number("time (ms)", {**longest, "product": name}) for name in names)
        for names in (ATTENTION, PRODUCTS[-1:])
    )
    yield say(
        "At {tokens:g} tokens QK^T and PV apart take {gain:.1f} times the flash kernel, which also has their "
        "softmax, on {a}",
        apart > fused, tokens=longest["tokens"], gain=apart / fused, a="H100",
    )  # fmt: skip
    training = table.only({"phase": "training"})
    long = training.only({"tokens": max(table.numbers("tokens"))})
    compute = {name: _share(long.only({"system": name}), "compute") for name in SYSTEMS.values()}
    yield say(
        "Training on {tokens:g} tokens computes for {old:.0%} of its products' time on {a} and {new:.0%} on {b}; "
        "the rest is mostly attention's products, which flash removes",
        all(share > 0.5 for share in compute.values()) and _attention_is_most_of_the_rest(long),
        tokens=max(table.numbers("tokens")), old=compute["A100"], new=compute["H100"], a="A100", b="H100",
    )  # fmt: skip


def _share(table: Table, bound: str) -> float:
    """Return the part of the products' time that waits for a bound, the flash kernel left out."""
    columns = table.column("product"), table.numbers("time (ms)"), table.numbers(f"share {bound}")
    rows = [row for row in zip(*columns, strict=True) if row[0] != PRODUCTS[-1]]
    return sum(time * share for _, time, share in rows) / sum(time for _, time, _ in rows)


def _attention_is_most_of_the_rest(table: Table) -> bool:
    """Say whether QK^T and PV have most of the time that does not compute."""
    rest = {
        name: sum(t * (1 - s) for t, s in zip(rows.numbers("time (ms)"), rows.numbers("share compute"), strict=True))
        for name, rows in table.groups("product").items()
    }
    return sum(rest[name] for name in ATTENTION) > sum(rest[name] for name in PRODUCTS[:3])


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw what bounds each product on H100: a row a product, a column a batch and length, a panel a phase."""
    for panel, (phase, rows) in zip(panels, table.only({"system": "H100"}).groups("phase").items(), strict=True):
        places = list(product(*(sorted(set(rows.numbers(name))) for name in ("batch", "tokens"))))
        words = [
            [str(rows.only({"batch": b, "tokens": n, "product": name}).column("bound")[0]) for b, n in places]
            for name in PRODUCTS
        ]
        matrix(panel, PRODUCTS, [(f"{b:g}", f"{n:g}" if n < 1e3 else f"{n / 1024:g}k") for b, n in places], words)
        panel.set_title(f"{phase}: batch, and tokens below", loc="left")


if __name__ == "__main__":
    run(__doc__, make, draw, panels=3, conclude=conclude)
