"""Answers to draw timelines of, from the golden graphs, and the rules of the Trace Event Format as checks."""

from __future__ import annotations

import io
import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, cast

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.driver.estimate import Estimate, estimate
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.text.files import load_graph
from slipstick.report.trace.chrome.emit import Trace
from slipstick.report.trace.chrome.writer import print_trace

GOLDEN = Path(__file__).parents[1] / "golden"


class Event(TypedDict):
    """One event of a trace; which keys it has depends on `ph`."""

    ph: str
    pid: int
    tid: int
    ts: float
    dur: float
    id: int
    bp: str
    name: str
    cat: str
    args: Mapping[str, object]


class Document(TypedDict):
    """A trace as a file holds it."""

    displayTimeUnit: str
    traceEvents: Sequence[Event]
    otherData: Mapping[str, object]


def deep(graph: Graph, layers: int) -> Graph:
    """The same graph with so many layers."""
    runs = tuple(replace(run, count=layers) if run.count > 1 else run for run in graph.schedule)
    return replace(graph, schedule=runs)


def answer_of(
    family: Family, *, model: str = "tiny-llama.train", layers: int = 8, system: System | None = None,
    gpus: int = 8, tp: int = 1, pp: int = 1, vpp: int = 1, cp: int = 1, ep: int = 1, batches: int = 4, mbs: int = 1,
) -> Estimate:  # fmt: skip
    """Estimate a small model; `batches` are the micro-batches of a step."""
    train = family.workload is Workload.TRAIN
    graph = deep(load_graph(GOLDEN / f"{model}.graph"), layers)
    plan = make_plan(
        num_gpus=gpus, tp=tp, pp=pp, vpp=vpp, cp=cp, ep=ep, seq_len=64, micro_batch=mbs, family=family,
        global_batch=(batches if train else 1) * mbs * (gpus // (tp * pp * cp)), kv_len=0 if train else 64,
    )  # fmt: skip
    return estimate(graph, system or load_system("dgx-h100"), plan)


def document(trace: Trace) -> Document:
    """Return a trace as a reader gets it."""
    out = io.StringIO()
    print_trace(trace, out)
    return cast(Document, json.loads(out.getvalue()))


def slices(done: Document) -> Mapping[tuple[int, int], Sequence[Event]]:
    """Slices by process and thread, in the order of the file."""
    found: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for e in done["traceEvents"]:
        if e["ph"] == "X":
            found[e["pid"], e["tid"]].append(e)
    return found


def threads(done: Document) -> Mapping[tuple[int, int], str]:
    """Names of threads."""
    named = (e for e in done["traceEvents"] if e["name"] == "thread_name")
    return {(e["pid"], e["tid"]): str(e["args"]["name"]) for e in named}


def on(done: Document, stream: str, pid: int | None = None) -> list[Event]:
    """Slices of a stream, of one process or of all."""
    names = threads(done)
    return [e for at, es in slices(done).items() if names[at] == stream and pid in (None, at[0]) for e in es]


def amounts(done: Document, counter: str) -> list[int]:
    """The sums of a counter's parts, moment by moment."""
    found = [e["args"].values() for e in done["traceEvents"] if e["ph"] == "C" and e["name"] == counter]
    return [sum(v for v in values if isinstance(v, int)) for values in found]


def faults(done: Document) -> Iterator[str]:
    """Yield what breaks the rules of the Trace Event Format, or what viewers would draw wrongly."""
    for e in done["traceEvents"]:
        yield from _malformed(e)
    for at, row in slices(done).items():
        yield from (f"{at}: {text}" for text in _crossing(row))
    yield from _unnamed(done)
    yield from _loose_arrows(done)
    yield from _backwards(done)


def _malformed(e: Event) -> Iterator[str]:
    needed = {
        "X": {"pid", "tid", "ts", "dur", "name", "cat", "args"}, "C": {"pid", "ts", "name", "args"},
        "M": {"pid", "tid", "name", "args"}, "s": {"pid", "tid", "ts", "name", "cat", "id"},
        "f": {"pid", "tid", "ts", "name", "cat", "id", "bp"},
    }  # fmt: skip
    if e["ph"] not in needed or set(e) != needed[e["ph"]] | {"ph"}:
        yield f"not an event: {e}"
    elif e["ph"] != "M" and e["ts"] < 0:
        yield f"before the step: {e}"
    elif e["ph"] == "X" and e["dur"] <= 0:
        yield f"no length: {e}"
    elif e["ph"] == "C" and not all(isinstance(v, int) and v >= 0 for v in e["args"].values()):
        yield f"no amounts: {e}"


def _ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def _crossing(row: Sequence[Event]) -> Iterator[str]:
    """Slices of a thread come in order, each behind or inside the ones before."""
    open_until: list[int] = []
    last = 0
    for e in row:
        start, end = _ns(e["ts"]), _ns(e["ts"]) + _ns(e["dur"])
        if start < last:
            yield f"out of order: {e}"
        while open_until and open_until[-1] <= start:
            open_until.pop()
        if open_until and end > open_until[-1]:
            yield f"crosses another: {e}"
        open_until.append(end)
        last = start


def _unnamed(done: Document) -> Iterator[str]:
    meta = [(e["pid"], e["tid"], e["name"]) for e in done["traceEvents"] if e["ph"] == "M"]
    if len(set(meta)) < len(meta):
        yield "named twice"
    for pid, tid in slices(done):
        wanted = {(pid, 0, "process_name"), (pid, 0, "process_sort_index")}
        wanted |= {(pid, tid, "thread_name"), (pid, tid, "thread_sort_index")}
        yield from (f"without a name: {one}" for one in wanted - set(meta))


def _loose_arrows(done: Document) -> Iterator[str]:
    """Every arrow has one start and one end, in a slice each, and goes forward in time."""
    ends: dict[int, list[Event]] = defaultdict(list)
    for e in done["traceEvents"]:
        if e["ph"] in "sf":
            ends[e["id"]].append(e)
    rows = slices(done)
    for number, pair in ends.items():
        kinds = sorted(e["ph"] for e in pair)
        if kinds != ["f", "s"] or len({(e["name"], e["cat"]) for e in pair}) != 1:
            yield f"arrow {number} is no pair: {pair}"
            continue
        end, start = sorted(pair, key=lambda e: e["ph"])
        if start["ts"] > end["ts"] or start["pid"] == end["pid"]:
            yield f"arrow {number} goes nowhere"
        for e in pair:
            row = rows[e["pid"], e["tid"]]
            near = row[max(bisect_right(row, e["ts"], key=lambda x: x["ts"]) - 1, 0)]
            if not near["ts"] <= e["ts"] < near["ts"] + near["dur"]:
                yield f"arrow {number} begins or ends in no slice: {e}"


def _backwards(done: Document) -> Iterator[str]:
    """Counters go forward in time."""
    last: dict[tuple[int, str], float] = {}
    for e in done["traceEvents"]:
        if e["ph"] == "C":
            key = e["pid"], e["name"]
            if e["ts"] < last.get(key, 0.0):
                yield f"counter goes back: {e}"
            last[key] = e["ts"]
