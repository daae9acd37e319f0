"""Memory of GPT models from 22B to 1T without recomputation, with selective and with full, against 80 GB.

Sizes, degrees and batches are those of Korthikanti et al. (arXiv 2205.05198, table 3). As there, sequence parallelism
goes with selective recomputation. The published activations are theirs (figure 1) as calculon's files hold them.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from drawing import stacked
from matplotlib.axes import Axes
from study import Cell, Table, run, say

import slipstick
from slipstick.driver.estimate import estimate

CACHE = slipstick.GraphCache.default()
GIB, SEQ_LEN, TP = 2**30, 2048, 8
POLICIES = ("none", "selective", "full")
PARTS = ("weights", "gradients", "optimizer", "activations", "temporary", "reserved")


class Model(NamedTuple):
    """A model as it was trained, and the activations of its first stage that were published, in GiB."""

    name: str
    pp: int
    vpp: int
    micro_batch: int
    batch: int
    published_gib: dict[str, float]


MODELS = (
    Model("megatron-22b", 1, 1, 4, 4, {"none": 59.25, "selective": 9.5625}),
    Model("megatron-175b", 8, 3, 1, 64, {"none": 66.84375, "selective": 12.3515625}),
    Model("megatron-530b", 35, 3, 1, 280, {"none": 114.0234375, "selective": 23.0761719}),
    Model("megatron-1t", 64, 1, 1, 512, {"none": 131.25, "selective": 26.5625}),
)


def plan_of(model: Model, recompute: str) -> slipstick.Plan:
    """Return the plan of a model under a policy."""
    family = slipstick.Family(
        sp=recompute == "selective", recompute=recompute, pp=model.pp > 1, scatter_p2p=True, kernels="fused",
        attention="unfused",
    )  # fmt: skip
    return slipstick.make_plan(
        num_gpus=TP * model.pp, tp=TP, pp=model.pp, vpp=model.vpp, micro_batch=model.micro_batch,
        global_batch=model.batch, seq_len=SEQ_LEN, family=family,
    )  # fmt: skip


def rows_of(model: Model, system: slipstick.System) -> Iterator[list[Cell]]:
    """Yield a row a policy: what the fullest device holds, in GiB."""
    graph = slipstick.load(model.name, dtype="fp16", cache=CACHE)
    for policy in POLICIES:
        found = estimate(graph, system, plan_of(model, policy))
        parts = [found.memory_bytes[part] / GIB for part in PARTS]
        fits = "yes" if found.fits else "no"
        yield [model.name, policy, *parts, sum(parts), fits, model.published_gib.get(policy, "")]


def make(full: bool) -> Table:
    """Estimate every model under every policy; the reduced grid is of the two smaller models."""
    system = slipstick.load_system("dgx-a100-80gb", stack="megatron-2022")
    rows = [row for model in (MODELS if full else MODELS[:2]) for row in rows_of(model, system)]
    columns = [*(f"{part} (GiB)" for part in PARTS), "all (GiB)", "fits 80 GB", "published activations (GiB)"]
    return Table(["model", "recompute", *columns], rows, [
        "The fullest device of each plan; fp16 weights, gradients added up in fp32, Adam in fp32.",
        "Published activations are of the layers of the first stage; ours hold what lies behind the embedding too.",
    ])  # fmt: skip


def conclude(table: Table) -> Iterator[str]:
    """Say which policies fit the memory, and how near the published activations are."""
    fits = {name: set(map(str, rows.column("fits 80 GB"))) for name, rows in table.groups("recompute").items()}
    models = list(table.groups("model"))
    yield say(
        "None of {count} models from {first} to {last} fits {gb:g} GB without recomputation, and all do with selective",
        fits["none"] == {"no"} and fits["selective"] == {"yes"}, count=len(models), first=models[0], last=models[-1],
        gb=80,
    )  # fmt: skip
    both = zip(table.numbers("activations (GiB)"), table.column("published activations (GiB)"), strict=True)
    over = [ours / float(published) - 1 for ours, published in both if published != ""]
    yield say(
        "Activations are {least:.1%} to {most:.1%} above the published, which leave out what lies behind the embedding",
        min(over) > 0 and max(over) < 0.1, least=min(over), most=max(over),
    )  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw a bar a plan and the memory of the chip."""
    names = [f"{row[0]} {row[1]}" for row in table.rows]
    stacked(panels[0], names, {part: table.numbers(f"{part} (GiB)") for part in PARTS})
    panels[0].axhline(80e9 / GIB, color="black", linestyle="--")
    panels[0].set_ylabel("memory of the fullest device (GiB)")


if __name__ == "__main__":
    run(__doc__, make, draw, conclude=conclude, panel_in=3.6)
