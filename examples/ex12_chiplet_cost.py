"""What chiplets save: 800 mm2 of silicon in one die, two and four, on three nodes and five kinds of packages.

Dies, packages and yields after Chiplet Actuary (DAC 2022), the usual profile of the price book; chiplets as they are,
and with a tenth of each for the interfaces that join them. Studies of this kind for LLM systems have published no
numbers that we could read: none are compared, and none are claimed to be reproduced.
"""

from collections.abc import Sequence
from itertools import product

from drawing import beside
from matplotlib.axes import Axes
from study import Cell, Table, run

from slipstick.backends.machine.package import Assembly, Die, Joint, Package
from slipstick.backends.prices.book import load_prices
from slipstick.backends.prices.section import Prices
from slipstick.cost.silicon.dies.yields import die_yield
from slipstick.cost.silicon.packages.package import package_bill

SILICON_MM2, VOLUME = 800.0, 500_000.0
NODES, SPLITS = ("N7", "N5", "N3"), (1, 2, 4)
JOINTS: tuple[Joint, ...] = ("organic", "fan_out", "interposer", "embedded_bridge", "fan_out_bridge")
# Part of a chiplet that its interfaces take; the second is a figure of Chiplet Actuary's paper.
INTERFACES = (0.0, 0.1)
# Defects over those of the price book.
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
PARTS = ("raw chips", "chip defects", "raw package", "package defects", "wasted dies", "design")


def package_of(node: str, joint: Joint, num_dies: int, interface: float) -> Package:
    """Return 800 mm2 that do something, in so many dies, with interfaces where there are several."""
    useful = SILICON_MM2 / num_dies
    area = useful / (1.0 - interface) if num_dies > 1 else useful
    return Package(Assembly("package", joint, (Die("die", node, area, float(num_dies)),)), volume=VOLUME)


def row_of(prices: Prices, node: str, factor: float, joint: Joint, num_dies: int, interface: float) -> list[Cell]:
    """Return the manufacturing cost of a good package, by part."""
    package = package_of(node, joint, num_dies, interface)
    (die,) = package.assembly.dies
    bill = package_bill(package, prices)
    parts = [float(bill.line(part).usd) for part in PARTS]
    good, defects = float(die_yield(die.area_mm2, node, prices.section)), prices.section.node(node).defect_density
    per_cm2 = defects.si * 100.0
    made = float(bill.usd) - parts[-1]
    return [node, factor, per_cm2, joint, num_dies, interface, float(die.area_mm2), good, *parts, made, float(bill.usd)]


def book_of(node: str, factor: float) -> Prices:
    """Return the price book with another density of defects on a node."""
    usual = load_prices().section.node(node).defect_density.si
    return load_prices("chiplet-actuary", (f"nodes.{node}.defect_density={usual * factor * 100.0:.9g} 1/cm2",))


def make(full: bool) -> Table:
    """Price every package; on the reduced grid the density of defects moves for organic packages of N5 alone."""
    rows = []
    for node, factor in product(NODES, FACTORS):
        prices = book_of(node, factor)
        for joint, num_dies, interface in product(JOINTS, SPLITS, INTERFACES):
            asked = full or factor == 1.0 or (node, joint) == ("N5", "organic")
            if asked and (num_dies > 1 or interface == 0.0):
                rows.append(row_of(prices, node, factor, joint, num_dies, interface))
    columns = ["node", "defects over usual", "defects (1/cm2)", "package", "dies", "interfaces", "die (mm2)", "yield"]
    return Table([*columns, *(f"{part} ($)" for part in PARTS), "made for ($)", "with design ($)"], rows, [
        f"{SILICON_MM2:g} mm2 of silicon that do something; no memory. Defects cluster as the book says.",
        f"Design of dies, interfaces, package and masks over {VOLUME:,.0f} packages; `made for` is without it.",
        "Prices of wafers and wires are those of the model's source, below what is paid for the newest packages.",
    ])  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw the price of a good package by split, node and kind, and over the density of defects."""
    joined = [row for row in table.rows if row[4] == 1 or row[5] == INTERFACES[1]]
    chosen = Table(table.columns, [row for row in joined if row[1] == 1.0])
    names = [f"{node} {joint}" for node, joint in product(NODES, JOINTS)]
    splits = {f"{k} x {SILICON_MM2 / k:g} mm2": t.numbers("made for ($)") for k, t in _by_dies(chosen).items()}
    beside(panels[0], names, splits)
    panels[0].set_ylabel("a good package ($)")
    n5 = [row for row in joined if (row[0], row[3]) == ("N5", "organic")]
    for k, rows in _by_dies(Table(table.columns, n5)).items():
        panels[1].plot(rows.numbers("defects (1/cm2)"), rows.numbers("made for ($)"), marker="o", label=f"{k} dies")
    panels[1].set(xlabel="defects of N5 (1/cm2)", ylabel="a good organic package ($)", ylim=(0, None))
    panels[1].legend()


def _by_dies(table: Table) -> dict[int, Table]:
    return {int(dies): rows for dies, rows in table.groups("dies").items()}


if __name__ == "__main__":
    run(__doc__, make, draw, panels=2)
