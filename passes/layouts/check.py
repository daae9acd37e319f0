"""The verifier of layouts: nodes of a sharded graph keep the law of their op, messages and gradients their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType

from ...ir.errors import VerifyError
from ...ir.graph import Graph, Node, Region
from ...ir.ops import OpCall, call_of
from ...ir.placement import REPLICATE, Placement, Shard
from . import laws_messages, laws_moves, laws_products, laws_rows
from .flow import gradient_problems, message_problems
from .lay import Law, Lay

_FAMILIES = (laws_products, laws_rows, laws_moves, laws_messages)
LAWS: Mapping[str, Law] = MappingProxyType({op: law for f in _FAMILIES for op, law in f.LAWS.items()})
Lies = tuple[tuple[tuple[str, Placement], ...], ...]


def verify_layouts(graph: Graph, after: str = "", verified: Graph | None = None) -> None:
    """Raise VerifyError with every law of layouts that a sharded graph breaks; regions verified before keep theirs."""
    found = list(layout_problems(graph, verified))
    if found:
        where = f" after pass '{after}'" if after else ""
        shown = "\n  ".join(found[:12])
        raise VerifyError(f"graph '{graph.name}'{where} breaks {len(found)} law(s) of layouts:\n  {shown}")


def layout_problems(graph: Graph, verified: Graph | None = None) -> Iterator[str]:
    """Yield every broken law; regions that are also in a verified graph are not looked at again."""
    known = set() if verified is None or verified.axes != graph.axes else set(map(id, verified.regions))
    for region in graph.regions if graph.axes else ():
        if id(region) in known:
            continue
        for node in region.nodes:
            for complaint in _of_node(region, node):
                yield f"{region.name}: {node.op} at {node.scope or 'the top'} ({node.phase}): {complaint}"
        yield from (f"{region.name}: {p}" for p in (*message_problems(region), *gradient_problems(region)))


def _of_node(region: Region, node: Node) -> tuple[str, ...]:
    if node.op not in LAWS:
        return ()
    values = region.by_id
    ins = tuple(values[i].placements for i in node.inputs)
    outs = tuple(values[o].placements for o in node.outputs)
    return _complaints(call_of(region, node), ins, outs)


# Passes leave most calls as they are, and layers of a kind share theirs: each is looked at once.
@lru_cache(maxsize=8192)
def _complaints(call: OpCall, ins: Lies, outs: Lies) -> tuple[str, ...]:
    axes = [a for a, _ in (outs or ins)[0]]
    found: list[str] = []
    pairs = zip(ins[0] if ins else (), outs[0] if outs else (), strict=False)
    shards = any(have == REPLICATE and isinstance(made, Shard) for (_, have), (_, made) in pairs)
    for k, axis in enumerate(axes):
        lay = Lay(axis, call, tuple(p[k][1] for p in ins), tuple(p[k][1] for p in outs), shards)
        found += (f"along {axis}: {c}" for c in LAWS[call.op](lay))
    return tuple(found)


__all__ = ["LAWS", "layout_problems", "verify_layouts"]
