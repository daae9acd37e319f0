"""Which cluster trains a 70B model on 15T tokens in 60 days: eight systems, their best plans, days, dollars, carbon.

The answer of `slipstick choose` as a study: of each system and number of GPUs the fastest plan, of each system the
cheapest cluster that keeps the deadline. Prices are those of the usual book, bought by the market; a break-even is the
price of a GPU-hour at which a cluster would cost what the first does.
"""

import io
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import cast

from drawing import beside
from matplotlib.axes import Axes
from study import Cell, Table, run

from slipstick.cli import run as slipstick

MODEL, SYSTEMS = "llama-3.1-70b", (
    "dgx-a100-80gb", "dgx-h100", "dgx-h200", "dgx-b200", "gb200-nvl72", "mi300x-platform", "tpu-v5p-pod", "tpu-v6e-pod",
)  # fmt: skip
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


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw days and dollars of each system."""
    names = [f"{system}\n{gpus}" for system, gpus in zip(table.column("system"), table.column("GPUs"), strict=True)]
    beside(panels[0], names, {"days": table.numbers("days")})
    panels[0].axhline(60, linewidth=1, linestyle="--")
    panels[0].set_ylabel("days")
    cost = [float(cell or 0) for cell in table.column("cost (M$)")]
    beside(panels[1], names, {"cost": cost})
    panels[1].set_ylabel("cost (M$)")


if __name__ == "__main__":
    run(__doc__, make, draw, panels=2)
