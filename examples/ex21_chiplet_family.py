"""One family of chiplets over process nodes, packages and HBM generations: Qwen3 32B trained and served.

A compute die of 400 mm2 is designed once a node; its products have one, two or four of it in a package, joined as one
device or over UCIe in an organic or an advanced package, with two stacks of HBM a die. Packages cost what they are made
for and their part of the design, which all products of a node share. Of each product the study asks what a token of
training and one of serving cost and how long they take, and which products are on the front of both.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from study import Cell, Table, run

import slipstick
from slipstick.backends.prices.book import load_prices
from slipstick.backends.technology.data import load_technology
from slipstick.explore.designs.designs import explore
from slipstick.explore.designs.setting import DesignJob, DesignSetting
from slipstick.explore.designs.space import DesignSpace
from slipstick.explore.pareto import pareto

CACHE = slipstick.GraphCache.default()
MODEL, PACKAGES, VOLUME = "qwen3-32b", 64, 1e6
DIE_MM2, W_PER_DIE, STACKS_PER_DIE = 400.0, 500.0, 2
NODES, MEMORIES = ("N7", "N5", "N3"), ("hbm2e", "hbm3", "hbm3e", "hbm4")
# How dies are joined: a device together, or devices over an interface in a package of a joint.
KINDS: Mapping[str, tuple[str, Literal["fan_out_bridge", "interposer"], float]] = {
    "one device": ("", "fan_out_bridge", 0.0),
    "UCIe advanced": ("ucie-advanced", "fan_out_bridge", 1e12),
    "UCIe standard": ("ucie-standard", "interposer", 0.25e12),
}
TRAIN = slipstick.Family(sp=True, zero=1, recompute="full")
DECODE = slipstick.Family(workload=slipstick.Workload.DECODE)
SEQ_LEN, SEQUENCES, CONTEXT, REQUESTS = 8192, 512, 2048, 1024


@dataclass(frozen=True, slots=True)
class Product:
    """One product of the family under its cheapest plans: seconds and dollars of 1M tokens, of both jobs."""

    node: str
    memory: str
    kind: str
    num_dies: int
    package_usd: float
    jobs: Mapping[str, tuple[float, float, float, int]]


def jobs_of(gpus: int) -> Iterator[tuple[str, int, DesignJob]]:
    """Yield both jobs under every degree of tensor parallelism that the model allows."""
    for tp in (4, 8, 16):
        plan = slipstick.make_plan(num_gpus=gpus, tp=tp, seq_len=SEQ_LEN, global_batch=SEQUENCES, family=TRAIN)
        yield "training", tp, DesignJob(LOWERED["training"], plan)
        plan = slipstick.make_plan(
            num_gpus=gpus, tp=tp, seq_len=CONTEXT, kv_len=CONTEXT, micro_batch=REQUESTS * tp // gpus, family=DECODE
        )
        yield "serving", tp, DesignJob(LOWERED["serving"], plan)


LOWERED = {
    "training": slipstick.lower(slipstick.load(MODEL, cache=CACHE), TRAIN),
    "serving": slipstick.lower(slipstick.load(MODEL, slipstick.Workload.DECODE, cache=CACHE), DECODE),
}


def products(full: bool) -> Iterator[Product]:
    """Yield every product that can be built and holds both jobs."""
    for num_dies in (1, 2, 4):
        for kind, (d2d, joint, rate) in KINDS.items():
            if num_dies == 1 and d2d:
                continue
            space = DesignSpace(
                nodes=NODES,
                die_mm2=(DIE_MM2,),
                num_dies=(num_dies,),
                power_w=(W_PER_DIE * num_dies,),
                memories=MEMORIES if full else MEMORIES[1::2],
                num_stacks=(STACKS_PER_DIE * num_dies,),
                joints=(joint,),
            )
            if d2d:
                space = replace(space, d2d=(d2d,), d2d_bytes_per_s=(rate,))
            yield from _of_space(space, kind, num_dies if d2d else 1)


def _of_space(space: DesignSpace, kind: str, ranks: int) -> Iterator[Product]:
    """Yield the products of a space, each job under the plan whose tokens are cheapest."""
    gpus = PACKAGES * ranks
    # A package has one port of InfiniBand, which its dies share where each is a device.
    port = (f"network.infiniband.bandwidth={400 / ranks}Gbit/s", f"network.infiniband.equipment.adapters={1 / ranks}")
    setting = DesignSetting(
        technology=load_technology(), prices=load_prices(), num_gpus=gpus, volume=VOLUME, overrides=port
    )
    best: dict[tuple[str, str], dict[str, tuple[float, float, float, int]]] = {}
    made: dict[tuple[str, str], float] = {}
    for name, tp, job in jobs_of(gpus):
        for designs in explore(space, setting, job):
            for row in np.flatnonzero(designs.built):
                c, at = designs.columns, (designs.form.node, designs.form.memory)
                if not c["fits"][row]:
                    continue
                usd = float(c["usd_per_mtok" if name == "training" else "usd_per_mtok_output"][row])
                found = float(c["step_time_s"][row]), usd, float(c["j_per_token"][row]), tp
                made[at] = float(c["package_usd"][row])
                if name not in best.setdefault(at, {}) or usd < best[at][name][1]:
                    best[at][name] = found
    for (node, memory), jobs in best.items():
        if len(jobs) == len(LOWERED):
            yield Product(node, memory, kind, space.num_dies[0], made[node, memory], jobs)


def make(full: bool) -> Table:
    """Build the family; the reduced grid has two generations of HBM."""
    found = list(products(full))
    fronts = {name: pareto([np.array([p.jobs[name][k] for p in found]) for k in (0, 1)]) for name in LOWERED}
    rows = [_row(one, {name: bool(front[k]) for name, front in fronts.items()}) for k, one in enumerate(found)]
    columns = [
        "node",
        "memory",
        "dies are",
        "dies",
        "package ($)",
        "train tp",
        "train step (s)",
        "train $/Mtoken",
        "train J/token",
        "serve tp",
        "TPOT (ms)",
        "serve $/Mtoken",
        "serve J/token",
        "train front",
        "serve front",
    ]
    return Table(
        columns,
        rows,
        [
            f"{PACKAGES} packages, 8 a server, a port of NDR InfiniBand each; dies {DIE_MM2:g} mm2, {W_PER_DIE:g} W.",
            f"Training: {SEQUENCES} sequences of {SEQ_LEN} tokens, full recomputation; serving: a decode step of "
            f"{REQUESTS} requests at {CONTEXT} tokens. Tensor parallel as told, the rest data parallel.",
            f"Owned at what it is made for; each product bears its design over {VOLUME:,.0f} packages.",
            *_statements(found),
        ],
    )


def _row(one: Product, front: Mapping[str, bool]) -> list[Cell]:
    (step_s, train_usd, train_j, train_tp), (tpot_s, serve_usd, serve_j, serve_tp) = (
        one.jobs[name] for name in ("training", "serving")
    )
    yes = {name: "yes" if is_on else "no" for name, is_on in front.items()}
    return [
        one.node,
        one.memory,
        one.kind,
        one.num_dies,
        one.package_usd,
        train_tp,
        step_s,
        train_usd,
        train_j,
        serve_tp,
        tpot_s * 1e3,
        serve_usd,
        serve_j,
        yes["training"],
        yes["serving"],
    ]


def _statements(found: Sequence[Product]) -> Iterator[str]:
    """Say what the abstracts of arXiv 2407.14645 and 2507.02456 state, and what comes out here beside it."""
    at = {(p.node, p.memory, p.kind, p.num_dies): p.jobs for p in found}
    first, last = MEMORIES[1], MEMORIES[3]

    def gain(name: str, worse: tuple[str, str], better: tuple[str, str]) -> float:
        key = ("one device", 4)
        return at[*worse, *key][name][0] / at[*better, *key][name][0]

    train, serve = ([gain(n, (a, last), (b, last)) for a, b in (("N7", "N5"), ("N5", "N3"))] for n in LOWERED)
    yield (
        "2407.14645: bottlenecks move as logic, memory and network scale. Here N7 to N5 to N3 shortens training "
        f"{train[0]:.2f} and {train[1]:.2f} times, a decode step {serve[0]:.2f} and {serve[1]:.2f} times."
    )
    hbm = [gain(name, ("N5", first), ("N5", last)) for name in LOWERED]
    yield (
        f"2407.14645: DRAM decides about inference latency. Here {first} to {last} at N5 shortens a decode step "
        f"{hbm[1]:.2f} times and training {hbm[0]:.2f} times."
    )
    for name in LOWERED:
        cheapest = min(found, key=lambda p: p.jobs[name][1])
        yield (
            f"2507.02456: performance and cost trade off together. Here {name} is cheapest with {cheapest.num_dies} "
            f"dies of {cheapest.node} and {cheapest.memory}, {cheapest.kind}: "
            f"${cheapest.jobs[name][1]:.3g} for 1M tokens."
        )


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw the price of tokens over the time of a step, of training and of serving, a colour a node."""
    for panel, time, usd, front in (
        (panels[0], "train step (s)", "train $/Mtoken", "train front"),
        (panels[1], "TPOT (ms)", "serve $/Mtoken", "serve front"),
    ):
        for node, part in table.groups("node").items():
            panel.scatter(part.numbers(time), part.numbers(usd), s=16, label=node)
        best = table.groups(front)["yes"]
        points = sorted(zip(best.numbers(time), best.numbers(usd), strict=True))
        panel.plot([x for x, _ in points], [y for _, y in points], color="grey", linewidth=0.8, zorder=0)
        panel.set(xlabel=time, ylabel=usd, yscale="log")
        panel.legend()


if __name__ == "__main__":
    run(__doc__, make, draw, panels=2)
