"""Pointwise results that pointwise backward kernels can make again from what is kept anyway are not kept."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace
from typing import ClassVar

from ...ir.editing.rewriter import RegionRewriter
from ...ir.graph import Node, Phase, Region, Role, Workload
from ...ir.ops import Trait, has
from ...ir.ops.tensors.pointwise import ElementwiseAttrs
from ...ir.records import dataclass
from ..base import RegionPass
from ..recompute.rerun import needed


@dataclass(frozen=True, slots=True)
class Remat(RegionPass[tuple[Set[int], Set[int]]]):
    """Let backward kernels repeat pointwise work, as hand-fused kernels do: SwiGLU keeps gate and up, never silu.

    Nothing is repeated that would need another value to be kept. `fuse`, run later, makes the copies part of the
    kernels that read them.
    """

    name: ClassVar[str] = "remat"
    sharded: ClassVar[bool | None] = True  # what is kept is a matter of the sharded graph
    workloads: ClassVar[tuple[Workload, ...]] = (Workload.TRAIN,)
    resaves: ClassVar[bool] = True

    def matches(self, region: Region) -> Iterable[tuple[Set[int], Set[int]]]:
        """Yield what can be repeated, and the results that need not be kept for it."""
        again, dropped = _repeatable(region)
        return [(again, dropped)] if dropped else []

    def rewrite(self, region: RegionRewriter, match: tuple[Set[int], Set[int]]) -> None:
        """Repeat nodes in front of what reads them first; later phases read the copies of what is dropped."""
        names: dict[int, int] = {}
        again, dropped = match
        copies = region.copies(needed(region.region.nodes, again, dropped), region.region, names)
        late = [n for n in region.region.nodes if n.phase is not Phase.FORWARD and not dropped.isdisjoint(n.inputs)]
        region.insert_before(late[0], *(replace(c, phase=Phase.BACKWARD) for c in copies))
        for node in late:
            region.rewire(node, {d: names[d] for d in dropped})


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
