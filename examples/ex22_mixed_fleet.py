"""Prompts on one kind of machine, answers on another: what mixed fleets answer, and what it costs.

Published: Llama 2 70B on eight H100 has half the time to first token of eight A100, and 0.6 to 0.7 of their time a
token (Patel et al., Splitwise, arXiv 2311.18677, table IV): prompts gain most from the newer chip.
"""

from collections.abc import Iterator, Sequence
from itertools import product

from matplotlib.axes import Axes
from study import Cell, Table, run

import slipstick

KINDS = ("dgx-a100-80gb", "dgx-h100", "dgx-h200")
SHORT = {"dgx-a100-80gb": "A100", "dgx-h100": "H100", "dgx-h200": "H200"}
# Tokens of requests, and workers of prompts and of answers, each eight GPUs.
LOADS = {"coding": (1500, 13), "conversation": (1020, 129), "long": (8192, 512)}
POOLS = ("1:1", "1:2", "2:1", "1:3", "3:1")
# Of one request alone: TTFT and TPOT of H100 over A100, medians of the traces in ms.
PUBLISHED = {"coding": (95 / 185, 31 / 52), "conversation": (84 / 155, 28 / 40)}


def phases() -> Iterator[list[Cell]]:
    """Yield how much faster one chip is than another at prompts and at answers."""
    for load, (ttft, tpot) in PUBLISHED.items():
        prompt, answer = LOADS[load]
        found = [
            slipstick.serve("llama-2-70b", system, tp=8, isl=str(prompt), osl=str(answer), concurrency="1").metrics
            for system in KINDS[:2]
        ]
        for name, published in (("ttft_s", ttft), ("tpot_s", tpot)):
            ratio = found[1][name] / found[0][name]
            yield [load, "H100 / A100", name, ratio, published, 100 * (ratio / published - 1), "", ""]


def fleets(full: bool) -> Iterator[list[Cell]]:
    """Yield the best split of each pair of kinds: most requests a second and dollar."""
    for load in list(LOADS) if full else ["long"]:
        prompt, answer = LOADS[load]
        for first, then in product(KINDS, repeat=2):
            answers = []
            for pools in POOLS if full else POOLS[:3]:
                words = {} if first == then else {"prefill_system": first}
                found = slipstick.serve(
                    "llama-2-70b" if load != "long" else "llama-3.1-70b", then, tp=8, isl=str(prompt), osl=str(answer),
                    disagg=pools, **words,  # type: ignore[arg-type]
                )  # fmt: skip
                answers.append((found.metrics["usd_per_mtok_output"], pools, found.metrics["requests_per_s"]))
            usd, pools, rate = min(answers)
            yield [load, f"{SHORT[first]} > {SHORT[then]}", pools, "", "", "", rate, usd]


def make(full: bool) -> Table:
    """Compare chips phase by phase, then fleets of two kinds."""
    columns = [
        "load",
        "prompts > answers",
        "what",
        "ratio",
        "published",
        "error (%)",
        "requests/s",
        "$/M answer tokens",
    ]
    return Table(columns, [*phases(), *fleets(full)], [
        "Each pool has servers of eight GPUs (tp8, vLLM); of the splits of up to four servers the cheapest is shown.",
        "Caches cross the slower of both outermost networks; costs are owned, each pool at the power that it draws.",
    ])  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw ratios beside the published, and the cost of each pair."""
    ratios = [row for row in table.rows if row[1] == "H100 / A100"]
    names = [f"{row[0]}\n{row[2]}" for row in ratios]
    panels[0].bar(names, [float(row[3]) for row in ratios], width=0.6, label="modelled")
    panels[0].plot(names, [float(row[4]) for row in ratios], "kx", label="published")
    panels[0].set(ylabel="H100 over A100")
    panels[0].legend()
    load = str(table.rows[-1][0])
    pairs = [row for row in table.rows if row[0] == load and row[1] != "H100 / A100"]
    panels[1].bar([str(row[1]) for row in pairs], [float(row[7]) for row in pairs], width=0.6)
    panels[1].tick_params(axis="x", labelrotation=60, labelsize="x-small")
    panels[1].set(ylabel=f"$ for 1M tokens of answers, {load}")


if __name__ == "__main__":
    run(__doc__, make, draw, panels=2)
