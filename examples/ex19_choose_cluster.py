"""Which cluster trains a 70B model on 15T tokens in 60 days: eight systems, their best plans, days, dollars, carbon.

The answer of `slipstick choose` as a study: of each system and number of GPUs the fastest plan, of each system the
cheapest cluster that keeps the deadline. Prices are those of the usual book, bought by the market; a break-even is the
price of a GPU-hour at which a cluster would cost what the first does.
"""

import io
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from typing import cast

from drawing import dots
from matplotlib.axes import Axes
from study import Cell, Table, run, say

from slipstick.cli import run as slipstick

MODEL, SYSTEMS = "llama-3.1-70b", (
    "dgx-a100-80gb", "dgx-h100", "dgx-h200", "dgx-b200", "gb200-nvl72", "mi300x-platform", "tpu-v5p-pod", "tpu-v6e-pod",
)  # fmt: skip
DEADLINE_DAYS = 60
ASKED = ("--tokens", "15T", "--deadline", "60d", "--seq", "8192", "--gbs", "2048", "-q")
DAY_S = 86400.0


def told(*words: str) -> Mapping[str, object]:
    """Return what a command answers."""
    said = io.StringIO()
    with redirect_stdout(said):
        slipstick(["choose", MODEL, *words, "--format", "json"])
    return cast(Mapping[str, object], json.loads(said.getvalue()))


def make(full: bool) -> Table:
    """Choose among eight systems of 1,024 to 16,384 GPUs; the reduced grid has two of 2,048 and 4,096."""
    systems, counts = (SYSTEMS, "1024:16384") if full else (("dgx-h100", "dgx-b200"), "2048:4096")
    began = time.process_time()
    found = told("--system", ",".join(systems), "--gpus", counts, *ASKED)
    took = time.process_time() - began
    best = cast(Sequence[Mapping[str, object]], found["best"])
    notes = [
        f"{cast(int, found['num_candidates']):,} plans were looked at, {cast(int, found['num_kept']):,} fit.",
        "Costs are owned at market prices; failures and checkpoints are not counted.",
        *(f"{name} is left out: {why}" for name, why in cast(Mapping[str, str], found["left_out"]).items()),
    ]
    if full:
        notes.append(f"One core took {took:.0f} s.")
    columns = ["system", "GPUs", "plan", "step (s)", "MFU", "days", "cost (M$)", "GPU-hour ($)", "break-even ($)",
               "power (MW)", "carbon (tCO2e)", "keeps the deadline"]  # fmt: skip
    return Table(columns, [_row(one) for one in best], notes)


def _row(one: Mapping[str, object]) -> list[Cell]:
    m = cast(Mapping[str, float], one["metrics"])
    price = one["break_even_usd_per_gpu_hour"]
    scaled = (("usd_run", 1e6), ("usd_per_gpu_hour", 1.0))
    usd = [m[name] / by if name in m else "" for name, by in scaled]
    power = m["facility_power_w"] / 1e6 if "facility_power_w" in m else ""
    return [
        str(one["system"]), cast(int, one["num_gpus"]), str(one["plan"]), m["step_time_s"], m["mfu"],
        m["train_time_s"] / DAY_S, *usd, "" if price is None else cast(float, price), power, m.get("tco2e", ""),
        "yes" if one["keeps_all"] else "no",
    ]  # fmt: skip


def conclude(table: Table) -> Iterator[str]:
    """Say which system is the cheapest, which the fastest, and where others would have to be sold to draw level."""
    priced = Table(table.columns, [row for row in table.rows if row[list(table.columns).index("cost (M$)")] != ""])
    usd, days = priced.numbers("cost (M$)"), priced.numbers("days")
    first, fast = usd.index(min(usd)), days.index(min(days))
    names, gpus = priced.column("system"), priced.numbers("GPUs")
    yield say(
        "The cheapest that keeps the deadline is {gpus:,.0f} {name}: {days:.0f} days for {usd:.1f} M$",
        priced.column("keeps the deadline")[first] == "yes" and days[first] <= DEADLINE_DAYS, gpus=gpus[first],
        name=names[first], days=days[first], usd=usd[first],
    )  # fmt: skip
    yield say(
        "The fastest, {gpus:,.0f} {name}, takes {days:.0f} days for {usd:.1f} M$",
        days[fast] <= DEADLINE_DAYS, gpus=gpus[fast], name=names[fast], days=days[fast],
        usd=usd[fast],
    )  # fmt: skip
    last = usd.index(max(usd))
    hour, even = (float(priced.column(name)[last]) for name in ("GPU-hour ($)", "break-even ($)"))
    yield say(
        "The dearest, {name}, would have to cost {even:.2f} instead of {hour:.2f} $ a GPU-hour to draw level",
        even < hour, name=names[last], even=even, hour=hour,
    )  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw days and dollars of each system."""
    names = [
        f"{float(gpus):g} {system}" for system, gpus in zip(table.column("system"), table.column("GPUs"), strict=True)
    ]
    for panel, name in zip(panels, ("days", "cost (M$)"), strict=True):
        points = [(k, float(cell)) for k, cell in enumerate(table.column(name)) if cell != ""]
        dots(panel, names, {name: points})
        panel.set(xlabel=name, xlim=(0, None))
    panels[0].axvline(DEADLINE_DAYS, linewidth=0.8, linestyle="--")


if __name__ == "__main__":
    run(__doc__, make, draw, panels=2, conclude=conclude)
