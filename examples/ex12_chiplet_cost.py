"""What chiplets save of 800 mm2: one die, two and four, on three nodes, in five packages, by three price books.

Chiplets give a tenth of themselves to the interfaces that join them. A die either has to be good as a whole or may have
bad units, 12 of 144 as H100's, which takes most of the advantage from small dies. Books are Chiplet Actuary (DAC 2022),
CATCH (arXiv 2503.15753) and what buyers are said to pay; a conclusion that one of them does not share is said to flip.
Studies of this kind for LLM systems have published no numbers that we could read: none are claimed to be reproduced.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import TypeAlias

from drawing import spans
from matplotlib.axes import Axes
from study import Cell, Table, run, say

from slipstick.backends.machine.package import Assembly, Die, Harvest, Joint, Package
from slipstick.backends.prices.book import load_prices
from slipstick.backends.prices.section import Prices
from slipstick.cost.silicon.dies.yields import die_yield
from slipstick.cost.silicon.packages.package import package_bill

SILICON_MM2, VOLUME = 800.0, 500_000.0
BOOKS, NODES, SPLITS = ("chiplet-actuary", "catch", "market"), ("N7", "N5", "N3"), (1, 2, 4)
# Price book, node, factor of defects, joint, whether units may be bad.
Case: TypeAlias = tuple[str, str, float, Joint, bool]
JOINTS: tuple[Joint, ...] = ("organic", "fan_out", "interposer", "embedded_bridge", "fan_out_bridge")
# Part of a chiplet that its interfaces take, a figure of Chiplet Actuary's paper.
INTERFACE = 0.1
# Units of all dies, how many must be good and their share of the area: H100's.
UNITS, NEEDED, UNIT_SHARE = 144, 132, 0.58
# Defects over those of the price book.
SWEEP = ("defects (% of usual)", "saved")
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
PARTS = ("raw chips", "chip defects", "raw package", "package defects", "wasted dies", "design")


def package_of(node: str, joint: Joint, num_dies: int, harvested: bool) -> Package:
    """Return 800 mm2 that do something, in so many dies, with interfaces where there are several."""
    useful = SILICON_MM2 / num_dies
    area = useful / (1.0 - INTERFACE) if num_dies > 1 else useful
    harvest = Harvest(UNITS // num_dies, NEEDED // num_dies, UNIT_SHARE) if harvested else None
    die = Die("die", node, area, float(num_dies), harvest=harvest)
    return Package(Assembly("package", joint, (die,)), volume=VOLUME)


def rows_of(book: str, node: str, factor: float, joint: Joint, harvested: bool) -> Iterator[list[Cell]]:
    """Yield the cost of a good package by part, a row a split; savings are over one die."""
    prices = book_of(book, node, factor)
    per_cm2, first = prices.section.node(node).defect_density.si * 100.0, None
    for num_dies in SPLITS:
        package = package_of(node, joint, num_dies, harvested)
        (die,) = package.assembly.dies
        bill = package_bill(package, prices)
        parts = [float(bill.line(part).usd) for part in PARTS]
        whole = float(bill.usd) - parts[-1]
        first = first or (whole, float(bill.usd))
        good = float(die_yield(die.area_mm2, node, prices.section))
        yield [
            book, node, round(100 * factor), per_cm2, joint, f"{UNITS - NEEDED} of {UNITS}" if harvested else "none",
            num_dies, float(die.area_mm2), good,
            *parts, whole, float(bill.usd), 1 - whole / first[0], 1 - float(bill.usd) / first[1],
        ]  # fmt: skip


def book_of(book: str, node: str, factor: float) -> Prices:
    """Return a price book with another density of defects on a node."""
    if factor == 1.0:
        return load_prices(book)
    usual = load_prices(book).section.node(node).defect_density.si
    return load_prices(book, (f"nodes.{node}.defect_density={usual * factor * 100.0:.9g} 1/cm2",))


def make(full: bool) -> Table:
    """Price every package; the density of defects moves for organic packages of N5 alone."""
    nodes = NODES if full else NODES[1:]
    joints: tuple[Joint, ...] = JOINTS if full else JOINTS[::4]
    harvested = (False, True)
    usual: list[Case] = [
        (book, node, 1.0, joint, bad) for book, node, joint, bad in product(BOOKS, nodes, joints, harvested)
    ]
    swept: list[Case] = [
        (book, "N5", factor, JOINTS[0], bad) for book, factor, bad in product(BOOKS, FACTORS, harvested)
    ]
    rows = [row for case in dict.fromkeys([*usual, *swept]) for row in rows_of(*case)]
    columns = ["book", "node", "defects (% of usual)", "defects (1/cm2)", "package", "may be bad", "dies", "die (mm2)"]
    money = [*(f"{part} ($)" for part in PARTS), "made for ($)", "with design ($)"]
    return Table([*columns, "yield of a whole die", *money, "saved", "saved with design"], rows, [
        f"{SILICON_MM2:g} mm2 of silicon that do something and, in chiplets, {INTERFACE:.0%} of each for interfaces.",
        f"Design of dies, interfaces, package and masks over {VOLUME:,.0f} packages; `made for` is without it.",
        "No memory: its price is the same for all splits and makes each saving a smaller part of the package.",
    ])  # fmt: skip


def conclude(table: Table) -> Iterator[str]:
    """Say what two dies and four save, whether a bad unit or another book changes that, and what design adds."""
    usual = table.only({"defects (% of usual)": 100.0})
    strict, lenient = (usual.only({"may be bad": bad}) for bad in usual.groups("may be bad"))
    two, four = (strict.only({"dies": n}).numbers("saved") for n in (2.0, 4.0))
    yield say(
        "Dies that must be good as a whole: {two:g} save {a:.0%} to {b:.0%} of a package, {four:g} save {c:.0%} to "
        "{d:.0%}, whatever book, node and package",
        min(two) > 0 and min(four) > min(two) and max(four) > max(two), two=2, four=4, a=min(two), b=max(two),
        c=min(four), d=max(four),
    )  # fmt: skip
    harvested = lenient.only({"dies": 2.0}).numbers("saved")
    losses = sum(saved <= 0 for saved in harvested)
    yield say(
        "Where {bad} units may be bad, {two:g} dies save {a:.0%} to {b:.0%}: the saving flips to a loss in {losses} "
        "of {cases} cases",
        min(harvested) < 0 < max(harvested) and max(harvested) < max(two), bad=lenient.column("may be bad")[0], two=2,
        a=min(harvested), b=max(harvested), losses=losses, cases=len(harvested),
    )  # fmt: skip
    ranges = {book: rows.only({"dies": 4.0}).numbers("saved") for book, rows in lenient.groups("book").items()}
    agree = all(min(saved) > 0 for saved in ranges.values())
    yield say(
        "{four:g} dies of bad units " + ("save in all books: {books}" if agree else "flip between books: {books}"),
        agree == all(min(saved) > 0 for saved in ranges.values()), four=4,
        books=", ".join(f"{min(saved):.0%} to {max(saved):.0%} ({book})" for book, saved in ranges.items()),
    )  # fmt: skip
    swept = table.only({"node": "N5", "package": JOINTS[0], "may be bad": lenient.column("may be bad")[0], "dies": 4.0})
    curves = [sorted(zip(*map(rows.numbers, SWEEP), strict=True)) for rows in swept.groups("book").values()]
    yield say(
        "The saving of {four:g} dies grows with defects in every book: on {node} from {a:.0%} to {b:.0%} at {few:g} % "
        "of the usual density to {c:.0%} to {d:.0%} at {many:g} %",
        all(low[1] < high[1] for curve in curves for low, high in pairwise(curve)), four=4, node="N5",
        few=curves[0][0][0], many=curves[0][-1][0], a=min(curve[0][1] for curve in curves),
        b=max(curve[0][1] for curve in curves), c=min(curve[-1][1] for curve in curves),
        d=max(curve[-1][1] for curve in curves),
    )  # fmt: skip
    design = lenient.only({"dies": 4.0}).numbers("saved with design")
    yield say(
        "With their design {four:g} dies save {a:.0%} to {b:.0%} in all cases, for less area is designed",
        min(design) > 0, four=4, a=min(design), b=max(design),
    )  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw savings of two dies and four by book and node over packages, and over the density of defects."""
    usual = table.only({"defects (% of usual)": 100.0})
    names = [f"{book} {node}" for book, rows in usual.groups("book").items() for node in rows.groups("node")]
    for panel, (bad, rows) in zip(panels[:2], usual.groups("may be bad").items(), strict=True):
        series = {}
        for dies in (2, 4):
            saved = [
                [100 * s for s in node.only({"dies": float(dies)}).numbers("saved")]
                for book in rows.groups("book").values()
                for node in book.groups("node").values()
            ]
            series[f"{dies} dies"] = [(min(s), max(s)) for s in saved]
        spans(panel, names, series)
        panel.set_xlabel(f"saved over one die (%), bad units: {bad}")
    panels[1].set_xlim(min(panel.get_xlim()[0] for panel in panels), panels[0].get_xlim()[1])
    panels[0].set_xlim(panels[1].get_xlim())
    panels[0].legend(ncols=2, loc="lower center", bbox_to_anchor=(0.4, 1.0))


if __name__ == "__main__":
    run(__doc__, make, draw, panels=2, conclude=conclude)
