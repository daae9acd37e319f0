"""The verifier of layouts: nodes of a sharded graph keep the law of their op, messages and gradients their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from ...ir.errors import VerifyError
from ...ir.graph import Attrs, Graph, Node, Region, Value
from ...ir.ops import OpCall
from ...ir.ops.index_map import SAMPLE_AXES
from ...ir.placement import REPLICATE, MeshAxis, Placement, Shard
from ...ir.records import dataclass
from ...ir.types import TensorType
from .flow import counts_replicas, gradient_problems, is_own, message_problems
from .laws import LAWS, operand_problems
from .lay import Lay


def verify_layouts(graph: Graph, after: str = "", verified: Graph | None = None) -> None:
    """Raise VerifyError with every law of layouts that a sharded graph breaks; regions verified before keep theirs."""
    found = list(layout_problems(graph, verified))
    if found:
        where = f" after pass '{after}'" if after else ""
        shown = "\n  ".join(found[:12])
        raise VerifyError(f"graph '{graph.name}'{where} breaks {len(found)} law(s) of layouts:\n  {shown}")


def layout_problems(graph: Graph, verified: Graph | None = None) -> Iterator[str]:
    """Yield every broken law; what a verified graph has as well is not looked at again, whatever axes came since."""
    before = verified.by_name if verified is not None else {}
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
    """Yield what breaks the laws of ops and of samples."""
    values, found = region.by_id, dict[int, _Laid]()
    for node in nodes:
        for i in (*node.inputs, *node.outputs):
            if i not in found:
                found[i] = _laid(values[i].type, values[i].placements)
        ins, outs = tuple([found[i] for i in node.inputs]), tuple([found[i] for i in node.outputs])
        for complaint in _complaints(node.op, node.attrs, ins, outs):
            yield f"{node.op} at {node.scope or 'the top'} ({node.phase}): {complaint}"


@dataclass(frozen=True, slots=True, eq=False)
class _Laid:
    """A type and how it lies; equal ones are one object, which is cheap to look up."""

    type: TensorType
    placements: tuple[tuple[MeshAxis, Placement], ...]


_laid = lru_cache(maxsize=8192)(_Laid)


# Layers, passes and families of plans have most calls in common: those that are alike, and lie alike, are asked once.
@lru_cache(maxsize=8192)
def _complaints(op: str, attrs: Attrs, ins: tuple[_Laid, ...], outs: tuple[_Laid, ...]) -> tuple[str, ...]:
    """Ask the law of the op along each axis; what is replicated everywhere and pairs of a replica are right."""
    grows = (d.type for d in outs if counts_replicas(d.type))
    found = [f"makes {kind}: each replica has samples of its own" for kind in grows]
    law, count = LAWS.get(op, operand_problems), len(ins)
    call = OpCall(op, attrs, tuple(d.type for d in ins), tuple(d.type for d in outs))
    along = list(zip(*[[p for _, p in d.placements] for d in (*ins, *outs)], strict=True))
    shards = any(col[0] is REPLICATE and isinstance(col[count], Shard) for col in along) if count else False
    for (axis, _), col in zip(outs[0].placements if outs else (), along, strict=False):
        own = axis in SAMPLE_AXES and any(map(is_own, (*call.inputs, *call.outputs), col))
        if col.count(REPLICATE) < len(col) and not own:
            lay = Lay(axis, call, col[:count], col[count:], shards)
            found += [f"along {axis}: {complaint}" for complaint in law(lay)]
    return tuple(found)


__all__ = ["layout_problems", "verify_layouts"]
