"""From A100 to B200: what makes a training step of GPT 175B on 1024 accelerators faster, one change at a time.

Software comes first: Megatron-LM of 2022 with full recomputation, then Megatron Core with flash attention. Next come
B200's SMs, caches and kernels under the rates of A100, and then six changes to B200's: precision, peak, HBM, links,
micro-batches and capacity. Each machine runs the fastest plan that fits it, so a factor is what a change is worth
with a plan of its own. Factors depend on the order of changes: beside the stated one are the extremes and the mean of
others. A published study finds about 35 times; its plans and numbers are not public.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import permutations, product
from math import prod
from typing import NamedTuple

import numpy as np
from drawing import waterfall
from matplotlib.axes import Axes
from study import Cell, Table, run, say

import slipstick
from slipstick.driver.estimate import estimate

CACHE = slipstick.GraphCache.default()
MODEL, GPUS, BATCH, SEQ_LEN, LAYERS, PUBLISHED = "megatron-175b", 1024, 2048, 2048, 96, 35.0
OLD, NEW = "megatron-2022", "megatron-core"
PARTS = ("compute", "communication", "other")
# What a change sets on B200's file to keep A100's: the rates of its narrow products keep B200's ratios to 16 bits.
CHANGES: Mapping[str, tuple[str, Sequence[str]]] = {
    "precision": ("bf16 to nvfp4", ()),
    "peak": ("312 to 2250 TFLOP/s of bf16", (
        "chip.matmul.bf16=312TFLOP/s", "chip.matmul.fp16=312TFLOP/s", "chip.matmul.fp8=624TFLOP/s",
        "chip.matmul.fp4=1248TFLOP/s", "chip.vector.fp32=19.5TFLOP/s",
    )),
    "HBM": ("2.0 to 8.0 TB/s", ("chip.memory.hbm.bandwidth=2039GB/s",)),
    "links": ("NVLink of 8 at 300 to 576 at 900 GB/s, HDR to NDR", (
        "network.nvlink.bandwidth=300GB/s", "network.infiniband.bandwidth=200Gbit/s",
    )),
    "batch": ("micro-batches of 1 to those of 1 to 8", ()),
    "capacity": ("80 to 180 GB", ("chip.memory.hbm.capacity=81920MiB",)),
}  # fmt: skip
WIDE = "network.nvlink.size=576"


class Variant(NamedTuple):
    """A machine, the software on it and the micro-batches that its plans may have."""

    system: str
    stack: str = NEW
    precision: str = "none"
    micro_batches: tuple[int, ...] = (1,)
    policies: tuple[str, ...] = ("none", "selective", "full")
    sets: tuple[str, ...] = ()


def changed(made: frozenset[str]) -> Variant:
    """Return B200 with the changes that are made, the others undone to A100's numbers."""
    undone = [text for name, (_, sets) in CHANGES.items() if name not in made for text in sets]
    return Variant(
        "dgx-b200",
        precision="nvfp4" if "precision" in made else "none",
        micro_batches=(1, 2, 4, 8) if "batch" in made else (1,),
        sets=(*undone, *([WIDE] if "links" in made else ())),
    )


def family_of(variant: Variant, policy: str) -> slipstick.Family:
    """Return the family of a variant: software of 2022 has attention in products and no sharded optimizer."""
    old = variant.stack == OLD
    return slipstick.Family(
        sp=not old, recompute=policy, pp=True, zero=0 if old else 1, kernels="fused", scatter_p2p=True,
        attention="unfused" if old else "flash", precision=variant.precision,
    )  # fmt: skip


def plans_of(variant: Variant, family: slipstick.Family) -> Iterator[slipstick.Plan]:
    """Yield all degrees and micro-batches that divide layers, GPUs and batch; chunks need whole rounds of stages."""
    for tp, pp, vpp, micro in product((1, 2, 4, 8), (1, 2, 4, 8, 16), (1, 2, 3, 6), variant.micro_batches):
        micro_batches, left = divmod(BATCH, micro * GPUS // (tp * pp))
        chunked = vpp == 1 or (pp > 1 and micro_batches % pp == 0)
        if chunked and not left and micro_batches and LAYERS % (pp * vpp) == 0:
            yield slipstick.make_plan(
                num_gpus=GPUS, tp=tp, pp=pp, vpp=vpp, micro_batch=micro, global_batch=BATCH, seq_len=SEQ_LEN,
                family=family,
            )  # fmt: skip


@cache
def lowered_of(family: slipstick.Family) -> slipstick.Lowered:
    """Return the model under a family, ready to be priced on any machine."""
    return slipstick.lower(slipstick.load(MODEL, cache=CACHE), family)


@cache
def best(variant: Variant) -> slipstick.Estimate:
    """Return the estimate of the fastest plan that fits."""
    system = slipstick.load_system(variant.system, variant.sets, stack=variant.stack)
    steps: list[tuple[float, slipstick.Plan]] = []
    for policy in variant.policies:
        family = family_of(variant, policy)
        plans = list(plans_of(variant, family))
        table = slipstick.estimate_many(lowered_of(family), system, plans)
        steps += [(float(table.metrics["step_time_s"][k]), plan) for k, plan in enumerate(plans) if table.fits[k]]
    _, plan = min(steps, key=lambda step: step[0])
    lowered = lowered_of(plan.family)
    return estimate(lowered.source, system, plan, lowered=lowered)


def step_s(made: frozenset[str]) -> float:
    """Return seconds of a step after some of the changes."""
    return float(best(changed(made)).metrics["step_time_s"])


def gains(order: Sequence[str]) -> dict[str, float]:
    """Return the factor of each change where they are made in this order; their product is that of all."""
    steps = [step_s(frozenset(order[:k])) for k in range(len(order) + 1)]
    return {name: before / after for name, before, after in zip(order, steps[:-1], steps[1:], strict=True)}


def parts_of(answer: slipstick.Estimate) -> list[float]:
    """Return seconds of computation, of communication that nothing hides, and of all else: bubbles, host, optimizer."""
    spent = answer.breakdown_s
    compute, wire = (sum(s for name, s in spent.items() if name.startswith(kind)) for kind in ("compute.", "comm."))
    return [compute, wire, answer.metrics["step_time_s"] - compute - wire]


def make(full: bool) -> Table:
    """Make every change; the reduced grid has the stated order and its reverse, the whole one all orders."""
    names = tuple(CHANGES)
    orders = [gains(order) for order in (permutations(names) if full else (names, names[::-1]))]
    steps = [
        ("software", "Megatron-LM of 2022 to Megatron Core", best(Variant("dgx-a100-80gb")), None),
        ("design", "SMs, caches and kernels of B200 at A100's rates", best(changed(frozenset())), None),
        *((name, what, best(changed(frozenset(names[: k + 1]))), [order[name] for order in orders])
          for k, (name, (what, _)) in enumerate(CHANGES.items())),
    ]  # fmt: skip
    first = best(Variant("dgx-a100-80gb", OLD, policies=("full",)))
    rows = [_row("A100 of 2022", "start", first, 1.0, None)]
    last_s = float(first.metrics["step_time_s"])
    for name, what, answer, over_orders in steps:
        now_s = float(answer.metrics["step_time_s"])
        rows.append(_row(name, what, answer, last_s / now_s, over_orders))
        last_s = now_s
    columns = ["change", "what", "best plan", "step (s)", *(f"{p} (s)" for p in PARTS), "factor"]
    return Table([*columns, "least", "most", "mean", "published whole"], rows, [
        f"{GPUS} accelerators, {BATCH} sequences of {SEQ_LEN} tokens; {len(orders)} orders of the last six changes. "
        "Least and most: a factor over these orders; mean: geometric, so that its product is the whole too.",
        "The peak includes that of vector units; nvfp4 is that of products with weights, gradients stay in bf16.",
        "Published: about 35 (arXiv 2407.14645, abstract), of an A100 baseline that is not described in public.",
    ])  # fmt: skip


def _row(
    name: str, what: str, answer: slipstick.Estimate, factor: float, over_orders: Sequence[float] | None
) -> list[Cell]:
    plan, seen = answer.plan, over_orders or [factor]
    how = f"{plan.degrees} mbs{plan.micro_batch} {plan.family.recompute}"
    mean = float(np.exp(np.mean(np.log(seen))))
    step = float(answer.metrics["step_time_s"])
    return [name, what, how, step, *parts_of(answer), factor, min(seen), max(seen), mean, PUBLISHED]


def conclude(table: Table) -> Iterator[str]:
    """Say how large the whole is, what it is made of, and what it depends on."""
    steps, factors, means = (table.numbers(name) for name in ("step (s)", "factor", "mean"))
    whole, published = steps[0] / steps[-1], table.numbers("published whole")[0]
    product_holds = abs(prod(factors) / whole - 1) < 1e-6 and abs(prod(means) / whole - 1) < 1e-6
    yield say(
        "A step on {new} is {whole:.1f} times as fast as one on {old}: {software:.2f} times by software alone and "
        "{machine:.1f} times by the machine",
        product_holds, new="B200", old=table.column("change")[0], whole=whole, software=factors[1],
        machine=whole / factors[1],
    )  # fmt: skip
    rows = sorted(
        (mean, str(name), least, most)
        for name, mean, least, most in zip(
            *(table.column("change")[3:], *(table.numbers(n)[3:] for n in ("mean", "least", "most"))), strict=True
        )
    )
    mean, name, least, most = rows[-1]
    after, after_name, after_least, after_most = rows[-2]
    yield say(
        "The largest change is {name}, {mean:.2f} times over all orders of changes ({least:.2f} to {most:.2f}), then "
        "{after_name}, {after:.2f} times ({after_least:.2f} to {after_most:.2f})",
        least <= mean <= most and mean >= after, name=name, mean=mean, least=least, most=most, after=after,
        after_name=after_name, after_least=after_least, after_most=after_most,
    )  # fmt: skip
    mean, name, least, most = rows[0]
    yield say(
        "The smallest is {name}: no order makes it worth more than {most:.0%}",
        least <= mean <= most and mean <= rows[1][0], name=name, most=most - 1,
    )  # fmt: skip
    yield say(
        "The published {published:g} times are {over:.2f} times what comes out, more than software brings to the old "
        "machine ({software:.2f})",
        published > whole and published / whole > factors[1], published=published, over=published / whole,
        software=factors[1],
    )  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw the waterfall of factors, with the extremes over orders, and what a step is made of after each change."""
    waterfall(panels[0], table)


if __name__ == "__main__":
    run(__doc__, make, draw, conclude=conclude)
