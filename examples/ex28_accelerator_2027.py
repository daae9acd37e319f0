"""An accelerator of 2027: two dies of N2 or four of N3 with eight stacks of HBM, 72 in a domain, serving a 1T MoE.

Both packages have the same silicon, power and memory, the newest HBM that the technology has a record of. Two dies on
an interposer are one device, which is taken to cost nothing; four are devices that UCIe joins. The 72 packages of a
domain are joined by copper lanes or by optics in the package (`data/optics_2027.yaml`). The model has Kimi K2's
shape: 384 experts of which 8 and a shared one work, 1.03T parameters (`data/moe_1t.json`); the reduced grid has
DeepSeek-V3. Each design decodes at several batches, in fp8, for a point of time, power and money each; prices are
those of two books.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd
from pathlib import Path

import numpy as np
from drawing import plain_ticks
from matplotlib.axes import Axes
from picture import BLUE, GREY, ORANGE
from study import Cell, Table, run, say

import slipstick
from slipstick.backends.prices.book import load_prices
from slipstick.backends.technology.data import load_technology
from slipstick.explore.designs.designs import Designs, explore
from slipstick.explore.designs.setting import DesignJob, DesignSetting
from slipstick.explore.designs.space import DesignSpace
from slipstick.explore.pareto import pareto

CACHE = slipstick.GraphCache.default()
DATA = Path(__file__).parent / "data"
# The model by name or file, and its experts.
LARGE, SMALL = (str(DATA / "moe_1t.json"), 384), ("deepseek-v3", 256)
PACKAGES, STACKS, CONTEXT = 72, 8, 8192
BOOKS, LINKS = ("market", "chiplet-actuary"), ("nvlink5", "cpo")
BATCHES, POWERS_W = (8, 32, 128), (1200.0, 1600.0, 2000.0)
TECHNOLOGY = load_technology(DATA / "optics_2027.yaml")
MEMORY = next(kind for kind in ("hbm4e", "hbm4") if kind in TECHNOLOGY.section.memories)
FAMILY = slipstick.Family(workload=slipstick.Workload.DECODE, precision="fp8-block", ep=True)
_ALIKE = DesignSpace(
    nodes=("N2",), die_mm2=(800.0,), num_dies=(2,), power_w=POWERS_W, memories=(MEMORY,), num_stacks=(STACKS,),
    links=LINKS, joints=("interposer",),
)  # fmt: skip
# Space and devices of a package.
KINDS = {
    "2 x N2": (_ALIKE, 1),
    "4 x N3": (replace(
        _ALIKE, nodes=("N3",), die_mm2=(400.0,), num_dies=(4,), d2d=("ucie-advanced",), d2d_bytes_per_s=(2e12,),
        joins=("mesh",),
    ), 4),
}  # fmt: skip
NUMBERS = ("silicon_mm2", "package_w", "package_usd", "package_yield", "tpot_s", "usd_per_mtok_output", "j_per_token")
RATES = ("fp16_flop_per_s", "hbm_bytes_per_s", "link_bytes_per_s")


def rows_of(
    book: str, kind: str, lowered: slipstick.Lowered, experts: int, batches: Sequence[int]
) -> Iterator[list[Cell]]:
    """Yield a row a link, power and batch a package: what a package is, and what a token takes."""
    space, devices = KINDS[kind]
    setting = DesignSetting(
        technology=TECHNOLOGY, prices=load_prices(book), num_packages=PACKAGES, like="gb200-nvl72",
        num_gpus=PACKAGES * devices, stack="vllm", overrides=("rack.power=400kW",),
    )  # fmt: skip
    for batch in batches:
        gpus = PACKAGES * devices
        plan = slipstick.make_plan(
            num_gpus=gpus, ep=gcd(gpus, experts), seq_len=CONTEXT, kv_len=CONTEXT, micro_batch=batch // devices,
            family=FAMILY,
        )  # fmt: skip
        for designs in explore(space, setting, DesignJob(lowered, plan)):
            yield from _rows(book, kind, batch, devices, designs)


def _rows(book: str, kind: str, batch: int, devices: int, designs: Designs) -> Iterator[list[Cell]]:
    """Yield the designs that can be built and hold the plan."""
    columns = designs.columns
    for row in np.flatnonzero(designs.built):
        if columns["fits"][row]:
            silicon, watts, usd, good, tpot_s, usd_per_mtok, joules = (float(columns[name][row]) for name in NUMBERS)
            peak, rate, link = (devices * float(columns[name][row]) for name in RATES)
            yield [
                book, kind, designs.form.link, batch, watts, silicon, watts / silicon, peak / 1e15, rate / 1e12,
                link / 1e12, good, usd, 1e3 * tpot_s, batch / tpot_s, usd_per_mtok, joules,
            ]  # fmt: skip


def make(full: bool) -> Table:
    """Design and run every package; the reduced grid has a smaller model and two batches."""
    model, experts = LARGE if full else SMALL
    lowered = slipstick.lower(slipstick.load(model, slipstick.Workload.DECODE, cache=CACHE), FAMILY)
    rows: list[list[Cell]] = []
    for book in BOOKS:
        own = [row for kind in KINDS for row in rows_of(book, kind, lowered, experts, BATCHES if full else BATCHES[:2])]
        front = pareto([np.array([float(row[place]) for row in own]) for place in (-4, -2)])
        rows += [[*row, "yes" if on else "no"] for row, on in zip(own, front, strict=True)]
    columns = ["book", "dies", "lanes", "batch", "package (W)", "silicon (mm2)", "W/mm2", "fp16 (PFLOP/s)"]
    columns += ["HBM (TB/s)", "lanes (TB/s)", "package yield", "package ($)", "TPOT (ms)", "tokens/s", "$/Mtoken"]
    columns += ["J/token", "Pareto"]
    return Table(columns, rows, [
        f"A decode step of {Path(model).stem} at {CONTEXT} tokens in fp8, batch and tokens/s a package, {PACKAGES} "
        f"packages in one domain; {STACKS} stacks of {MEMORY} a package; experts over as many ranks as divide both.",
        "vLLM as it is. All is owned at what it is made for, racks carry 400 kW; yields are of packages begun with "
        "good dies.",
        "Energies of links are those of the price book, whatever the lanes; optics change the power left for the "
        "units.",
        "Pareto: no other row of the book has both a shorter TPOT and cheaper tokens.",
    ])  # fmt: skip


def conclude(table: Table) -> Iterator[str]:
    """Say which package is faster and cheaper, what power and optics bring, and what the front is made of."""
    slower, dearer, package = (
        [other / one - 1 for other, one in _pairs(table, "dies", tuple(KINDS), name)]
        for name in ("TPOT (ms)", "$/Mtoken", "package ($)")
    )
    flips = min(dearer) < 0 < max(dearer)
    one, other = KINDS
    yield say(
        "Of the same silicon, power and memory, {other} in place of {one} changes the time of a token by {slow:+.0%} "
        "to {slowest:+.0%} and its price by {least:+.0%} to {most:+.0%}: "
        + ("which is cheaper flips" if flips else "the ranking holds in both books"),
        (min(slower) > 0 or max(slower) < 0) and flips == (min(dearer) < 0 < max(dearer)), one=one, other=other,
        slow=min(slower), slowest=max(slower), least=min(dearer), most=max(dearer),
    )  # fmt: skip
    yields = {kind: rows.numbers("package yield") for kind, rows in table.groups("dies").items()}
    good, best = (pick(map(pick, yields.values())) for pick in (min, max))
    cheaper = min(package) < 0 < max(package)
    yield say(
        "Its package costs {least:+.0%} to {most:+.0%} to make"
        + (", which flips between books" if cheaper else " in both books")
        + "; of packages begun with good dies {good:.0%} to {best:.0%} work",
        cheaper == (min(package) < 0 < max(package)) and 0 < good <= best <= 1, least=min(package), most=max(package),
        good=good, best=best,
    )  # fmt: skip
    low, high = min(table.numbers("package (W)")), max(table.numbers("package (W)"))
    faster, usd, energy = (
        [after / before - 1 for after, before in _pairs(table, "package (W)", (low, high), name)]
        for name in ("TPOT (ms)", "$/Mtoken", "J/token")
    )
    yield say(
        "From {low:g} to {high:g} W a token takes {a:+.0%} to {b:+.0%} of the time and {c:+.0%} to {d:+.0%} of the "
        "energy, and costs {e:+.0%} to {f:+.0%}",
        max(faster) < 0 < min(energy), low=low, high=high, a=min(faster), b=max(faster), c=min(energy), d=max(energy),
        e=min(usd), f=max(usd),
    )  # fmt: skip
    rate, time = (
        [after / before - 1 for after, before in _pairs(table, "lanes", LINKS, name)]
        for name in ("lanes (TB/s)", "TPOT (ms)")
    )
    yield say(
        "Optics in the package bring {a:+.0%} to {b:+.0%} of bandwidth on the edge and {c:+.1%} to {d:+.1%} of a "
        "token's time, for which exchanges of experts do not wait",
        min(rate) > 0 and max(map(abs, time)) < min(rate), a=min(rate), b=max(rate), c=min(time), d=max(time),
    )  # fmt: skip
    fronts = {book: rows.only({"Pareto": "yes"}).groups("dies") for book, rows in table.groups("book").items()}
    made = {book: " and ".join(kinds) for book, kinds in fronts.items()}
    agree = len(set(made.values())) == 1
    yield say(
        "The front of time and money is " + ("{kinds} by both books" if agree else "another by book: {each}")
        + ", {least:.2f} to {most:.2f} $ of a million tokens at {fast:.0f} to {slow:.0f} ms",
        agree == (len(set(made.values())) == 1) and _is_monotone(table), kinds=next(iter(made.values())),
        each="; ".join(f"{kinds} ({book})" for book, kinds in made.items()), **_ends(table),
    )  # fmt: skip


def _pairs(table: Table, axis: str, ends: Sequence[Cell], name: str) -> list[tuple[float, float]]:
    """Return a column at the last end of an axis and at the first one, for all other choices."""
    axes = [other for other in ("book", "dies", "lanes", "batch", "package (W)") if other != axis]
    last, first = (
        {tuple(row[list(table.columns).index(other)] for other in axes): row[list(table.columns).index(name)]
         for row in table.only({axis: end}).rows}
        for end in (ends[-1], ends[0])
    )  # fmt: skip
    return [(float(last[key]), float(first[key])) for key in first if key in last]


def _front(table: Table, book: str) -> list[tuple[float, float]]:
    rows = table.only({"book": book, "Pareto": "yes"})
    return sorted(zip(rows.numbers("TPOT (ms)"), rows.numbers("$/Mtoken"), strict=True))


def _is_monotone(table: Table) -> bool:
    """Say whether tokens get cheaper along the front of every book."""
    fronts = [[usd for _, usd in _front(table, book)] for book in table.groups("book")]
    return all(front == sorted(front, reverse=True) for front in fronts)


def _ends(table: Table) -> dict[str, float]:
    front = [point for book in table.groups("book") for point in _front(table, book)]
    times, usd = zip(*front, strict=True)
    return {"fast": min(times), "slow": max(times), "least": min(usd), "most": max(usd)}


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw the price and the joules of tokens over their time, a colour a package, by the first book."""
    usual = table.only({"book": table.column("book")[0]})
    for panel, name in zip(panels, ("$/Mtoken", "J/token"), strict=True):
        for (kind, rows), colour in zip(usual.groups("dies").items(), (BLUE, ORANGE), strict=True):
            for (lanes, own), mark in zip(rows.groups("lanes").items(), "os", strict=True):
                face = colour if mark == "o" else "none"
                panel.plot(
                    own.numbers("TPOT (ms)"), own.numbers(name), mark, color=colour, markerfacecolor=face,
                    label=f"{kind}, {lanes}",
                )  # fmt: skip
        panel.set(xlabel="TPOT (ms)", ylabel=f"{name} ({usual.column('book')[0]})", yscale="log")
        plain_ticks(panel.yaxis)
    front = _front(usual, str(usual.column("book")[0]))
    panels[0].plot([x for x, _ in front], [y for _, y in front], color=GREY, linewidth=0.8, zorder=0, label="front")
    panels[0].legend(loc="upper right")
    for batch, rows in usual.groups("batch").items():
        place = rows.numbers("TPOT (ms)").index(min(rows.numbers("TPOT (ms)")))
        panels[1].annotate(
            f"batch {float(batch):g}", (rows.numbers("TPOT (ms)")[place], rows.numbers("J/token")[place]), (0, 6),
            textcoords="offset points", va="bottom", ha="left",
        )  # fmt: skip


if __name__ == "__main__":
    run(__doc__, make, draw, panels=2, conclude=conclude)
