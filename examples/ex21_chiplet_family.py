"""One family of chiplets over process nodes, packages and HBM generations: Qwen3 32B trained and served.

A compute die of 400 mm2 is designed once a node; its products have one, two or four of it in a package, joined as one
device or over UCIe in an organic or an advanced package, with two stacks of HBM a die. Packages cost what they are made
for and their part of the design, which all products of a node share. Of each product the study asks what a token of
training and one of serving cost and how long they take, which products are on the front of both, and whether the best
product is another one by another price book.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Literal

import numpy as np
from drawing import plain_ticks
from matplotlib.axes import Axes
from picture import GREY
from study import Cell, Table, run, say

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
BOOKS = ("chiplet-actuary", "market", "catch")
# How dies are joined: a device together, or devices over an interface in a package of a joint.
KINDS: Mapping[str, tuple[str, Literal["fan_out_bridge", "interposer"], float]] = {
    "one device": ("", "fan_out_bridge", 0.0),
    "UCIe advanced": ("ucie-advanced", "fan_out_bridge", 1e12),
    "UCIe standard": ("ucie-standard", "interposer", 0.25e12),
}
TRAIN = slipstick.Family(sp=True, zero=1, recompute="full")
DECODE = slipstick.Family(workload=slipstick.Workload.DECODE)
TIMES = ("train step (s)", "TPOT (ms)")
STACKS = {"training": "megatron-core", "serving": "vllm"}
JOBS = {"training": TRAIN, "serving": DECODE}
SEQ_LEN, SEQUENCES, CONTEXT, REQUESTS = 8192, 512, 2048, 1024


@dataclass(frozen=True, slots=True)
class Product:
    """One product of the family under its cheapest plans by a book: seconds and dollars of 1M tokens, of both jobs."""

    book: str
    node: str
    memory: str
    kind: str
    num_dies: int
    package_usd: float
    jobs: Mapping[str, tuple[float, float, float, int]]


@cache
def lowered_of(name: str) -> slipstick.Lowered:
    """Return the model's pass of a job, ready to be priced."""
    family = JOBS[name]
    return slipstick.lower(slipstick.load(MODEL, family.workload, cache=CACHE), family)


def jobs_of(gpus: int, degrees: Sequence[int]) -> Iterator[tuple[str, int, DesignJob]]:
    """Yield both jobs under every degree of tensor parallelism."""
    for tp in degrees:
        plan = slipstick.make_plan(num_gpus=gpus, tp=tp, seq_len=SEQ_LEN, global_batch=SEQUENCES, family=TRAIN)
        yield "training", tp, DesignJob(lowered_of("training"), plan)
        plan = slipstick.make_plan(
            num_gpus=gpus, tp=tp, seq_len=CONTEXT, kv_len=CONTEXT, micro_batch=REQUESTS * tp // gpus, family=DECODE
        )
        yield "serving", tp, DesignJob(lowered_of("serving"), plan)


def products(book: str, full: bool) -> Iterator[Product]:
    """Yield every product that can be built and holds both jobs, priced by a book."""
    for num_dies in (1, 2, 4) if full else (1, 4):
        for kind, (d2d, joint, rate) in KINDS.items():
            if num_dies == 1 and d2d:
                continue
            space = DesignSpace(
                nodes=NODES, die_mm2=(DIE_MM2,), num_dies=(num_dies,), power_w=(W_PER_DIE * num_dies,),
                memories=MEMORIES if full else MEMORIES[1::2], num_stacks=(STACKS_PER_DIE * num_dies,), joints=(joint,),
            )  # fmt: skip
            if d2d:
                space = replace(space, d2d=(d2d,), d2d_bytes_per_s=(rate,))
            degrees = (4, 8, 16) if full else (8,)
            yield from _of_space(book, space, kind, num_dies if d2d else 1, degrees)


def _of_space(book: str, space: DesignSpace, kind: str, ranks: int, degrees: Sequence[int]) -> Iterator[Product]:
    """Yield the products of a space, each job under the plan whose tokens are cheapest."""
    gpus = PACKAGES * ranks
    # A package has one port of InfiniBand, which its dies share where each is a device.
    port = (f"network.infiniband.bandwidth={400 / ranks}Gbit/s", f"network.infiniband.equipment.adapters={1 / ranks}")
    setting = DesignSetting(
        technology=load_technology(), prices=load_prices(book), num_gpus=gpus, volume=VOLUME, overrides=port
    )
    best: dict[tuple[str, str], dict[str, tuple[float, float, float, int]]] = {}
    package_usd: dict[tuple[str, str], float] = {}
    for name, tp, job in jobs_of(gpus, degrees):
        for designs in explore(space, replace(setting, stack=STACKS[name]), job):
            for row in np.flatnonzero(designs.built):
                c, at = designs.columns, (designs.form.node, designs.form.memory)
                if not c["fits"][row]:
                    continue
                usd = float(c["usd_per_mtok" if name == "training" else "usd_per_mtok_output"][row])
                package_usd[at] = float(c["package_usd"][row])
                if name not in best.setdefault(at, {}) or usd < best[at][name][1]:
                    best[at][name] = float(c["step_time_s"][row]), usd, float(c["j_per_token"][row]), tp
    for (node, memory), jobs in best.items():
        if len(jobs) == len(JOBS):
            yield Product(book, node, memory, kind, space.num_dies[0], package_usd[node, memory], jobs)


def make(full: bool) -> Table:
    """Build the family; the reduced grid has two generations of HBM, two books and one degree of parallelism."""
    rows: list[list[Cell]] = []
    for book in BOOKS if full else BOOKS[:2]:
        family = list(products(book, full))
        fronts = [pareto([np.array([p.jobs[name][k] for p in family]) for k in (0, 1)]) for name in JOBS]
        rows += [_row(one, [bool(front[k]) for front in fronts]) for k, one in enumerate(family)]
    columns = ["book", "node", "memory", "dies are", "dies", "package ($)", "train tp", "train step (s)"]
    columns += ["train $/Mtoken", "train J/token", "serve tp", "TPOT (ms)", "serve $/Mtoken", "serve J/token"]
    return Table([*columns, "train front", "serve front"], rows, [
        f"{PACKAGES} packages, 8 a server, a port of NDR InfiniBand each; dies {DIE_MM2:g} mm2, {W_PER_DIE:g} W.",
        f"Training: {SEQUENCES} sequences of {SEQ_LEN} tokens, full recomputation; serving: a decode step of "
        f"{REQUESTS} requests at {CONTEXT} tokens. Tensor parallel as told, the rest data parallel.",
        f"Owned at what it is made for; each product bears its design over {VOLUME:,.0f} packages.",
        "Software: Megatron Core and vLLM. Fronts: no other product of the book is both faster and cheaper.",
    ])  # fmt: skip


def _row(one: Product, fronts: Sequence[bool]) -> list[Cell]:
    (step_s, train_usd, train_j, train_tp), (tpot_s, serve_usd, serve_j, serve_tp) = (one.jobs[name] for name in JOBS)
    return [
        one.book, one.node, one.memory, one.kind, one.num_dies, one.package_usd, train_tp, step_s, train_usd, train_j,
        serve_tp, tpot_s * 1e3, serve_usd, serve_j, *("yes" if on else "no" for on in fronts),
    ]  # fmt: skip


def conclude(table: Table) -> Iterator[str]:
    """Say what the abstracts of arXiv 2407.14645 and 2507.02456 ask: what logic, memory, packages and books decide."""
    usual = table.only({"book": BOOKS[0], "dies are": "one device", "dies": 4.0})

    def gains(name: str, steps: Sequence[tuple[str, str]]) -> list[float]:
        times = [usual.number(name, {"node": node, "memory": memory}) for node, memory in steps]
        return [before / after for before, after in pairwise(times)]

    newest = [(node, MEMORIES[-1]) for node in NODES]
    train, serve = (gains(name, newest) for name in TIMES)
    yield say(
        "Logic: from {a} to {b} to {c} training shortens {d:.2f} and {e:.2f} times, a decode step {f:.2f} and "
        "{g:.2f} times",
        min(train) > max(serve) >= 1, a=NODES[0], b=NODES[1], c=NODES[2], d=train[0], e=train[1], f=serve[0],
        g=serve[1],
    )  # fmt: skip
    (train_gain,), (serve_gain,) = (gains(name, [("N5", MEMORIES[1]), ("N5", MEMORIES[-1])]) for name in TIMES)
    yield say(
        "Memory: from {a} to {b} at {node} a decode step shortens {serve:.2f} times, training {train:.2f} times",
        serve_gain > train_gain, a=MEMORIES[1], b=MEMORIES[-1], node="N5", serve=serve_gain, train=train_gain,
    )  # fmt: skip
    for name, column in (("trains", "train $/Mtoken"), ("serves", "serve $/Mtoken")):
        best = {book: _cheapest(rows, column) for book, rows in table.groups("book").items()}
        words = {book: product for book, (product, _) in best.items()}
        flips, usd = len(set(words.values())) > 1, [usd for _, usd in best.values()]
        yield say(
            "The product that {name} cheapest "
            + ("flips between books: {books}" if flips else "is in all books {product}")
            + ", for {a:.3g} to {b:.3g} $ of a million tokens",
            flips == (len(set(words.values())) > 1) and max(usd) < 2 * min(usd), name=name,
            product=next(iter(words.values())), a=min(usd),
            b=max(usd), books="; ".join(f"{product} ({book})" for book, product in words.items()),
        )  # fmt: skip
    wide, narrow = (
        table.only({"book": BOOKS[0], "dies are": kind, "dies": 4.0}).numbers(TIMES[0])
        for kind in ("UCIe advanced", "UCIe standard")
    )
    loss = [slow / fast - 1 for fast, slow in zip(wide, narrow, strict=True)]
    yield say(
        "Joined by the standard UCIe of an organic package, {four:g} dies train {a:.0%} to {b:.0%} slower than by the "
        "advanced one",
        min(loss) > 0, four=4, a=min(loss), b=max(loss),
    )  # fmt: skip


def _cheapest(table: Table, column: str) -> tuple[str, float]:
    """Return the product whose tokens are cheapest in words, and what they cost."""
    usd = table.numbers(column)
    row = dict(zip(table.columns, table.rows[usd.index(min(usd))], strict=True))
    dies = f"{row['dies']:g} x {row['node']}"
    return f"{dies} with {row['memory']}, {row['dies are'] if row['dies'] != 1 else 'one die'}", min(usd)


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw the price of tokens over the time of a step, of training and of serving, a colour a node."""
    usual = table.only({"book": BOOKS[0]})
    for panel, time, usd, front in (
        (panels[0], "train step (s)", "train $/Mtoken", "train front"),
        (panels[1], "TPOT (ms)", "serve $/Mtoken", "serve front"),
    ):
        for (node, part), mark in zip(usual.groups("node").items(), "osD", strict=True):
            panel.plot(part.numbers(time), part.numbers(usd), mark, label=node)
        best = usual.only({front: "yes"})
        points = sorted(zip(best.numbers(time), best.numbers(usd), strict=True))
        panel.plot([x for x, _ in points], [y for _, y in points], color=GREY, linewidth=0.8, zorder=0, label="front")
        panel.set(xlabel=time, ylabel=f"{usd} ({BOOKS[0]})", xscale="log", yscale="log")
        plain_ticks(panel.xaxis)
        plain_ticks(panel.yaxis)
    panels[0].legend()


if __name__ == "__main__":
    run(__doc__, make, draw, panels=2, conclude=conclude)
