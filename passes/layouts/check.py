"""The verifier of layouts: nodes of a sharded graph keep the law of their op, messages and gradients their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from ...ir.errors import VerifyError
from ...ir.graph import Graph, Node, Region, Value
from ...ir.ops import call_of
from ...ir.placement import REPLICATE, Shard
from . import laws_messages, laws_moves, laws_products, laws_rows
from .flow import gradient_problems, message_problems
from .lay import Law, Lay, Placements

_FAMILIES = (laws_products, laws_rows, laws_moves, laws_messages)
LAWS: Mapping[str, Law] = MappingProxyType({op: law for f in _FAMILIES for op, law in f.LAWS.items()})


def verify_layouts(graph: Graph, after: str = "", verified: Graph | None = None) -> None:
    """Raise VerifyError with every law of layouts that a sharded graph breaks; regions verified before keep theirs."""
    found = list(layout_problems(graph, verified))
    if found:
        where = f" after pass '{after}'" if after else ""
        shown = "\n  ".join(found[:12])
        raise VerifyError(f"graph '{graph.name}'{where} breaks {len(found)} law(s) of layouts:\n  {shown}")


def layout_problems(graph: Graph, verified: Graph | None = None) -> Iterator[str]:
    """Yield every broken law; what a verified graph has as well is not looked at again."""
    before = verified.by_name if verified is not None and verified.axes == graph.axes else {}
    for region in graph.regions if graph.axes else ():
        if region is before.get(region.name):
            continue
        nodes = _changed(region, before.get(region.name))
        yield from (f"{region.name}: {p}" for p in (*_of_nodes(region, nodes), *message_problems(region, nodes)))
        yield from (f"{region.name}: {p}" for p in gradient_problems(region))


def _changed(region: Region, before: Region | None) -> Sequence[Node]:
    """Return the nodes that a region did not have before, or that read or make something that lies otherwise."""
    if before is None:
        return region.nodes
    known, values = set(map(id, before.nodes)), before.by_id
    moved = {v.id for v in region.values if (old := values.get(v.id)) is not v and not _lies_alike(v, old)}
    return [n for n in region.nodes if id(n) not in known or not moved.isdisjoint((*n.inputs, *n.outputs))]


def _lies_alike(value: Value, old: Value | None) -> bool:
    return old is not None and value.type is old.type and value.placements is old.placements


def _of_nodes(region: Region, nodes: Sequence[Node]) -> Iterator[str]:
    """Yield what breaks the laws of ops; calls that are alike, and lie alike, are looked at once."""
    values, codes, seen = region.by_id, dict[object, int](), dict[object, tuple[str, ...]]()
    lies = {v.id: tuple(p for _, p in v.placements) for v in region.values}
    code = dict[int, int]()
    for node in nodes:
        if node.op not in LAWS:
            continue
        ids = (*node.inputs, *node.outputs)
        for i in ids:
            if i not in code:
                code[i] = codes.setdefault((values[i].type, lies[i]), len(codes))
        key = (node.op, node.attrs, len(node.inputs), tuple([code[i] for i in ids]))
        if key not in seen:
            seen[key] = tuple(_complaints(region, node, list(zip(*[lies[i] for i in ids], strict=True))))
        for complaint in seen[key]:
            yield f"{node.op} at {node.scope or 'the top'} ({node.phase}): {complaint}"


def _complaints(region: Region, node: Node, along: Sequence[Placements]) -> Iterator[str]:
    """Ask the law of the op along each axis; what is whole everywhere is right."""
    count, law, call = len(node.inputs), LAWS[node.op], call_of(region, node)
    shards = any(col[0] is REPLICATE and isinstance(col[count], Shard) for col in along) if count else False
    for k, col in enumerate(along):
        if col.count(REPLICATE) == len(col):
            continue
        axis = region.by_id[node.key].placements[k][0]
        for complaint in law(Lay(axis, call, col[:count], col[count:], shards)):
            yield f"along {axis}: {complaint}"


__all__ = ["LAWS", "layout_problems", "verify_layouts"]
