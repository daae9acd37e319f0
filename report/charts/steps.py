"""Charts of a step: where its time goes, what its memory holds, and what would make it faster."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from ...ir.units import format_bytes, format_time
from ..labels import parameter_label, part_label
from ..results.table import Panel
from .bars import ROW, bars
from .chart import (
    ABOVE,
    BLUE,
    GREEN,
    GREY,
    NAMES,
    ORANGE,
    PURPLE,
    RED,
    TEAL,
    YELLOW,
    Chart,
    Datum,
    Spec,
    amount,
    colours,
)
from .nodes import Nodes
from .read import Document, numbers, part

# Numbers of a machine that a chart has room for.
_NUMBERS = 14
_CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "compute": BLUE,
        "communication": ORANGE,
        "optimizer": PURPLE,
        "bubble": GREY,
        "stragglers": RED,
        "host and checkpoints": GREEN,
    }
)
_MEMORY = MappingProxyType(
    {
        "weights": BLUE,
        "gradients": TEAL,
        "optimizer": PURPLE,
        "activations": ORANGE,
        "kv_cache": ORANGE,
        "kv_cache_in_use": ORANGE,
        "kv_cache_free": GREEN,
        "draft_weights": PURPLE,
        "temporary": YELLOW,
        "reserved": GREY,
    }
)


def step_charts(document: Document) -> Iterator[Chart]:
    """Yield the charts of a step that its document has the numbers for."""
    yield parts_chart(document)
    found = Nodes.of(document)
    if found.rows:
        yield found.layers()
        yield found.operators()
        yield from found.roofline(part(document, "roofline"))
    yield memory_chart(document)
    yield from tornado_chart(document)


def part_class(name: str) -> str:
    """Return the class of a part of a step, which its colour says.

    >>> part_class("compute.matmul"), part_class("comm.tp"), part_class("bubble"), part_class("optimizer.clip")
    ('compute', 'communication', 'bubble', 'optimizer')
    """
    kind = name.partition(".")[0]
    known = {"comm": "communication"}.get(kind, kind)
    return known if known in _CLASSES else "host and checkpoints"


def parts_chart(document: Document) -> Chart:
    """Return the parts of a step, the greatest first."""
    found = {name: seconds for name, seconds in numbers(part(document, "breakdown")).items() if seconds > 0}
    total = sum(found.values())
    data = [
        {
            "name": part_label(name),
            "value": seconds,
            "label": f"{format_time(seconds)}, {seconds / total:.1%}",
            "class": part_class(name),
        }
        for name, seconds in sorted(found.items(), key=lambda one: -one[1])
    ]
    alt = f"The parts of a step of {format_time(total)}; they add up."
    if data:
        alt += f" The greatest is {data[0]['name']} with {data[0]['label']} of the step."
    return bars("Where the time of a step goes", alt, data, ("part", "time and share", "class"), _CLASSES)


def memory_chart(document: Document) -> Chart:
    """Return what the fullest device holds, beside what it can hold."""
    found = numbers(part(document, "memory"))
    capacity, held = found.pop("capacity", math.nan), {name: b for name, b in found.items() if b > 0}
    total, start = sum(held.values()), 0.0
    data: list[Datum] = []
    for name, num_bytes in held.items():
        label = f"{format_bytes(num_bytes)}, {num_bytes / total:.1%}"
        words = name.replace("_", " ").replace("kv cache", "KV cache")
        data.append({"part": words, "from": start / 2**30, "to": (start + num_bytes) / 2**30, "label": label})
        start += num_bytes
    colors = [_MEMORY.get(name, GREEN) for name in held]
    x = {"type": "quantitative", "title": "GiB of a device", "scale": {"nice": False}}
    layers: list[Spec] = [
        {
            "mark": {"type": "bar", "height": 34},
            "encoding": {
                "x": {**x, "field": "from"},
                "x2": {"field": "to"},
                "color": {
                    **colours("part", [row["part"] for row in data], colors, {**ABOVE, "columns": 8}),
                    "type": "nominal",
                    "sort": None,
                },
                "tooltip": [{"field": "part"}, {"field": "label", "title": "bytes"}],
            },
        },
    ]
    where = ""
    if capacity > 0:
        where = f" of {format_bytes(capacity)}, {total / capacity:.0%}"
        end = {"values": [{"at": capacity / 2**30, "label": f"capacity {format_bytes(capacity)}"}]}
        at: Spec = {"x": {**x, "field": "at"}}
        text = {"type": "text", "align": "right", "dx": -6, "dy": -26}
        layers += [
            {"data": end, "mark": {"type": "rule", "size": 2, "strokeDash": [5, 3], "color": RED}, "encoding": at},
            {"data": end, "mark": text, "encoding": {**at, "text": {"field": "label"}}},
        ]
    rows = [[str(row["part"]), str(row["label"])] for row in data]
    alt = f"The fullest device holds {format_bytes(total)}{where}."
    return Chart("Memory of a GPU", alt, {"layer": layers}, data, 70, Panel("", ("part", "bytes and share"), rows))


def tornado_chart(document: Document) -> Iterator[Chart]:
    """Yield what 10 % more and 10 % less of each number of the machine does to the step, the greatest first."""
    found = numbers(part(document, "elasticities"))
    told = sorted(found.items(), key=lambda one: -abs(one[1]))[:_NUMBERS]
    data: list[Datum] = [
        {"name": parameter_label(name), "value": math.expm1(slope * math.log(factor)), "class": word, "label": label}
        for name, slope in told
        if abs(slope) >= 5e-4
        for word, factor in (("10 % more", 1.1), ("10 % less", 0.9))
        if (label := f"{math.expm1(slope * math.log(factor)):+.2%}")
    ]
    if not data:
        return
    spec: Spec = {
        "mark": {"type": "bar", "height": {"band": 0.72}, "cornerRadiusEnd": 2},
        "encoding": {
            "y": {"field": "name", "sort": None, "axis": NAMES},
            "x": {**amount("value", {"format": "+.1%", "title": "change of the step time"}), "stack": None},
            "color": colours("class", ["10 % more", "10 % less"], [GREEN, ORANGE]),
            "tooltip": [{"field": "name"}, {"field": "class"}, {"field": "label", "title": "step time"}],
        },
    }
    rows = [[str(row["name"]), str(row["class"]), str(row["label"])] for row in data]
    alt = (
        f"What 10 % more and 10 % less of each number of the machine does to the step time, each alone. "
        f"What counts most is {data[0]['name']}: {data[0]['label']} with {data[0]['class']}."
    )
    head = ("number of the machine", "changed by", "step time")
    yield Chart("What would make it faster", alt, spec, data, ROW * len(data) // 2, Panel("", head, rows))
