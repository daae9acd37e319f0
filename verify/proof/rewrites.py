"""The lowered graph beside the sharded one: what later passes repeat, join and append, and what they leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import field

from ...ir.graph import Node, Phase, Region, Role
from ...ir.ops import OpClass, Trait, call_of, has
from ...ir.ops.tensors.pointwise import ElementwiseAttrs
from ...ir.records import dataclass
from .check import is_conversion, node_complaints
from .numbering import Key, Numbers, balanced, dims_of, key_of, parts, source_key
from .refine import Walk, spoken

# Ops that passes put in behind the graph's own ends: an update of parameters and its messages, traffic between stages.
APPENDED = (Trait.UPDATES, Trait.SENDS, Trait.RECEIVES, Trait.TO_HOST, Trait.FROM_HOST)


@dataclass
class Rewritten(Walk):
    """A walk of the lowered region.

    `lenient`: a pass has rewritten ops, and a node without a counterpart may be its work. `anew` are such nodes, of
    which placements alone are proven; `unknown` are values that stand for nothing of the sharded graph.
    """

    lenient: bool = False
    seen: dict[Key, list[int]] = field(default_factory=dict)
    anew: list[str] = field(default_factory=list)
    unknown: set[int] = field(default_factory=set)


def follow(source: Numbers, region: Region, lenient: bool = False) -> Rewritten:
    """Walk a lowered region along the sharded one; ranks hold the same parts, so that dims and placements are equal."""
    walk = Rewritten(source, region, lenient=lenient)
    for v in region.values:
        found = source.sources.get(source_key(v)) if v.role is not Role.RESULT else None
        if found is not None:
            walk.stands[v.id] = found
            _same_place(walk, v.id, found, f"{v.role} '{v.name}'")
        elif v.role is not Role.RESULT:
            walk.unknown.add(v.id)
    for node in (p for n in region.nodes for p in parts(n)):
        _match(walk, node)
    _match_ends(walk)
    return walk


def _match(walk: Rewritten, node: Node) -> None:
    if node.phase is Phase.OPTIMIZER or has(node, *APPENDED):
        _alone(walk, node)
        return
    if any(i in walk.unknown for i in node.inputs):
        _anew(walk, node, "reads what the sharded graph does not have")
        return
    inputs = [walk.stands[i] for i in node.inputs]
    dims = dims_of(walk.region, node, whole=False)
    key = key_of(walk.region, node, inputs, dims, whole=False)
    found = walk.source.find(key)
    if found is None and key in walk.seen:  # what is run again is what it was
        _bind(walk, node, walk.seen[key])
    elif found is not None:
        _bind(walk, node, [walk.source.number[o] for o in found.outputs])
    elif has(node, Trait.SAME_VALUES) and len(inputs) == 1 and not is_conversion(walk.region, node):
        _bind(walk, node, inputs * len(node.outputs))
    elif (chain := _chain(walk, node, inputs)) is not None:
        walk.seen[key] = chain
        _bind(walk, node, chain)
    else:
        _anew(walk, node, "has no counterpart in the sharded graph")


def _alone(walk: Rewritten, node: Node) -> None:
    """A node that a pass wrote behind the graph's ends: its placements follow from its op alone."""
    said = list(node_complaints(walk.region, node, call_of(walk.region, node)))
    for what in said:
        walk.fault(spoken(node), what)
    walk.proven += not said
    walk.unknown.update(node.outputs)


def _anew(walk: Rewritten, node: Node, why: str) -> None:
    """A node in the place of others: a fault, unless a pass rewrites ops; then what keeps its id is what it was."""
    if not walk.lenient:
        walk.fault(spoken(node), why)
    # Whether this is a softmax of a loss in two steps, whose statistics over parts of the vocabulary follow behind.
    near = [*walk.region.users.get(node.key, ()), *(walk.region.producer.get(i) for i in node.inputs)]
    is_loss_step = has(node, Trait.SOFTMAX) and any(n is not None and has(n, OpClass.LOSS) for n in near)
    said = [] if is_loss_step else list(node_complaints(walk.region, node, call_of(walk.region, node)))
    for what in said:
        walk.fault(spoken(node), what)
    walk.anew.append(spoken(node))
    for o in node.outputs:
        before = walk.source.region.by_id.get(o)
        if o in walk.source.number and before is not None and before.type.dims == walk.region.by_id[o].type.dims:
            walk.stands[o] = walk.source.number[o]
            _same_place(walk, o, walk.stands[o], spoken(node))
        else:
            walk.unknown.add(o)


def _bind(walk: Rewritten, node: Node, found: Sequence[int]) -> None:
    before = len(walk.faults)
    for o, source in zip(node.outputs, found, strict=True):
        walk.stands[o] = source
        _same_place(walk, o, source, spoken(node))
    walk.proven += len(walk.faults) == before


def _same_place(walk: Rewritten, ident: int, source: int, where: str) -> None:
    given, want = walk.region.by_id[ident], walk.source.region.by_id[source]
    placements = tuple((a, p) for a, p in given.placements if want.placement(a) is not None)
    if given.placements and placements != want.placements:
        lies, lay = (", ".join(f"{a}={p}" for a, p in v.placements) for v in (given, want))
        walk.fault(where, f"lies <{lies}>, in the sharded graph <{lay}>")
    if balanced(given.type.dims) != balanced(want.type.dims):
        walk.fault(where, f"is {given.type}, in the sharded graph {want.type}")


def _chain(walk: Rewritten, node: Node, inputs: Sequence[int]) -> list[int] | None:
    """What the results of a kernel of several pointwise functions are: ends of chains from these inputs, all used."""
    if not isinstance(node.attrs, ElementwiseAttrs) or len(node.attrs.fns) < 2:
        return None
    source, wanted = walk.source, Counter(node.attrs.fns)
    reached = _reached(source, set(inputs))
    kept = [o for o in node.outputs if o in reached]
    for ends in [kept, *([end] for end in reached)] if kept else [[end] for end in reached]:
        cone, leaves = _cone(source, ends, set(inputs))
        fns = Counter(f for n in cone for f in (n.attrs.fns if isinstance(n.attrs, ElementwiseAttrs) else (n.op,)))
        if fns == wanted and leaves == set(inputs):
            found = _outputs(walk, node, ends[0], [o for n in cone for o in n.outputs])
            if found is not None:
                return [source.number[f] for f in found]
    return None


def _reached(source: Numbers, known: set[int]) -> list[int]:
    """What pointwise nodes make of values with some numbers, in running order."""
    have, made = set(known), list[int]()
    for n in source.region.nodes:
        if has(n, Trait.POINTWISE, Trait.COPIES) and all(source.number[i] in have for i in n.inputs):
            new = [o for o in n.outputs if source.number[o] not in known]
            have |= {source.number[o] for o in new}
            made += new
    return made


def _cone(source: Numbers, ends: Sequence[int], leaves: set[int]) -> tuple[list[Node], set[int]]:
    """The nodes between values with some numbers and what is made of them, and which of these numbers it needs."""
    todo, nodes, used = list(ends), dict[int, Node](), set[int]()
    while todo:
        value = todo.pop()
        if source.number[value] in leaves:
            used.add(source.number[value])
            continue
        node = source.region.producer[value]
        if node.key not in nodes:
            nodes[node.key] = node
            todo += node.inputs
    return list(nodes.values()), used


def _outputs(walk: Rewritten, node: Node, end: int, inner: Sequence[int]) -> list[int] | None:
    """Results in order: those that keep their ids, the end, and others told by their types."""
    found: list[int] = []
    for o in node.outputs:
        kind = walk.region.by_id[o].type
        alike = [i for i in inner if i not in found and walk.source.region.by_id[i].type == kind]
        chosen = o if o in inner else end if not found and end in alike else alike[0] if len(alike) == 1 else None
        if chosen is None:
            return None
        found.append(chosen)
    return found


def _match_ends(walk: Rewritten) -> None:
    """Ports and gradients are those of the sharded graph, unless a pass wrote what they come from."""
    source, number = walk.source.region, walk.source.number
    wanted = {p.name: number[p.value] for p in source.outputs}
    for port in walk.region.outputs:
        if port.name in wanted and port.value not in walk.unknown and walk.stands.get(port.value) != wanted[port.name]:
            walk.fault(f"out '{port.name}'", "is another value than in the sharded graph")
    missing = wanted.keys() - {p.name for p in walk.region.outputs}
    for name in missing:
        walk.fault(f"out '{name}'", "is handed on by the sharded graph, and not any more")
    grads = {number[p]: number[g] for p, g in source.grads}
    for param, grad in walk.region.grads:
        if grad not in walk.unknown and param in walk.stands and walk.stands.get(grad) != grads.get(walk.stands[param]):
            name = walk.region.by_id[param].name
            walk.fault(f"gradient of '{name}'", "is another value than in the sharded graph")
    if len(walk.region.grads) != len(source.grads):
        walk.fault(
            "gradients", f"{len(walk.region.grads)} parameters have one, {len(source.grads)} in the sharded graph"
        )


__all__ = ["APPENDED", "Rewritten", "follow"]
