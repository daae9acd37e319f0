"""Stages of one pipeline on two generations of a chip: what balanced layers gain, and how near both alone that comes.

Published: Llama 140B on 128 AMD GPUs and 640 others in one pipeline reached 97.49 % of the most that both could do
(HETHUB, arXiv 2405.16256); which chips and degrees is not said, so a fleet of these shares stands for it.
"""

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from study import Cell, Table, run, say

import slipstick

PUBLISHED = 0.9749
# One sixth of the GPUs are AMD's.
HETHUB = "mi210-server:1,dgx-a100-80gb:5"
SHORT = {"dgx-a100-80gb": "A100", "dgx-h100": "H100", "mi210-server": "MI210", "dgx-b200": "B200"}
FLEETS = (HETHUB, "dgx-h100:4,dgx-a100-80gb:4", "dgx-a100-80gb:4,dgx-h100:4", "dgx-h100:2,dgx-a100-80gb:6",
          "dgx-h100:6,dgx-a100-80gb:2", "dgx-b200:4,dgx-h100:4")  # fmt: skip
LINKS = ("25Gbit/s", "2.5Gbit/s", "1Gbit/s")


def said(fleet: str) -> str:
    """Return a fleet in short names."""
    for name, short in SHORT.items():
        fleet = fleet.replace(name, short)
    return fleet.replace(",", " > ")


def row(fleet: str, link: str | None) -> list[Cell]:
    """Return a fleet against even layers, and against its systems each at the pace that it has alone."""
    stages = sum(int(part.rpartition(":")[2]) for part in fleet.split(","))
    slower = {} if link is None else {"link": link}
    found = slipstick.mixed(
        "llama-2-70b", stages=fleet, gpus=stages * 32, tp=8, zero=1, seq=4096, gbs=128, recompute="full",
        **slower,  # type: ignore[arg-type]
    )  # fmt: skip
    step_s = found.best.metrics["step_time_s"]
    alone = {name: other.metrics["step_time_s"] for name, other in found.others.items()}
    parts = [part.rpartition(":") for part in fleet.split(",")]
    bound_s = stages / sum(int(num) / alone[f"{name}:{stages}"] for name, _, num in parts)
    usd = found.best.metrics["usd_per_mtok"]
    share = bound_s / step_s
    told = [PUBLISHED, 100 * (share / PUBLISHED - 1)] if fleet == HETHUB else ["", ""]
    layers = ",".join(map(str, found.best.layers))
    return [said(fleet), link or "network", layers, step_s, alone["even layers"] / step_s, share, *told, usd]


def rows(full: bool) -> Iterator[list[Cell]]:
    """Yield fleets over their networks, then one of them over slower links."""
    for fleet in FLEETS if full else FLEETS[:2]:
        yield row(fleet, None)
    for link in LINKS if full else LINKS[-1:]:
        yield row(FLEETS[1], link)


def make(full: bool) -> Table:
    """Estimate fleets, with layers shared out by time and memory."""
    columns = [
        "stages",
        "link per GPU",
        "layers",
        "step (s)",
        "even layers / balanced",
        "share of both alone",
        "published",
        "error (%)",
        "$/M tokens",
    ]
    return Table(columns, list(rows(full)), [
        "Llama 2 70B, 32 GPUs a stage (tp8), 128 sequences of 4,096 tokens, full recomputation.",
        "Both alone: tokens/s of the whole pipeline on each system, by its share of the stages, added up. A mixed step "
        "may beat it: stages with few layers fill and drain the pipeline sooner.",
        "HETHUB's model, chips and degrees are others: the ratio is held against it, no time.",
    ])  # fmt: skip


def conclude(table: Table) -> Iterator[str]:
    """Say what stages of two generations reach, and what shares of layers and links are worth."""
    share, gain = table.numbers("share of both alone"), table.numbers("even layers / balanced")
    slow = table.column("link per GPU")[share.index(min(share))]
    fast = [s for s, link in zip(share, table.column("link per GPU"), strict=True) if link != slow]
    yield say(
        "Stages of two generations reach {low:.0%} to {high:.0%} of the tokens/s of both alone, and {slow:.0%} over "
        "{link} a GPU",
        min(fast) > 0.9, low=min(fast), high=max(fast), slow=min(share), link=slow,
    )  # fmt: skip
    yield say(
        "Layers shared out to suit them bring {low:.2f} to {high:.2f} times the tokens/s of even layers",
        min(gain) > 1, low=min(gain), high=max(gain),
    )  # fmt: skip
    errors = [float(cell) for cell in table.column("error (%)") if cell != ""]
    yield say(
        "The published share of such a pipeline is met within {error:.1f} %",
        max(map(abs, errors)) < 5, error=max(map(abs, errors)),
    )  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw the share of what both do alone, with even and with balanced layers."""
    names = [f"{row[0]}\n{row[1]}" for row in table.rows]
    balanced = table.numbers("share of both alone")
    even = [share / gain for share, gain in zip(balanced, table.numbers("even layers / balanced"), strict=True)]
    place = range(len(names))
    panels[0].bar([k - 0.2 for k in place], even, width=0.4, label="even layers")
    panels[0].bar([k + 0.2 for k in place], balanced, width=0.4, label="balanced")
    panels[0].axhline(PUBLISHED, color="k", linestyle=":", label="HETHUB")
    panels[0].set_xticks(list(place), names, rotation=30)
    panels[0].set(ylabel="tokens/s over the sum of both alone")
    panels[0].legend()


if __name__ == "__main__":
    run(__doc__, make, draw, conclude=conclude, panel_in=4.4)
