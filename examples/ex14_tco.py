"""What a cluster costs to own, from 1024 to 32768 accelerators: its network by tiers, a GPU-hour, a training run.

DGX H100 as it is sold, joined by a tree of switches at full speed; Llama 3.1 405B with 16M tokens a step, as it was
trained, over 15.6T tokens, with the failures that were published for it. Studies of this kind have published no numbers
that we could read; prices of clusters are compared with public ones in `docs/costs.md`, not here.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from drawing import stacked
from matplotlib.axes import Axes
from study import Cell, Table, run, say

import slipstick
from slipstick.cost.money import Money, Terms
from slipstick.cost.run.training_run import Checkpoints, Failures, TrainingRun
from slipstick.driver.estimate import estimate, train, worth
from slipstick.ir.sizes.expr import Num

CACHE = slipstick.GraphCache.default()
SYSTEM, MODEL, SEQ_LEN, SEQUENCES, TOKENS = "dgx-h100", "llama-3.1-405b", 8192, 2048, 15.6e12
SIZES = (1024, 2048, 4096, 8192, 16384, 32768)
TP, PP = 8, 16
FAMILY = slipstick.Family(sp=True, pp=True, zero=1, recompute="full", kernels="fused")
# Llama 3 (arXiv 2407.21783): 419 failures in 54 days of 16,384 GPUs; storage of 2 TB/s.
FAILURES = Failures(mtbf_s=54 * 86400.0 * 16384 / 419)
RUN = TrainingRun(amount=TOKENS, unit="tokens", failures=FAILURES, checkpoints=Checkpoints(bytes_per_s=2e12))
PARTS = ("servers", "network", "facility")
YEAR = ("capital", "interest", "operations", "energy")
TERMS = {"as sold": Terms(), "as made": Terms(basis="build")}
METRICS = ("train_time_s", "train_goodput", "usd_run", "kwh", "tco2e")


def row_of(terms: str, gpus: int, system: slipstick.System, lowered: slipstick.Lowered) -> list[Cell]:
    """Return what so many accelerators cost, and a run on them."""
    plan = slipstick.make_plan(num_gpus=gpus, tp=TP, pp=PP, seq_len=SEQ_LEN, global_batch=SEQUENCES, family=FAMILY)
    alone = estimate(lowered.source, system, plan, lowered=lowered)
    answer = worth(train(alone, RUN), TERMS[terms])
    assert answer.run is not None
    assert answer.money is not None
    money = answer.money.money
    capital = [_one(money.cost.bill.line(part).usd) / gpus for part in PARTS]
    hour = [_one(answer.money.owned.gpu_hour.line(part).usd) for part in YEAR]
    known = {**answer.metrics, **answer.run.metrics, **answer.money.metrics}
    run_s, goodput, usd_run, kwh, tonnes = (_one(known[name]) for name in METRICS)
    return [terms, gpus, *_network(money), *capital, sum(capital), *hour, sum(hour), _one(money.cost.power_w) / gpus,
            answer.metrics["step_time_s"], goodput, run_s / 86400.0, usd_run / 1e6, kwh / 1e6, tonnes]  # fmt: skip


def _network(money: Money) -> tuple[int, int]:
    """Switches between servers, and the tiers that they are in."""
    wires = money.cost.levels[-1].wiring
    assert wires is not None
    return int(_one(wires.switches)), sum(_one(links) > 0 for links in wires.links)


def _one(number: Num) -> float:
    return float(np.ravel(number)[0])


def make(full: bool) -> Table:
    """Price every size; the reduced grid has the machines as they are sold, the full one as they are made as well."""
    system = slipstick.load_system(SYSTEM, stack="megatron-core")
    lowered = slipstick.lower(slipstick.load(MODEL, cache=CACHE), FAMILY)
    rows = [row_of(terms, gpus, system, lowered) for terms in (TERMS if full else ("as sold",)) for gpus in SIZES]
    columns = ["machines are priced", "GPUs", "switches", "tiers", *(f"{part} ($/GPU)" for part in PARTS)]
    hours = [*(f"{part} ($/GPU-hour)" for part in YEAR), "$/GPU-hour", "W/GPU"]
    runs = ["step (s)", "goodput", "run (days)", "run (M$)", "run (GWh)", "run (tCO2e)"]
    return Table([*columns, "capital ($/GPU)", *hours, *runs], rows, [
        f"{MODEL}, bf16, tp{TP} pp{PP}, ZeRO 1, full recomputation, {SEQUENCES} sequences of {SEQ_LEN} tokens a step.",
        "A GPU-hour is at the power that the steps draw, and W/GPU at full load; prices and lives of the usual book.",
        "Switches and tiers are those between servers, of 64 ports of 400 Gbit/s.",
        f"A run is {TOKENS / 1e12:g}T tokens, with the best interval of checkpoints, whose storage takes 2 TB/s.",
    ])  # fmt: skip


def conclude(table: Table) -> Iterator[str]:
    """Say what a tier of switches and twice the GPUs cost."""
    sold = table.only({"machines are priced": "as sold"})
    hours = {tiers: rows.numbers("$/GPU-hour") for tiers, rows in sold.groups("tiers").items()}
    (few, low), (more, high) = ((tiers, sum(usd) / len(usd)) for tiers, usd in hours.items())
    yield say(
        "From {few:g} to {more:g} tiers of switches a GPU-hour costs {rise:.1%} more",
        0 < high / low - 1 < 0.2, few=float(few), more=float(more), rise=high / low - 1,
    )  # fmt: skip
    gpus, days, usd = (sold.numbers(name) for name in ("GPUs", "run (days)", "run (M$)"))
    yield say(
        "From {few:,.0f} to {many:,.0f} GPUs a run takes {short:.1f} times less time and costs {dear:.2f} times as "
        "much",
        1 < days[0] / days[-1] < gpus[-1] / gpus[0] and usd[-1] > usd[0], few=gpus[0], many=gpus[-1],
        short=days[0] / days[-1], dear=usd[-1] / usd[0],
    )  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw what the network and a run cost over the size, and what a GPU-hour is made of."""
    sold = table.groups("machines are priced")["as sold"]
    sizes = [f"{gpus:,}" for gpus in sold.column("GPUs")]
    axes = panels[0]
    axes.bar(sizes, sold.numbers("network ($/GPU)"))
    axes.set(xlabel="GPUs", ylabel="network ($/GPU)")
    stacked(panels[1], sizes, {part: sold.numbers(f"{part} ($/GPU-hour)") for part in YEAR})
    panels[1].set_ylabel("$/GPU-hour")
    for terms, rows in table.groups("machines are priced").items():
        panels[2].plot(rows.numbers("run (days)"), rows.numbers("run (M$)"), marker="o", label=terms)
        for gpus, days, usd in zip(
            rows.column("GPUs"), rows.numbers("run (days)"), rows.numbers("run (M$)"), strict=True
        ):
            panels[2].annotate(f"{gpus:,}", (days, usd), xytext=(3, 3), textcoords="offset points")
    panels[2].set(xlabel="run (days)", ylabel="run (M$)", xscale="log")
    panels[2].legend()


if __name__ == "__main__":
    run(__doc__, make, draw, panels=3, conclude=conclude)
