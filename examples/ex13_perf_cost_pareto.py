"""Time against money of packages made of chiplets: Llama 3.1 70B on 64 packages of 800 mm2, in one die, two and four.

The technology engine builds every package from the same silicon, power and memory. Dies are one device together, which
is taken to cost nothing and so is the best that a joint can be, or each is a device of its own and they talk over UCIe,
whose bandwidth is a level of the network, and whose modules take area, edge and power of the dies. Each design runs the
tensor-parallel plan that is cheapest on it, and is priced by several books; a ranking that one of them does not share
flips. The studies that ask this have published no numbers that we could read; none are claimed to be reproduced.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from drawing import plain_ticks
from matplotlib.axes import Axes
from picture import BLACK, BLUE, GREEN, GREY, ORANGE
from study import Cell, Table, run, say

import slipstick
from slipstick.backends.prices.book import load_prices
from slipstick.backends.technology.data import load_technology
from slipstick.explore.designs.designs import Designs, explore
from slipstick.explore.designs.setting import DesignJob, DesignSetting
from slipstick.explore.designs.space import DesignSpace
from slipstick.explore.pareto import pareto

CACHE = slipstick.GraphCache.default()
MODEL, SEQ_LEN, SEQUENCES, TOKENS = "llama-3.1-70b", 8192, 512, 15e12
PACKAGES, SILICON_MM2, STACKS = 64, 800.0, 4
FAMILY = slipstick.Family(sp=True, zero=1, recompute="full")
# One direction, to each neighbour.
BANDWIDTHS = (0.25e12, 0.5e12, 1e12, 2e12, 4e12)
POWERS_W = (700.0, 1000.0, 1300.0)
NODES = ("N7", "N5", "N3")
TENSOR_PARALLEL = (4, 8, 16, 32)
BOOKS = ("chiplet-actuary", "market", "catch")
MONEY = ("package ($)", "$/Mtoken")
COLUMNS = ("package_usd", "fp16_flop_per_s", "step_time_s", "usd_per_mtok", "usd_run", "j_per_token")


@dataclass(frozen=True, slots=True)
class Run:
    """One design under the plan that is cheapest on it, by one book."""

    book: str
    kind: str
    node: str
    num_dies: int
    power_w: float
    d2d_bytes_per_s: float
    tp: int
    numbers: tuple[float, ...]

    @property
    def usd_per_mtok(self) -> float:
        """Dollars of a million tokens."""
        return self.numbers[COLUMNS.index("usd_per_mtok")]


def spaces(full: bool) -> Iterator[tuple[str, DesignSpace]]:
    """Yield the spaces of each kind of package."""
    base = DesignSpace(
        nodes=NODES if full else ("N5",), die_mm2=(SILICON_MM2,), power_w=POWERS_W,
        memories=("hbm3e",), num_stacks=(STACKS,), joints=("fan_out_bridge",),
    )  # fmt: skip
    yield "one die", base
    for dies in (2, 4):
        split = replace(base, die_mm2=(SILICON_MM2 / dies,), num_dies=(dies,))
        yield "one device", split
        joined = replace(split, d2d=("ucie-advanced",), d2d_bytes_per_s=BANDWIDTHS if full else BANDWIDTHS[::2])
        yield "devices", joined


def runs_of(book: str, kind: str, space: DesignSpace, lowered: slipstick.Lowered) -> Iterator[Run]:
    """Yield every design of a space that can be built, under its cheapest plan by a book."""
    (dies,) = space.num_dies
    ranks = dies if any(space.d2d) else 1
    gpus = PACKAGES * ranks
    # A package has one port of InfiniBand, which its dies share where each is a device.
    port = (f"network.infiniband.bandwidth={400 / ranks}Gbit/s", f"network.infiniband.equipment.adapters={1 / ranks}")
    setting = DesignSetting(technology=load_technology(), prices=load_prices(book), num_gpus=gpus, overrides=port)
    best: dict[tuple[str, float, float], Run] = {}
    for tp in TENSOR_PARALLEL:
        plan = slipstick.make_plan(num_gpus=gpus, tp=tp, seq_len=SEQ_LEN, global_batch=SEQUENCES, family=FAMILY)
        job = DesignJob(lowered, plan, TOKENS / (SEQUENCES * SEQ_LEN))
        for designs in explore(space, setting, job):
            for found in _runs(book, kind, designs, tp):
                key = (found.node, found.power_w, found.d2d_bytes_per_s)
                if key not in best or found.usd_per_mtok < best[key].usd_per_mtok:
                    best[key] = found
    yield from best.values()


def _runs(book: str, kind: str, designs: Designs, tp: int) -> Iterator[Run]:
    """Yield the designs that can be built and hold the plan."""
    columns = designs.columns
    for row in np.flatnonzero(designs.built):
        if columns["fits"][row]:
            yield Run(book, kind, designs.form.node, designs.form.num_dies, float(columns["package_w"][row]),
                      float(columns["d2d_bytes_per_s"][row]), tp, tuple(float(columns[n][row]) for n in COLUMNS),
                      )  # fmt: skip


def make(full: bool) -> Table:
    """Build and run every design; the reduced grid has one node and three bandwidths."""
    lowered = slipstick.lower(slipstick.load(MODEL, cache=CACHE), FAMILY)
    rows = []
    for book in BOOKS if full else BOOKS[:2]:
        runs = [found for kind, space in spaces(full) for found in runs_of(book, kind, space, lowered)]
        numbers = np.array([found.numbers for found in runs])
        best = pareto([numbers[:, COLUMNS.index("step_time_s")], numbers[:, COLUMNS.index("usd_per_mtok")]])
        rows += [_row(found, bool(front)) for found, front in zip(runs, best, strict=True)]
    columns = ["book", "dies are", "node", "dies", "package (W)", "D2D (TB/s)", "tp", "package ($)"]
    return Table([*columns, "fp16 a device (TFLOP/s)", "step (s)", "$/Mtoken", "run (M$)", "J/token", "Pareto"], rows, [
        f"bf16, {SEQUENCES} sequences of {SEQ_LEN} tokens, ZeRO 1, full recomputation, the rest of tp is dp.",
        f"Each package has {SILICON_MM2:g} mm2, {STACKS} stacks of HBM3E, a port of NDR InfiniBand; 8 share a server.",
        "Dies that are one device are taken to be so for nothing: no interface takes of their area, power and time.",
        "All is owned at what it is made for, without margin and design of packages; a run is 15T tokens, no pauses.",
        "Pareto: no other row of the book has both a shorter step and cheaper tokens.",
    ])  # fmt: skip


def _row(found: Run, front: bool) -> list[Cell]:
    package_usd, flop_per_s, step_s, usd_per_mtok, usd_run, joules = found.numbers
    return [
        found.book, found.kind, found.node, found.num_dies, found.power_w, found.d2d_bytes_per_s / 1e12, found.tp,
        package_usd, flop_per_s / 1e12, step_s, usd_per_mtok, usd_run / 1e6, joules, "yes" if front else "no",
    ]  # fmt: skip


def conclude(table: Table) -> Iterator[str]:
    """Say what dies that are devices lose, whether they are cheaper, and what their interface has to carry."""
    alone, joined, devices = (table.only({"dies are": kind}) for kind in ("one die", "one device", "devices"))
    lost, dearer = ({n: _worse(devices, alone, n, name) for n in (2.0, 4.0)} for name in ("step (s)", "$/Mtoken"))
    yield say(
        "Dies that are devices take {a:.0%} to {b:.0%} more time than one die in {two:g}, and {c:.0%} to {d:.0%} in "
        "{four:g}, with the best of their bandwidths",
        min(lost[2.0]) > 0 and max(lost[4.0]) > max(lost[2.0]), two=2, four=4, a=min(lost[2.0]), b=max(lost[2.0]),
        c=min(lost[4.0]), d=max(lost[4.0]),
    )  # fmt: skip
    every = [*dearer[2.0], *dearer[4.0]]
    flips = min(every) < 0 < max(every)
    yield say(
        "Their tokens cost {a:.0%} to {b:.0%} more than those of one die: "
        + ("who is cheaper flips with node, power or book" if flips else "the ranking holds in all books"),
        flips == (min(every) < 0 < max(every)), a=min(every), b=max(every),
    )  # fmt: skip
    packages, tokens = ([part for n in (2.0, 4.0) for part in _worse(joined, alone, n, name)] for name in MONEY)
    yield say(
        "Joined for nothing as one device, {two:g} and {four:g} dies change the price of a package by {a:+.0%} to "
        "{b:+.0%} and that of tokens by {c:+.1%} to {d:+.1%}: silicon is a small part of what is owned",
        max(map(abs, tokens)) < max(map(abs, packages)), two=2, four=4, a=min(packages), b=max(packages), c=min(tokens),
        d=max(tokens),
    )  # fmt: skip
    narrow, wide = ({key: rows.numbers("step (s)")[at] for key, rows in _designs(devices).items()} for at in (0, -1))
    best = {key: min(rows.numbers("step (s)")) for key, rows in _designs(devices).items()}
    loss, rest = ([step_s[key] / best[key] - 1 for key in best] for step_s in (narrow, wide))
    rates = devices.numbers("D2D (TB/s)")
    yield say(
        "An interface of {narrow:g} TB/s costs {a:.0%} to {b:.0%} of the best step; one of {wide:g} is within "
        "{c:.1%} of it, for what it carries it takes from the units",
        max(loss) > max(rest), narrow=min(rates), wide=max(rates), a=min(loss), b=max(loss), c=max(rest),
    )  # fmt: skip
    fronts = {book: sorted(set(map(str, rows.column("dies are")))) for book, rows in _fronts(table).items()}
    shared = set.intersection(*map(set, fronts.values()))
    flips = len({tuple(kinds) for kinds in fronts.values()}) > 1
    yield say(
        "The front of time and money has "
        + ("other packages by book: {fronts}" if flips else "only {shared} in all books"),
        bool(shared) and flips == (len({tuple(kinds) for kinds in fronts.values()}) > 1),
        shared=" and ".join(sorted(shared)), fronts="; ".join(f"{', '.join(k)} ({book})" for book, k in fronts.items()),
    )  # fmt: skip


def _designs(table: Table) -> dict[tuple[Cell, ...], Table]:
    """Split rows by what they are but for the bandwidth between dies, in the order of that."""
    names = ("book", "dies are", "node", "dies", "package (W)")
    keys = dict.fromkeys(zip(*(table.column(name) for name in names), strict=True))
    return {key: table.only(dict(zip(names, key, strict=True))) for key in keys}


def _worse(table: Table, alone: Table, num_dies: float, name: str) -> list[float]:
    """Return by what part the best of packages of so many dies are above one die of the same book, node and power."""
    return [
        min(rows.numbers(name)) / alone.number(name, {"book": book, "node": node, "package (W)": power}) - 1
        for (book, _, node, _, power), rows in _designs(table.only({"dies": num_dies})).items()
    ]


def _fronts(table: Table) -> dict[str, Table]:
    return table.only({"Pareto": "yes"}).groups("book")


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw tokens' price over the step by the first book, and over the bandwidth between dies by all of them."""
    colours = {"one die": GREY, "one device": GREEN, "devices": BLUE}
    usual = next(iter(table.groups("book").values()))
    for (_, kind, _, dies, _), rows in _designs(usual).items():
        mark = {1.0: "o", 2.0: "s", 4.0: "D"}[float(dies)]
        panels[0].plot(
            rows.numbers("step (s)"), rows.numbers("$/Mtoken"), mark, color=colours[str(kind)], markersize=2.5
        )
    for kind, colour in colours.items():
        panels[0].plot([], [], "o", color=colour, label=kind)
    for dies, mark in (("1 die", "o"), ("2 dies", "s"), ("4 dies", "D")):
        panels[0].plot([], [], mark, color="none", markeredgecolor=BLACK, label=dies)
    front = sorted(zip(*(usual.only({"Pareto": "yes"}).numbers(n) for n in ("step (s)", "$/Mtoken")), strict=True))
    panels[0].plot([x for x, _ in front], [y for _, y in front], color=ORANGE, zorder=0, label="front")
    for node, rows in usual.only({"dies are": "one die"}).groups("node").items():
        panels[0].annotate(
            node, (min(rows.numbers("step (s)")), min(rows.numbers("$/Mtoken"))), (-3, 0), ha="right", va="center",
            textcoords="offset points",
        )  # fmt: skip
    panels[0].set_xlim(left=0.8 * min(usual.numbers("step (s)")))
    panels[0].set(xlabel="step (s)", ylabel=f"$ of 1M tokens ({usual.column('book')[0]})")
    panels[0].legend(loc="upper left", ncols=2)
    power = sorted(set(table.numbers("package (W)")))[1]
    shown = table.only({"dies are": "devices", "node": "N5", "package (W)": power})
    for style, (book, rows) in zip(("-", "--", ":"), shown.groups("book").items(), strict=False):
        for dies, curve in zip((2.0, 4.0), (rows.only({"dies": n}) for n in (2.0, 4.0)), strict=True):
            x, y = curve.numbers("D2D (TB/s)"), curve.numbers("$/Mtoken")
            panels[1].plot(
                x, y, style, marker="o", color=BLUE if dies == 2 else ORANGE, label=f"{dies:g} devices, {book}"
            )
    panels[1].set(xscale="log", xlabel=f"D2D to each neighbour (TB/s), N5, {power:g} W", ylabel="$ of 1M tokens")
    panels[1].set_ylim(top=1.12 * panels[1].get_ylim()[1])
    plain_ticks(panels[1].xaxis)
    panels[1].legend(ncols=2, loc="upper center", columnspacing=0.8)


if __name__ == "__main__":
    run(__doc__, make, draw, panels=2, conclude=conclude)
