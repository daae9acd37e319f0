"""Rotary angles as tables that lie ready, from which the kernels that rotate take their rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from ...ir.graph import Graph, Node, Region, Role
from ...ir.kernels import source_of
from ...ir.ops import OpClass, Trait, has
from ...ir.records import dataclass
from ..base import Pass, PassResult, rewritten

_GIVEN = (Role.INPUT, Role.BUFFER)


@dataclass(frozen=True, slots=True)
class RotaryTables(Pass):
    """Drop the kernels that work out sines and cosines anew in every step.

    Engines make them once for all positions: `cos_sin_cache` of vLLM and SGLang, `rotary_cos_sin` of TensorRT-LLM. A
    table has as many rows as the model has positions; what a graph holds are the rows of its tokens.
    """

    name: ClassVar[str] = "rotary_tables"

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the regions that make what only rotations read."""
        # Ports that nothing but rotations reads.
        ports = [(r, v) for r in graph.regions for v in r.of_role(Role.PORT)]
        others = {v.name for r, v in ports if not all(has(n, Trait.ROTATES, backward=False) for n in _readers(r, v.id))}
        tables = frozenset(v.name for _, v in ports) - others
        return rewritten(graph, lambda region: _rewrite(region, tables))


def _readers(region: Region, value: int) -> Iterator[Node]:
    for node in region.nodes:
        free = has(node, OpClass.FREE)
        if not free and any(source_of(region, i) == value for i in node.inputs):
            yield node


def _rewrite(region: Region, tables: frozenset[str]) -> Region:
    ports = [p for p in region.outputs if p.name in tables and _is_table(region, p.value)]
    if not ports:
        return region
    kept = {p.value: f"{region.producer[p.value].scope}.table_{p.name}" for p in ports}
    nodes = _needed(region, set(kept))
    made = {o for n in nodes for o in n.outputs}
    values = (
        replace(v, role=Role.BUFFER, name=kept[v.id], storage=v.id) if v.id in kept else v
        for v in region.values
        if v.id in kept or v.id in made or v.role is not Role.RESULT
    )
    return replace(region, values=tuple(values), nodes=nodes)


def _is_table(region: Region, value: int) -> bool:
    """Whether a value comes from positions and constants alone."""
    if value not in region.producer:
        return False
    queue, seen = [value], set[int]()
    while queue:
        node = region.producer.get(value := queue.pop())
        if node is None and region.by_id[value].role not in _GIVEN:
            return False
        if node is not None and node.key not in seen:
            seen.add(node.key)
            queue += node.inputs
    return True


def _needed(region: Region, ready: set[int]) -> tuple[Node, ...]:
    """Return the nodes that are still read when some values are there anyway."""
    read = {p.value for p in region.outputs} - ready
    kept: list[Node] = []
    for node in reversed(region.nodes):
        if read.intersection(node.outputs) and not ready.intersection(node.outputs):
            kept.append(node)
            read |= set(node.inputs)
    return tuple(reversed(kept))
