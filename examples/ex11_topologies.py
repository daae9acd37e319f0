"""Topologies and collective algorithms on 64 to 1024 accelerators, and what a dense and an MoE model make of them.

Every accelerator has 400 GB/s into its network, however many wires share them; `nodes of 8` have that inside of a node
and 50 GB/s between nodes, as clusters of today do. The fastest algorithm of all is taken, whether libraries have it or
not. Models run the fastest of their plans over data, tensor (with sequences), pipeline and expert parallelism.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from drawing import curves, stacked
from matplotlib.axes import Axes
from study import Cell, Table, run

import slipstick
from slipstick.backends.network.collectives import collective_time
from slipstick.backends.network.topology.level import Dragonfly, NetworkLevel, Topology

CACHE = slipstick.GraphCache.default()
RATE, SLOW = 400e9, 50e9  # bytes a second of an accelerator, and of its port between nodes of eight
KINDS = ("all_reduce", "all_to_all")
SQUARES = {64: (8, 8), 256: (16, 16), 1024: (32, 32)}
CUBES = {64: (4, 4, 4), 256: (4, 8, 8), 1024: (8, 8, 16)}
# Hosts at a router, routers in a group, groups, global links a router.
DRAGONFLIES = {64: (2, 4, 8, 2), 256: (4, 8, 8, 4), 1024: (4, 8, 32, 4)}
SEQ_LEN, BATCH = 4096, 1024
MODELS = {"llama-3.1-70b": (1,), "mixtral-8x7b": (1, 2, 4, 8)}


def level(size: int, topology: Topology, dims: tuple[int, ...] = (), over: float = 1.0) -> NetworkLevel:
    """Return a network of one level: 1 us to a neighbour, 0.5 us for each further hop."""
    return NetworkLevel(
        "network", size, RATE, 1e-6, topology, 0.9, hop_latency_s=0.5e-6, dims=dims, oversubscription=over,
        algorithm="best",
    )  # fmt: skip


def networks(size: int) -> dict[str, tuple[NetworkLevel, ...]]:
    """Return every network of so many accelerators."""
    flat = {
        "switch": level(size, "switch"),
        "fat tree 2:1": level(size, "fat_tree", over=2.0),
        "fully connected": level(size, "fully_connected"),
        "ring": level(size, "ring"),
        "mesh 2D": level(size, "mesh", SQUARES[size]),
        "torus 2D": level(size, "torus", SQUARES[size]),
        "torus 3D": level(size, "torus", CUBES[size]),
        "hypercube": level(size, "hypercube"),
        "dragonfly": replace(level(size, "dragonfly"), dragonfly=Dragonfly(*DRAGONFLIES[size], RATE)),
    }
    node = replace(level(8, "switch"), name="node")
    found: dict[str, tuple[NetworkLevel, ...]] = {name: (one,) for name, one in flat.items()}
    rails = NetworkLevel("rails", size, SLOW, 3e-6, "rail_optimised", 0.9, algorithm="best")
    found["nodes of 8, rails"] = (node, rails)
    found["nodes of 8, rails only"] = (node, replace(rails, topology="rail_only"))
    return found


def collectives(sizes: Sequence[int], messages: Sequence[float], base: slipstick.System) -> Iterator[list[Cell]]:
    """Yield a row a network, collective and message: the fastest algorithm, and the bandwidth that a rank makes."""
    for size, kind in product(sizes, KINDS):
        moved = (2 if kind == "all_reduce" else 1) * (size - 1) / size
        for name, levels in networks(size).items():
            for message in messages:
                found = collective_time(kind, message, size, 1, replace(base, levels=levels))
                time_s = float(found.time_s)
                rate = moved * message / time_s / 1e9
                yield [kind, name, size, message / 2**20, found.chosen().algorithm, time_s, rate, "", ""]


def plans_of(gpus: int, degrees: Sequence[int], family: slipstick.Family) -> Iterator[slipstick.Plan]:
    """Yield all degrees that divide GPUs and batch; whole experts are sharded over data parallelism."""
    for tp, pp, ep in product((1, 2, 4, 8), (1, 2, 4, 8), degrees):
        replicas = gpus // prod((tp, pp))
        if replicas % ep == 0 and BATCH % replicas == 0 and (ep > 1) == family.ep and (tp > 1) == family.sp:
            yield slipstick.make_plan(
                num_gpus=gpus, tp=tp, pp=pp, ep=ep, global_batch=BATCH, seq_len=SEQ_LEN, family=family
            )


def models(sizes: Sequence[int], base: slipstick.System) -> Iterator[list[Cell]]:
    """Yield a row a model and network: the fastest plan that fits, its step and the part that exposed messages take."""
    for model, degrees in MODELS.items():
        graph = slipstick.load(model, cache=CACHE)
        families = [
            slipstick.Family(sp=sp, zero=1, pp=True, ep=ep, recompute=recompute, kernels="fused")
            for sp, ep, recompute in product((False, True), {d > 1 for d in degrees}, ("none", "full"))
        ]
        lowered = [slipstick.lower(graph, family) for family in families]
        for size in sizes:
            plans = [list(plans_of(size, degrees, family)) for family in families]
            for name, levels in networks(size).items():
                system = replace(base, levels=levels)
                tables = [slipstick.estimate_many(low, system, p) for low, p in zip(lowered, plans, strict=True) if p]
                yield [model, name, size, "", *_best(tables)]


def _best(tables: Sequence[slipstick.Estimates]) -> list[Cell]:
    """Return the fastest plan that fits, its step, tokens a second and GPU, and the part of messages."""
    steps = ((float(step_s), k, table) for table in tables for k, step_s in enumerate(table.metrics["step_time_s"]))
    step_s, place, table = min((one for one in steps if one[2].fits[one[1]]), key=lambda one: one[0])
    found = {name: float(values[place]) for name, values in table.metrics.items()}
    degrees = {axis: int(table.plans.columns[axis][place]) for axis in ("tp", "pp", "ep", "dp")}
    how = " ".join(f"{axis}{n}" for axis, n in degrees.items())
    return [how, step_s, "", found["tokens_per_s_per_gpu"], found["exposed_comm_s"] / step_s]


def make(full: bool) -> Table:
    """Price all collectives and models; the reduced grid has 64 and 1024 accelerators, models on 64."""
    base = slipstick.load_system("dgx-h100")
    messages = [2.0**k for k in (range(10, 31, 2) if full else (14, 20, 28))]
    rows = [*collectives((64, 256, 1024) if full else (64, 1024), messages, base)]
    rows += models((64, 256, 1024) if full else (64,), base)
    columns = ["what", "network", "accelerators", "message (MiB)", "algorithm or plan", "time (s)", "GB/s a rank"]
    return Table([*columns, "tokens/s/GPU", "share of messages"], rows, [
        "GB/s a rank: bytes that a rank has to send at least, 2 (n - 1) / n S for an all-reduce of S and (n - 1) / n S "
        "for an all-to-all, over the time.",
        f"Steps of {BATCH} sequences of {SEQ_LEN} tokens on chips of H100; micro-batches of one.",
    ])  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw bandwidth over message size on the largest network, and the share of messages in steps of models."""
    whats = table.groups("what")
    for axes, kind in zip(panels, KINDS, strict=False):
        size = str(whats[kind].column("accelerators")[-1])
        rows = whats[kind].groups("accelerators")[size]
        curves(axes, rows.groups("network"), "message (MiB)", "GB/s a rank")
        axes.set(title=f"{kind}, {size} accelerators", xscale="log", yscale="log")
    for axes, model in zip(panels[2:], MODELS, strict=True):
        rows = next(iter(whats[model].groups("accelerators").values()))
        stacked(axes, [str(n) for n in rows.column("network")], {"messages": rows.numbers("share of messages")})
        axes.set(title=model, ylabel="share of the step")


if __name__ == "__main__":
    run(__doc__, make, draw, panels=4)
