"""One model on several sites with a slow link between them: how much of the time they compute.

Published: INTELLECT-1, 10B on sites of eight H100 (arXiv 2412.01152; its table of places): 100 steps in 38 minutes,
then one exchange in int8, which took 103 s within the USA, 382 s with Europe and 469 s around the globe; sites computed
96, 86 and 83 % of the time.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from matplotlib.axes import Axes
from study import Cell, Table, run

import slipstick
from slipstick.cost.run.sites import Sites

# Llama 3's layers, 42 of them: 10.2B parameters. 128 sequences a site and step, as 38 minutes at 43 % MFU come to.
CONFIG = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 42, "num_attention_heads": 32,
          "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
          "max_position_embeddings": 8192, "tie_word_embeddings": False}  # fmt: skip
PARAMETERS, EVERY, STEPS_S = 10.2e9, 100, 38 * 60.0
PLACES = {"USA": (103.0, 0.96), "USA and Europe": (382.0, 0.86), "the globe": (469.0, 0.83)}
NUM = 14
# Bits a second of a site's link, and what is tried: steps between exchanges, type, fragments, steps that go on.
RATES = (1e7, 3e7, 1e8, 3e8, 1e9, 3e9, 1e10, 3e10, 1e11, 3e11)
WAYS = {
    "every step, bf16": (1, "bf16", 1, 0),
    "DiLoCo, every 100, fp32": (100, "fp32", 1, 0),
    "DiLoCo, every 100, int8": (100, "int8", 1, 0),
    "streaming, 10 parts, fp4, 5 steps go on": (100, "fp4", 10, 5),
}


def steps(full: bool) -> Iterator[list[Cell]]:
    """Yield the time of 100 steps of a site."""
    if not full:
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "intellect-1.json"
        path.write_text(json.dumps(CONFIG), encoding="utf-8")
        found = slipstick.estimate(
            str(path), "dgx-h100", gpus=8, zero=3, seq=8192, gbs=128, mbs=1, recompute="full", stack="fsdp2"
        )
    seconds = EVERY * found.metrics["step_time_s"]
    yield ["INTELLECT-1", "100 steps (min)", "a site", seconds / 60, STEPS_S / 60, 100 * (seconds / STEPS_S - 1)]


def made(bits_per_s: float, way: tuple[int, str, int, int], num: int = NUM) -> float:
    """Return the share of the time in which sites compute."""
    every, dtype, fragments, overlap = way
    sites = Sites(
        num=num, every=every, bytes_per_s=bits_per_s / 8, latency_s=0.1, dtype=dtype, fragments=fragments,
        overlap=overlap,
    )  # fmt: skip
    return sites.over(STEPS_S / EVERY, 8, PARAMETERS).utilisation


def places() -> Iterator[list[Cell]]:
    """Yield how much sites compute whose exchange takes as long as was measured, and what link that takes."""
    for place, (seconds, published) in PLACES.items():
        hops = 2 * (NUM - 1)
        bits_per_s = 8 * PARAMETERS * hops / NUM / (seconds - 0.1 * hops)
        found = made(bits_per_s, WAYS["DiLoCo, every 100, int8"])
        how = f"{place}, {bits_per_s / 1e9:.2f} Gbit/s"
        yield ["INTELLECT-1", "computes", how, found, published, 100 * (found / published - 1)]


def make(full: bool) -> Table:
    """Work out the published run, then ways to exchange over links."""
    sweep = [
        [name, "computes", f"{rate / 1e9:g} Gbit/s", made(rate, way), "", ""]
        for name, way in WAYS.items()
        for rate in (RATES if full else RATES[::2])
    ]
    return Table(["of", "what", "how", "predicted", "published", "error (%)"], [*steps(full), *places(), *sweep], [
        "Links of places follow from the measured times of exchanges, a ring of 14 sites with 0.1 s a message.",
        "Quality is no part of this: how many steps a run needs more with few exchanges is for papers to say.",
    ])  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw how much sites compute over their link."""
    for name in WAYS:
        rows = [row for row in table.rows if row[0] == name]
        rates = [float(str(row[2]).split()[0]) for row in rows]
        panels[0].plot(rates, [float(row[3]) for row in rows], "o-", label=name)
    panels[0].set(xscale="log", xlabel="link of a site (Gbit/s)", ylabel="share of the time in which sites compute")
    panels[0].legend()


if __name__ == "__main__":
    run(__doc__, make, draw)
