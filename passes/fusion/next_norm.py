"""The norm at a layer's beginning moves to the end of what comes before, where the sum that it reads is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from ...ir.editing.rewriter import RegionRewriter
from ...ir.graph import Graph, Node, Port, Region, Role, Value
from ...ir.ops import Trait, has
from ...ir.records import dataclass
from ..base import Pass, PassResult
from ..recompute.rerun import needed

_NORMED = "_normed"


@dataclass(frozen=True, slots=True)
class NextNorm(Pass):
    """Hand the hidden state on together with its norm: both leave the kernel that adds the last branch of a layer.

    The first norm then stands behind the embedding, and the end of the last layer has that before the head. Serving
    engines carry `hidden_states` and `residual` from layer to layer for it, and send both to the next pipeline stage:
    `fused_add_rms_norm` of vLLM and SGLang, `next_layer_layernorm` of TensorRT-LLM.
    """

    name: ClassVar[str] = "next_norm"
    sharded: ClassVar[bool | None] = True  # where the norm reads and writes comes from `shard`

    def apply(self, graph: Graph) -> PassResult:
        """Move the norms of every port that all its readers normalise alike."""
        made = graph
        for port in sorted({p.name for r in graph.regions for p in r.outputs}):
            # Return, by region, the norm of a port; nothing where a reader has none, several or another kind.
            found = {r.name: _norms_of(r, v) for r in graph.regions for v in r.of_role(Role.PORT) if v.name == port}
            kinds = {_kind(graph.region(name), nodes[0]) if len(nodes) == 1 else None for name, nodes in found.items()}
            made_inside = any(p.name == port and p.value in r.producer for r in graph.regions for p in r.outputs)
            norms = (
                {name: nodes[0] for name, nodes in found.items()}
                if len(kinds) == 1 and None not in kinds and made_inside
                else {}
            )
            made = _moved(made, port, norms) if norms else made
        return PassResult(made, changed=made is not graph)


def _norms_of(region: Region, v: Value) -> list[Node]:
    readers = (n for n in region.users.get(v.id, ()) if n.inputs[0] == v.id)
    found = [n for n in readers if has(n, Trait.NORMALISES_ROWS, backward=False)]
    return [n for n in found if all(region.by_id[i].role is Role.PARAM for i in _sources(region, n))]


def _made_for(region: Region, norm: Node) -> list[Node]:
    """Return, in order, the nodes that make what a norm reads beside the state, such as one plus its weight."""
    return needed(region.nodes, {n.key for n in region.nodes}, set(norm.inputs[1:]))


def _sources(region: Region, norm: Node) -> list[int]:
    """Return what a norm reads beside the state, and what that is made of: values that no node makes."""
    read = (*norm.inputs[1:], *(i for n in _made_for(region, norm) for i in n.inputs))
    return [i for i in dict.fromkeys(read) if i not in region.producer]


def _kind(region: Region, norm: Node) -> tuple[object, ...]:
    return norm.attrs, *region.types(norm.inputs), *region.types(norm.outputs)


def _moved(graph: Graph, port: str, norms: Mapping[str, Node]) -> Graph:
    before = {r.name: r for r in graph.regions}
    after = _readers(graph, port, norms)
    made = dict(before)
    for name, norm in norms.items():
        made[name] = _without(made[name], port, norm)
    for name, reader in after.items():
        made[name] = _with(made[name], port, before[reader], norms[reader])
    return graph.with_regions(tuple(made.values()))


def _readers(graph: Graph, port: str, norms: Mapping[str, Node]) -> Mapping[str, str]:
    """Return, for each region that makes the port, the region that reads it next, the first time that it runs."""
    makers = {r.name for r in graph.regions for p in r.outputs if p.name == port}
    found: dict[str, str] = {}
    waiting: set[str] = set()
    for name in graph.sequence():
        if name in norms:
            found.update((maker, name) for maker in waiting if maker not in found)
            waiting.clear()
        if name in makers:
            waiting.add(name)
    return found


def _without(region: Region, port: str, norm: Node) -> Region:
    """Read the normed state from a port of its own."""
    at, leaving = RegionRewriter(region), {p.value for p in region.outputs}
    at.values[norm.key] = replace(region.by_id[norm.key], role=Role.PORT, name=port + _NORMED)
    at.erase(norm)
    for node in reversed(_made_for(region, norm)):
        if not any(o in leaving or at.users(o) for o in node.outputs):  # what others read stays
            at.erase(node)
    return at.finish()


def _with(region: Region, port: str, reader: Region, norm: Node) -> Region:
    """Make the normed state where the port is made."""
    at = RegionRewriter(region)
    names = {i: at.add(reader.by_id[i]) for i in _sources(reader, norm)}
    names[norm.inputs[0]] = next(p.value for p in region.outputs if p.name == port)
    at.append(*at.copies([*_made_for(reader, norm), norm], reader, names))
    at.outputs = (*region.outputs, Port(port + _NORMED, names[norm.key]))
    return at.finish()
