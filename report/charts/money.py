"""Charts of money: what a sum is made of, one part on top of the other."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.units import format_usd
from ..results.table import Panel
from .chart import BLUE, GREEN, GREY, NAMES, ORANGE, PURPLE, TEAL, YELLOW, Chart, Datum, Spec, amount, colours
from .read import Document, leaves, number, part

# Lines of a bill that a chart has room for; the smallest are one line together.
_LINES = 14


def money_charts(document: Document) -> Iterator[Chart]:
    """Yield what an hour of a GPU costs, where the document has the bill."""
    bill = part(part(document, "money"), "gpu_hour")
    if bill:
        yield waterfall("What a GPU-hour costs", bill)


def bill_charts(document: Document) -> Iterator[Chart]:
    """Yield the bills of a system."""
    bills = part(document, "bills")
    for name, title in (
        ("GPU-hour", "What a GPU-hour costs"),
        ("system", "What the system costs to buy"),
        ("package", "What a package costs to make"),
    ):
        if part(bills, name):
            yield waterfall(title, part(bills, name))


def waterfall(title: str, bill: Document) -> Chart:
    """Return the lines of a bill, each where the one above it ends, and their sum."""
    lines = [(name, usd) for name, usd in leaves(bill) if abs(usd) > 0]
    if len(lines) > _LINES:
        kept = {name for name, _ in sorted(lines, key=lambda one: -one[1])[: _LINES - 1]}
        rest = sum(usd for name, usd in lines if name not in kept)
        count = sum(name not in kept for name, _ in lines)
        lines = [*((name, usd) for name, usd in lines if name in kept), (f"{count} smaller lines", rest)]
    total, start = number(bill.get("usd")), 0.0
    groups = list(dict.fromkeys(name.partition(":")[0] for name, _ in lines))
    data: list[Datum] = []
    for name, usd in lines:
        label = f"{format_usd(usd)}, {usd / total:.1%}"
        data.append({"name": name, "from": start, "to": start + usd, "group": name.partition(":")[0], "label": label})
        start += usd
    data.append({"name": "in all", "from": 0.0, "to": total, "group": "in all", "label": format_usd(total)})
    colors = [BLUE, ORANGE, PURPLE, TEAL, GREEN, YELLOW]
    shades = [colors[k % len(colors)] for k in range(len(groups))]
    room = {"domain": [0, total * 1.2], "nice": False}
    axis = {"title": f"$ of {format_usd(total)}", "tickCount": 5, "format": "$~s"}
    spec: Spec = {
        "encoding": {
            "y": {"field": "name", "sort": None, "axis": NAMES},
            "tooltip": [{"field": "name"}, {"field": "label", "title": "sum"}],
        },
        "layer": [
            {
                "mark": {"type": "bar", "height": {"band": 0.72}},
                "encoding": {
                    "x": amount("from", axis, room),
                    "x2": {"field": "to"},
                    "color": colours("group", [*groups, "in all"], [*shades, GREY], None),
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 6},
                "encoding": {"x": {"field": "to", "type": "quantitative"}, "text": {"field": "label"}},
            },
        ],
    }
    alt = f"{title}: {format_usd(total)}, line by line; each starts where the one above it ends."
    rows = [[str(row["name"]), str(row["label"])] for row in data]
    return Chart(title, alt, spec, data, 25 * len(data), Panel("", ("line", "sum and share"), rows))
