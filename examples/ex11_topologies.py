"""Topologies and their collectives at one bandwidth, and steps of two models on networks of equal cost and power.

Collectives: every accelerator has 400 GB/s into its network, however many wires share them; `nodes of 8` have that
inside of a node and 50 GB/s between nodes, as clusters of today do. The fastest algorithm of all is taken, whether
libraries have it or not. Steps: networks are built of the ports, switches and optics of a DGX H100's, their links
scaled until all carry, cost or draw the same; models run the fastest of their plans under the best placement.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from drawing import plain_ticks
from matplotlib.axes import Axes
from study import Cell, Table, run, say

import slipstick
from slipstick.backends.network.collectives import collective_time
from slipstick.backends.network.topology.level import Dragonfly, NetworkLevel, Topology
from slipstick.explore.topologies import EQUALS, TopologyStep, equalised, steps_on, topology_network

CACHE = slipstick.GraphCache.default()
RATE, SLOW = 400e9, 50e9  # bytes a second of an accelerator, and of its port between nodes of eight
KINDS = ("all_reduce", "all_to_all")
SQUARES = {64: (8, 8), 256: (16, 16), 1024: (32, 32)}
CUBES = {64: (4, 4, 4), 256: (4, 8, 8), 1024: (8, 8, 16)}
# Hosts at a router, routers in a group, groups, global links a router.
DRAGONFLIES = {64: (2, 4, 8, 2), 256: (4, 8, 8, 4), 1024: (4, 8, 32, 4)}
SEQ_LEN, BATCH = 4096, 2048
FAMILY = slipstick.Family(zero=1, pp=True, recompute="full", kernels="fused")
# Degrees of tensor, pipeline and expert parallelism that are tried.
MODELS = {
    "llama-3.1-70b": [(tp, pp, 1) for tp in (1, 8) for pp in (2, 4, 8)],
    "deepseek-v3": [(1, pp, ep) for pp in (8, 16) for ep in (8, 16, 32)],
}
TORUS = "torus"
TOPOLOGIES = ("fat_tree", "fat_tree=2", "rail_optimised", "dragonfly", TORUS, "hyperx")
_FAT, _SAME = "fat tree 1:1", ("switch", "ring", "torus 3D")
COLUMNS = (
    "what", "network", "accelerators", "message (MiB)", "algorithm or plan", "placement", "time (s)", "GB/s a rank",
    "equal", "network ($/GPU)", "network (W/GPU)", "share of messages",
)  # fmt: skip


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
                yield [kind, name, size, message / 2**20, found.chosen().algorithm, "", time_s, rate, "", "", "", ""]


def steps(size: int, base: slipstick.System) -> Iterator[list[Cell]]:
    """Yield a row a model, budget and network: the fastest plan that fits; of the torus also in ranks' order.

    All have what the fat tree of one port of 400 Gbit/s an accelerator has.
    """
    networks = [topology_network(text, base, size) for text in TOPOLOGIES]
    for model, degrees in MODELS.items():
        graph = slipstick.load(model, cache=CACHE)
        family = replace(FAMILY, ep=model == "deepseek-v3")
        plans = [
            slipstick.make_plan(
                num_gpus=size, tp=tp, pp=pp, ep=ep, global_batch=BATCH, seq_len=SEQ_LEN,
                family=replace(family, sp=tp > 1),
            )
            for tp, pp, ep in degrees
        ]  # fmt: skip
        drawn_out = [plan.under(replace(plan.family, placement="ranks")) for plan in plans]
        for equal in EQUALS:
            scaled = equalised(networks, equal, None)
            torus = [scaled[TOPOLOGIES.index(TORUS)]]
            found = [*steps_on(scaled, base, graph, plans), *steps_on(torus, base, graph, drawn_out)]
            yield from ([model, *_cells(step, equal, size)] for step in found)


def _cells(step: TopologyStep, equal: str, size: int) -> list[Cell]:
    network, answer = step.network, step.answer
    assert answer is not None
    plan, step_s = answer.plan, float(answer.metrics["step_time_s"])
    share = float(answer.metrics["exposed_comm_s"]) / step_s
    built: list[Cell] = [network.usd / size, network.power_w / size]
    return [network.name, size, "", plan.degrees, plan.placement, step_s, "", equal, *built, share]


def make(full: bool) -> Table:
    """Price all collectives and steps; the reduced grid has 64 and 1024 accelerators, steps on 512, not 4096."""
    base = slipstick.load_system("dgx-h100", ["network.infiniband.hop_latency=0.5us"])
    messages = [2.0**k for k in (range(10, 31, 2) if full else (14, 20, 28))]
    rows = [*collectives((64, 256, 1024) if full else (64, 1024), messages, base)]
    rows += steps(4096 if full else 512, base)
    return Table(COLUMNS, rows, [
        "GB/s a rank: bytes that a rank has to send at least, 2 (n - 1) / n S for an all-reduce of S and (n - 1) / n S "
        "for an all-to-all, over the time.",
        f"Steps of {BATCH} sequences of {SEQ_LEN} tokens on chips of H100; micro-batches of one, full recomputation. "
        "Direct networks are links of 10 m optics alone; switched ones also have adapters and switches. NVLink, which "
        "rails keep inside of nodes, is part of the servers of all.",
    ])  # fmt: skip


def conclude(table: Table) -> Iterator[str]:
    """Say of each model which network is fastest for equal money, power and bandwidth, and what placement decides."""
    for model in MODELS:
        rows = table.only({"what": model})
        steps = {equal: _steps(rows, equal) for equal in EQUALS}
        first = {equal: min(some, key=lambda name: some[name]) for equal, some in steps.items()}
        over = {equal: steps[equal][_FAT] / steps[equal][first[equal]] for equal in EQUALS}
        yield say(
            "{model} is fastest on {cost} for equal cost, where a {fat} takes {a:.2f} times as long, on {power} for "
            "equal power ({b:.2f}) and on {bandwidth} at equal bandwidth ({c:.2f})",
            min(over["cost"], over["power"]) > 1, model=model, fat=_FAT, a=over["cost"], b=over["power"],
            c=over["bandwidth"], **first,
        )  # fmt: skip
    model = list(MODELS)[-1]
    drawn = {equal: _drawn_out(table.only({"what": model}), equal) for equal in EQUALS}
    yield say(
        "Placed in ranks' order {model} takes {least:.2f} to {most:.2f} times as long on the torus as placed well",
        min(drawn.values()) > 1, model=model, least=min(drawn.values()), most=max(drawn.values()),
    )  # fmt: skip
    most = table.only({"accelerators": 1024.0})
    # Of the messages of a network the last is the largest.
    times = {k: {n: most.only({"what": k, "network": n}).numbers("time (s)")[-1] for n in _SAME} for k in KINDS}
    ring, torus = ({kind: times[kind][name] / times[kind]["switch"] for kind in KINDS} for name in _SAME[1:])
    yield say(
        "Of the same bandwidth a ring of {num:g} takes {a:.2f} times as long as a switch for a large all-reduce and "
        "{b:.0f} times for an all-to-all, a {torus} {c:.2f} and {d:.1f} times",
        ring[KINDS[1]] > torus[KINDS[1]] > 1, num=1024, torus=_SAME[2], a=ring[KINDS[0]], b=ring[KINDS[1]],
        c=torus[KINDS[0]], d=torus[KINDS[1]],
    )  # fmt: skip


def _steps(rows: Table, equal: str) -> dict[str, float]:
    """Return the steps of one budget by network, well placed: the first of each."""
    some = rows.only({"equal": equal})
    found: dict[str, float] = {}
    for name, step_s in zip(map(str, some.column("network")), some.numbers("time (s)"), strict=True):
        found.setdefault(name, step_s)
    return found


def _drawn_out(rows: Table, equal: str) -> float:
    """Return how many times as long the torus takes in ranks' order, the last row of a budget."""
    some = rows.only({"equal": equal})
    return some.numbers("time (s)")[-1] / _steps(rows, equal)[str(some.column("network")[-1])]


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw steps of the model of experts by network."""
    (axes,) = panels
    rows = table.only({"what": list(MODELS)[-1]})
    groups = rows.groups("equal")
    names = [*map(str, groups[EQUALS[0]].column("network"))]
    names[-1] += ",\nranks' order"
    height = 0.8 / len(groups)
    for k, (equal, some) in enumerate(groups.items()):
        places = [place + k * height for place in range(len(names))]
        axes.barh(places, some.numbers("time (s)"), height, label=f"equal {equal}")
    axes.set_yticks([place + height for place in range(len(names))], names)
    axes.invert_yaxis()
    axes.set(xlabel=f"step of DeepSeek-V3 on {rows.numbers('accelerators')[0]:g} (s)", xscale="log")
    plain_ticks(axes.xaxis)
    axes.legend()


if __name__ == "__main__":
    run(__doc__, make, draw, conclude=conclude, panel_in=3.6)
