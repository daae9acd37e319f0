"""A sharded region beside the region it was made of: every node has its counterpart, and its placements follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from ...ir.graph import Graph, Node, Region, Role
from ...ir.ops import OpCall, Trait, call_of, has
from ...ir.ops.index_map import SAMPLE_AXES
from ...ir.placement import MeshAxis
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, product, symbol
from .check import is_conversion, node_complaints
from .conversions import global_dims
from .numbering import Numbers, balanced, dims_of, key_of, source_key

# What changes the precision or the place of a tensor and none of its numbers, with no counterpart before.


@dataclass(frozen=True, slots=True)
class ProofFault:
    """What was not proven: the region, the node (or port, or parameter), and both placements in words."""

    region: str
    where: str
    what: str

    def __str__(self) -> str:
        """Print on one line."""
        return f"{self.region}: {self.where}: {self.what}"


@dataclass
class Walk:
    """One region under proof: `stands` maps each value to the value of the source that it is a part of, or a whole."""

    source: Numbers
    region: Region
    stands: dict[int, int] = field(default_factory=dict)
    faults: list[ProofFault] = field(default_factory=list)
    proven: int = 0

    def fault(self, where: str, what: str) -> None:
        """Note what was not proven."""
        self.faults.append(ProofFault(self.region.name, where, what))


def spoken(node: Node) -> str:
    """Return how a fault names a node."""
    return f"%{node.key} {node.op} at '{node.scope or 'the top'}' ({node.phase})"


def whole_source(graph: Graph, axes: tuple[MeshAxis, ...]) -> Mapping[str, Numbers]:
    """Return the regions before sharding, their batch as that of all replicas together."""
    env: dict[str, Dim] = {"batch": product([symbol("mbs"), *(symbol(a) for a in axes if a in SAMPLE_AXES)])}
    found = {}
    for region in graph.regions:
        values = tuple(replace(v, type=v.type.substitute(env)) for v in region.values)
        found[region.name] = Numbers.of(replace(region, values=values))
    return found


def refine(source: Numbers, region: Region) -> Walk:
    """Walk a sharded region along its source; faults say where it is not that, or not placed as its ops make it."""
    walk = Walk(source, region)
    _match_sources(walk)
    for node in region.nodes:
        _match(walk, node)
    _match_ends(walk)
    return walk


def _match_sources(walk: Walk) -> None:
    """Parameters, inputs, caches, constants and ports by their names; each must be whole or in shards."""
    for v in walk.region.values:
        if v.role is Role.RESULT:
            continue
        found = walk.source.sources.get(source_key(v))
        if found is None:
            walk.fault(f"{v.role} '{v.name}'", "the model has none of this name")
        else:
            walk.stands[v.id] = found
            walk.faults += _sizes(walk, v.id, found)


def _sizes(walk: Walk, ident: int, found: int) -> Iterator[ProofFault]:
    """A rank's part must have its share of the dims of the whole."""
    v, whole = walk.region.by_id[ident], walk.source.region.by_id[found]
    if balanced(global_dims(v)) != balanced(whole.type.dims):
        lies = ", ".join(f"{a}={p}" for a, p in v.placements)
        yield ProofFault(walk.region.name, f"%{ident} '{v.name}'", f"{v.type} in <{lies}> is no part of {whole.type}")


def _match(walk: Walk, node: Node) -> None:
    if missing := [i for i in node.inputs if i not in walk.stands]:
        walk.fault(spoken(node), f"reads %{missing[0]}, which stands for nothing of the model")
        return
    call, found = _counterpart(walk, node)
    if call is None:
        walk.fault(spoken(node), "computes what the model does not")
        return
    walk.stands.update(zip(node.outputs, found, strict=True))
    said = list(node_complaints(walk.region, node, call))
    for what in said:
        walk.fault(spoken(node), what)
    walk.proven += not said


def _counterpart(walk: Walk, node: Node) -> tuple[OpCall | None, tuple[int, ...]]:
    """The call with the types of all ranks, and what its results stand for."""
    inputs = [walk.stands[i] for i in node.inputs]
    if is_conversion(walk.region, node):
        return call_of(walk.region, node), tuple(inputs)
    dims = dims_of(walk.region, node, whole=True)
    source = walk.source.find(key_of(walk.region, node, inputs, dims, whole=True))
    if source is not None:
        call = call_of(walk.source.region, source)
        return replace(call, attrs=node.attrs), tuple(walk.source.number[o] for o in source.outputs)
    if has(node, Trait.SAME_VALUES) and len(inputs) == 1:
        return call_of(walk.region, node), tuple(inputs) * len(node.outputs)
    return None, ()


def _match_ends(walk: Walk) -> None:
    """What a region hands on, and the gradients of its parameters, are those of the model."""
    number, source = walk.source.number, walk.source.region
    wanted = {p.name: number[p.value] for p in source.outputs}
    given = {p.name: walk.stands.get(p.value) for p in walk.region.outputs}
    for name in wanted.keys() | given.keys():
        if wanted.get(name) != given.get(name):
            walk.fault(f"out '{name}'", "is another value than the model's")
    grads = {number[p]: number[g] for p, g in source.grads}
    made = {walk.stands[p]: walk.stands.get(g) for p, g in walk.region.grads if p in walk.stands}
    for param in grads.keys() | made.keys():
        if param not in grads or made.get(param) != grads[param]:
            walk.fault(f"gradient of '{source.by_id[param].name}'", "is another value than the model's")
