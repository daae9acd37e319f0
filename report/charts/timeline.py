"""A step on the clock: what each stage runs on each stream and what it holds, as a chart that zooms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from ...driver.estimate import Estimate
from ...ir.units import format_time
from ..trace.chrome.emit import Trace
from ..trace.levels import levels_of
from ..trace.memory import MemoryBook
from ..trace.timeline import timeline_of
from .chart import ABOVE, BLUE, GREY, NAMES, ORANGE, PURPLE, TEAL, YELLOW, Chart, Datum, Spec, amount, colours
from .read import Document, number, numbers, part, records

# Slices that a page holds without becoming slow or large; the trace of a step for Perfetto has them all.
MOST_EVENTS = 2400
_KINDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "task": ("micro-batch", BLUE),
        "layer": ("layer", TEAL),
        "compute": ("kernel", BLUE),
        "comm": ("message", ORANGE),
        "phase": ("phase of the step", GREY),
        "other": ("once a step", PURPLE),
    }
)
_CLOCK: Spec = MappingProxyType({"title": "ms from the start of the step", "grid": False})
_HELD = ("weights", "gradients", "optimizer", "reserved", "activations", "temporary", "kv_cache")
_HELD_COLORS = (BLUE, TEAL, PURPLE, GREY, ORANGE, YELLOW, ORANGE)


def timeline_record(answer: Estimate) -> dict[str, object]:
    """Return the slices of one stage of each kind and the memory of the fullest one, as many as a page holds.

    Times are seconds from the start of the step, sizes bytes.
    """
    timeline = timeline_of(answer)
    shown, book = tuple(timeline.stages.shown(False)), MemoryBook(timeline)
    levels = levels_of(timeline, shown, "auto", MOST_EVENTS)
    trace = Trace(timeline, shown, False, levels, book)
    events = [json.loads(line) for process in trace.processes() for line in process]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    slices = [
        {
            "stage": processes[e["pid"]],
            "stream": threads[e["pid"], e["tid"]],
            "place": [e["pid"], e["tid"]],
            "name": e["name"],
            "kind": e["cat"],
            "start_s": e["ts"] / 1e6,
            "end_s": (e["ts"] + e["dur"]) / 1e6,
        }
        for e in events
        if e["ph"] == "X"
    ]
    fullest = book.fullest()
    counters = [e for e in events if e["ph"] == "C" and e["pid"] == fullest + 1]
    # Of changes at one moment, the last is what is held from then on.
    held = {e["ts"]: e["args"] for e in counters if e["name"] == "memory by part"}
    return {
        "stages": len(timeline.stages.cls),
        "fullest": fullest,
        "left_out": list(levels.left_out),
        "slices": slices[:MOST_EVENTS],
        "memory": [{"at_s": at / 1e6, **parts} for at, parts in held.items()],
    }


def timeline_charts(document: Document) -> Iterator[Chart]:
    """Yield the slices of a step by stage and stream, and the memory of its fullest stage."""
    tree = part(document, "timeline")
    if records(tree, "slices"):
        yield _slices(tree)
    if records(tree, "memory"):
        yield _held(tree, number(part(document, "memory").get("capacity")))


def _slices(tree: Document) -> Chart:
    data, names = _rows(tree)
    kinds = [told for told in _KINDS.values() if any(row["kind"] == told[0] for row in data)]
    spec: Spec = {
        "params": [{"name": "zoom", "select": {"type": "interval", "encodings": ["x"]}, "bind": "scales"}],
        "mark": {"type": "rect", "clip": True, "height": {"band": 0.86}},
        "encoding": {
            "x": amount("start", _CLOCK, {"nice": False}),
            "x2": {"field": "end"},
            "y": {"field": "row", "type": "nominal", "sort": names, "axis": {**NAMES, "grid": True}},
            "color": colours("kind", [k for k, _ in kinds], [c for _, c in kinds]),
            "opacity": {"condition": {"test": "datum.shade > 0", "value": 0.72}, "value": 1},
            "tooltip": [
                {"field": "name"},
                {"field": "row", "title": "stream"},
                {"field": "took"},
                {"field": "start", "title": "from, ms", "format": ",.4~f"},
            ],
        },
    }
    left_out = tree.get("left_out")
    told = f" To keep it readable, {'; '.join(map(str, left_out))}." if isinstance(left_out, list) and left_out else ""
    alt = f"What runs when, by stage and stream. Scroll over it to zoom, drag to move, double-click for all.{told}"
    return Chart("Timeline of a step", alt, spec, data, 20 * len(names))


def _rows(tree: Document) -> tuple[list[Datum], list[str]]:
    """Return the slices, each in the row of its stage and stream, and the rows from top to bottom."""
    several = tree.get("stages") != 1
    data: list[Datum] = []
    rows: dict[str, tuple[int, ...]] = {}
    for one in records(tree, "slices"):
        place = one.get("place")
        order = tuple(place) if isinstance(place, list) else ()
        stage, kind = str(one["stage"]), str(one["kind"])
        row = f"{stage}: {one['stream']}" if several or stage == "step" else str(one["stream"])
        # Layers lie inside the micro-batch that runs them: a row of their own shows both.
        if kind == "layer":
            row, order = f"{row}, layers", (*order, 1)
        rows[row] = order
        start_s, end_s = number(one["start_s"]), number(one["end_s"])
        data.append(
            {
                "row": row,
                "name": str(one["name"]),
                "kind": _KINDS.get(kind, _KINDS["other"])[0],
                "start": start_s * 1e3,
                "end": end_s * 1e3,
                "shade": len(data) % 2,
                "took": format_time(end_s - start_s),
            }
        )
    return data, sorted(rows, key=lambda name: rows[name])


def _held(tree: Document, capacity: float) -> Chart:
    moments = records(tree, "memory")
    parts = [name for name in _HELD if any(numbers(m).get(name) for m in moments)]
    words = [name.replace("_", " ") for name in parts]
    data: list[Datum] = [
        {
            "at": number(m["at_s"]) * 1e3,
            "part": name.replace("_", " "),
            "order": k,
            "gib": numbers(m).get(name, 0.0) / 2**30,
        }
        for m in moments
        for k, name in enumerate(parts)
    ]
    most = max(sum(b for name, b in numbers(m).items() if name != "at_s") for m in moments)
    area: Spec = {
        "mark": {"type": "area", "interpolate": "step-after", "opacity": 0.9},
        "encoding": {
            "x": amount("at", _CLOCK, {"nice": False}),
            "y": {**amount("gib", {"title": "GiB of a device", "tickCount": 5}), "stack": "zero"},
            "order": {"field": "order", "type": "quantitative"},
            "color": {
                **colours("part", words, [_HELD_COLORS[_HELD.index(n)] for n in parts], {**ABOVE, "columns": 8}),
                "sort": None,
            },
            "tooltip": [
                {"field": "part"},
                {"field": "gib", "title": "GiB", "format": ",.2f"},
                {"field": "at", "title": "ms", "format": ",.3~f"},
            ],
        },
    }
    roof: Spec = {
        "data": {"values": [{"gib": capacity / 2**30}]},
        "mark": {"type": "rule", "strokeDash": [5, 3], "size": 2, "color": "#cf4f5f"},
        "encoding": {"y": {"field": "gib", "type": "quantitative"}},
    }
    alt = f"A device of stage {tree.get('fullest')}, the fullest: at most {most / 2**30:,.1f} GiB in a step"
    alt += f"; the dashed line is its capacity of {capacity / 2**30:,.1f} GiB." if capacity > 0 else "."
    # nan: not known
    return Chart("Memory over a step", alt, {"layer": [area, roof] if capacity > 0 else [area]}, data, 260)
