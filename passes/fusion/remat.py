"""Pointwise results that pointwise backward kernels can make again from what is kept anyway are not kept."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from ...ir.graph import Graph, Node, Phase, Region, Role, Workload
from ...ir.ops import Trait, has
from ...ir.ops.tensors.pointwise import ElementwiseAttrs
from ...ir.records import dataclass
from ..base import Pass, PassResult, require_sharded, rewritten
from ..gathers import renamed
from ..recompute.rerun import needed


@dataclass(frozen=True, slots=True)
class Remat(Pass):
    """Let backward kernels repeat pointwise work, as hand-fused kernels do: SwiGLU keeps gate and up, never silu.

    Nothing is repeated that would need another value to be kept. `fuse`, run later, makes the copies part of the
    kernels that read them.
    """

    name: ClassVar[str] = "remat"

    def requires(self, graph: Graph) -> None:
        """What is kept is a matter of the sharded graph."""
        require_sharded(self.name, graph, sharded=True)

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the regions that keep such results."""
        if graph.workload is not Workload.TRAIN:
            return PassResult(graph, changed=False)
        return rewritten(graph, _rewrite, resave=True)


def _rewrite(region: Region) -> Region:
    again, dropped = _repeatable(region)
    if not dropped:
        return region
    clones = needed(region.nodes, again, dropped)
    fresh = region.fresh_id
    new = {o: fresh + k for k, o in enumerate(o for c in clones for o in c.outputs)}
    late = {n.key for n in region.nodes if n.phase is not Phase.FORWARD}
    nodes = [renamed(n, {d: new[d] for d in dropped}) if n.key in late else n for n in region.nodes]
    first = next(k for k, n in enumerate(nodes) if set(new.values()).intersection(n.inputs))
    copies = [replace(renamed(c, new), outputs=tuple(new[o] for o in c.outputs), phase=Phase.BACKWARD) for c in clones]
    values = (replace(region.by_id[o], id=new[o], storage=new[o], saved=False) for o in new)
    return replace(region, values=(*region.values, *values), nodes=(*nodes[:first], *copies, *nodes[first:]))


def _repeatable(region: Region) -> tuple[set[int], set[int]]:
    """Keys of forward nodes that can be repeated from what stays kept, and the kept results that need not be."""
    at_hand = {
        v.id for v in region.values if v.role is not Role.RESULT and (v.saved or v.role in (Role.PARAM, Role.BUFFER))
    }
    again, dropped, made = set[int](), set[int](), set[int]()
    for node in (n for n in region.nodes if n.phase is Phase.FORWARD):
        if _is_pointwise(node) and at_hand.union(made).issuperset(node.inputs):
            again.add(node.key)
            made.update(node.outputs)
            dropped.update(o for o in node.outputs if _only_for_pointwise(region, o))
        at_hand.update(o for o in node.outputs if region.by_id[o].saved and o not in dropped)
    return again, dropped


def _is_pointwise(node: Node) -> bool:
    random = isinstance(node.attrs, ElementwiseAttrs) and any("dropout" in fn for fn in node.attrs.fns)
    return has(node, Trait.POINTWISE) and not random


def _only_for_pointwise(region: Region, value: int) -> bool:
    """Whether a kept result is read by pointwise backward nodes alone, and neither viewed nor handed on."""
    v = region.by_id[value]
    views = any(w.storage == v.storage and w.id != v.id for w in region.values)
    leaves = any(p.value == value for p in region.outputs)
    readers = [n for n in region.users.get(value, ()) if n.phase is not Phase.FORWARD]
    return v.saved and v.storage == v.id and not views and not leaves and all(_is_pointwise(n) for n in readers)
