"""Which fleet answers 500 requests a second at p99: Llama 3.1 70B and Mixtral 8x7B on six systems.

The answer of `slipstick choose --rps` as a study: the fewest GPUs of each system on which 99 of 100 requests have
their first token within a second and 95 of 100 read 20 tokens a second, with one spare replica. The first plans of each
system are simulated request by request, and replicas are added until the percentiles are kept.
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

MODELS = ("llama-3.1-70b", "mixtral-8x7b")
SYSTEMS = ("dgx-a100-80gb", "dgx-h100", "dgx-h200", "dgx-b200", "gb200-nvl72", "mi300x-platform")
ASKED = ("--isl", "1024", "--osl", "256", "--ttft", "p99:1s", "--tpot", "p95:50ms", "--engine", "vllm", "--spare", "1")


def told(*words: str) -> Mapping[str, object]:
    """Return what a command answers."""
    said = io.StringIO()
    with redirect_stdout(said):
        slipstick(["choose", *words, "-q", "--format", "json"])
    return cast(Mapping[str, object], json.loads(said.getvalue()))


def make(full: bool) -> Table:
    """Size the fleets of both models on six systems; the reduced grid has one, on two, at a tenth of the rate."""
    models, systems, rate = (MODELS, SYSTEMS, "500") if full else (MODELS[:1], ("dgx-h100", "dgx-b200"), "50")
    rows: list[list[Cell]] = []
    notes = [f"{rate} requests/s of 1,024 tokens in and 256 out on vLLM; p99 TTFT <= 1 s, p95 TPOT <= 50 ms."]
    more = () if full else ("--tp", "4", "--pp", "1", "--disagg", "off")
    for model in models:
        began = time.process_time()
        found = told(model, "--rps", rate, "--system", ",".join(systems), *ASKED, *more)
        took = time.process_time() - began
        rows += [_row(model, one) for one in cast(Sequence[Mapping[str, object]], found["fleets"])]
        missing = cast(Sequence[Mapping[str, object]], found["left_out"])
        notes += [f"{model} on {one['system']} is left out: {one['why']}" for one in missing]
        notes += [f"{model}: one core took {took:.0f} s."] if full else []
    columns = ["model", "system", "GPUs", "plan", "p99 TTFT (ms)", "closed form (ms)", "p95 TPOT (ms)", "cost ($/hour)",
               "1M tokens out ($)", "power (kW)", "break-even ($/GPU-hour)"]  # fmt: skip
    return Table(
        columns, rows, [*notes, "Latencies are those of simulated requests; costs are owned at market prices."]
    )


def _row(model: str, one: Mapping[str, object]) -> list[Cell]:
    m, seen = cast(Mapping[str, float], one["metrics"]), cast(Mapping[str, float], one["simulated"])
    price = one["break_even_usd_per_gpu_hour"]
    return [
        model, str(one["system"]), cast(int, one["num_gpus"]), str(one["plan"]), seen["ttft_s"] * 1e3,
        seen["closed_form_ttft_s"] * 1e3, seen["tpot_s"] * 1e3, m.get("usd_per_hour", ""),
        m.get("usd_per_mtok_output", ""), m["power_w"] / 1e3 if "power_w" in m else "",
        "" if price is None else cast(float, price),
    ]  # fmt: skip


def conclude(table: Table) -> Iterator[str]:
    """Say which fleet is the cheapest for each model, and how near the closed form of its percentile is."""
    for model, every in table.groups("model").items():
        priced = [row for row in every.rows if row[list(table.columns).index("cost ($/hour)")] != ""]
        rows = Table(table.columns, priced)
        usd, names, gpus = rows.numbers("cost ($/hour)"), rows.column("system"), rows.numbers("GPUs")
        best, worst = usd.index(min(usd)), usd.index(max(usd))
        yield say(
            "{model} is cheapest on {gpus:.0f} GPUs of {best} for {least:.0f} $/hour and dearest on {others:.0f} of "
            "{worst} for {most:.0f}",
            usd[worst] < 3 * usd[best], model=model, gpus=gpus[best], best=names[best], least=usd[best],
            others=gpus[worst], worst=names[worst], most=usd[worst],
        )  # fmt: skip
    seen, closed = table.numbers("p99 TTFT (ms)"), table.numbers("closed form (ms)")
    yield say(
        "Simulated requests keep the limit of {kept}, at {most:.0f} ms at most; the closed form says {low:.2f} to "
        "{high:.2f} times as much",
        max(seen) <= 1000, kept="p99 TTFT", most=max(seen), low=min(c / s for c, s in zip(closed, seen, strict=True)),
        high=max(c / s for c, s in zip(closed, seen, strict=True)),
    )  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw GPUs and dollars of each system, a group of bars a model."""
    names = list(dict.fromkeys(map(str, table.column("system"))))
    for panel, column in zip(panels, ("GPUs", "1M tokens out ($)"), strict=True):
        points = {
            model: [
                (names.index(str(system)), float(cell))
                for system, cell in zip(part.column("system"), part.column(column), strict=True)
                if cell != ""
            ]
            for model, part in table.groups("model").items()
        }
        dots(panel, names, points)
        panel.set(xlabel=column, xlim=(0, None))
    panels[0].legend(ncols=2, loc="lower center", bbox_to_anchor=(0.4, 1.0))


if __name__ == "__main__":
    run(__doc__, make, draw, panels=2, conclude=conclude)
