"""A graph as text: the form for people, for golden tests and for files."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..graph import Graph, LengthBound, Node, Phase, Region, Role, Run, Value
from .attrs_text import print_attrs

HEADER = "slipstick.graph 1"


def print_graph(graph: Graph) -> str:
    """Print a graph so that `parse_graph` reads back an equal one."""
    return "\n".join(_lines(graph)) + "\n"


def print_node(region: Region, node: Node) -> str:
    """Print one node as in the textual form, without indentation."""
    outs = ", ".join(f"%{o}" for o in node.outputs)
    args = ", ".join(f"%{i}" for i in node.inputs)
    types = " ; ".join(_type(region.by_id[o]) for o in node.outputs)
    tail = f" @{node.scope}" if node.scope else ""
    tail += "" if node.phase is Phase.FORWARD else f" {node.phase}"
    tail += "" if node.forward is None else f" of %{node.forward}"
    tail += "" if node.kernel is None else f" in %{node.kernel}"
    return f"{outs} = {node.op}({args}){print_attrs(node.attrs)} : {types}{tail}"


def _lines(graph: Graph) -> Iterator[str]:
    yield HEADER
    yield f"graph {json.dumps(graph.name)} {graph.workload} {graph.dtype}"
    yield from (f"note {json.dumps(n)}" for n in graph.notes)
    if graph.max_positions:
        yield f"positions {graph.max_positions}"
    yield from (f"hint {h.axis} {json.dumps(h.path)} {h.style}" for h in graph.hints)
    if graph.spelled_out:
        yield "spelled_out"
    yield from (_bound(b) for b in graph.bounds)
    if graph.axes:
        yield f"axes {', '.join(graph.axes)}"
    if graph.schedule:
        yield f"schedule {' | '.join(_run(r) for r in graph.schedule)}"
    yield from (
        f"constraint {c.dim} % {c.axis}{' copied' if c.copied else ''} {json.dumps(c.where)}" for c in graph.constraints
    )
    for region in graph.regions:
        yield from _region(region)


def _bound(b: LengthBound) -> str:
    gaps = f" but {','.join(map(str, b.gaps))}" if b.gaps else ""
    return f"bound {b.name} {b.low} to {b.high} by {b.step}{gaps} {json.dumps(b.where)}"


def _run(run: Run) -> str:
    return ", ".join(run.regions) + (f" x{run.count}" if run.count != 1 else "")


def _region(region: Region) -> Iterator[str]:
    yield f"region {region.name}"
    for v in region.values:
        if v.role is not Role.RESULT:
            yield f"  %{v.id} = {v.role} {json.dumps(v.name)} : {_type(v)}"
    for node in region.nodes:
        yield "  " + print_node(region, node)
    yield from (f"  out {json.dumps(p.name)} = %{p.value}" for p in region.outputs)
    yield from (f"  grad %{p} = %{g}" for p, g in region.grads)
    yield "end"


def _type(v: Value) -> str:
    text = str(v.type)
    text += f" ~{v.storage}" if v.storage != v.id else ""
    text += " saved" if v.saved else ""
    if v.placements:
        text += f" <{', '.join(f'{axis}={p}' for axis, p in v.placements)}>"
    return text
