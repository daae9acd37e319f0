"""Forward nodes run again in the backward phase: copies in front of what reads their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from ...ir.graph import Node, Phase, Port, Region, Value
from ...ir.ops import Trait, has
from ...ir.records import dataclass
from ..gathers import (
    casts_parameter,
    gathered_once,
    gathered_parameters,
    gathers_parameter,
    gathers_sequence,
    renamed,
)

# The name of a port that hands on a result that was run again.
AGAIN = ".again"


@dataclass(frozen=True, slots=True)
class Rerun:
    """Which forward nodes may run again, which later nodes read their new results, and what else is wanted of them.

    `entering` names the ports, `leaving` the outputs whose tensors come and go recomputed.
    """

    again: Set[int]
    readers: Set[int]
    wanted: Set[int] = frozenset()
    entering: Set[str] = frozenset()
    leaving: Set[str] = frozenset()


def rerun(region: Region, what: Rerun) -> Region:
    """Copy the forward nodes that are needed so that the readers read nothing of what is forgotten."""
    leaving = tuple(p for p in region.outputs if p.name in what.leaving)
    wanted = {i for n in region.nodes if n.key in what.readers for i in n.inputs}
    wanted |= what.wanted | {p.value for p in leaving}
    forward = [n for n in region.nodes if n.phase is Phase.FORWARD]
    gathers = {n.key for n in forward if gathers_parameter(region, n) or gathers_sequence(n)}
    gathers |= {n.key for n in forward if casts_parameter(region, n)}
    clones = needed(forward, what.again | gathers | _exchanged(region, gathers), wanted)
    # Ports for recomputed tensors, one for each forward port of these names.
    old = [v for v in region.values if v.name in what.entering]
    fresh = region.fresh_id  # a layer that is skipped has none
    ports = tuple(
        replace(v, id=fresh + k, storage=fresh + k, name=v.name + AGAIN, saved=False) for k, v in enumerate(old)
    )
    return _with_clones(region, clones, what.readers, ports, leaving) if clones or ports else region


def _exchanged(region: Region, gathers: Set[int]) -> set[int]:
    """Exchanges that only feed such gathers: nothing else keeps their results, so neither does this."""
    exchanges = (n for n in region.nodes if has(n, Trait.EXCHANGES) and n.phase is Phase.FORWARD)
    return {n.key for n in exchanges if {u.key for u in region.users.get(n.key, ())} <= gathers}


def needed(forward: Sequence[Node], again: Set[int], wanted: Set[int]) -> list[Node]:
    """Return, in order, the nodes to run again so that all that is wanted of them is there."""
    missing, chosen = set(wanted), list[Node]()
    for node in reversed(forward):
        if node.key in again and missing.intersection(node.outputs):
            chosen.append(node)
            missing.update(node.inputs)
    chosen.reverse()
    return chosen


def _with_clones(
    region: Region, clones: Sequence[Node], readers: Set[int], ports: tuple[Value, ...], leaving: tuple[Port, ...]
) -> Region:
    """Put copies of forward nodes in front of the first later node that reads one of them."""
    fresh = max(v.id for v in (*region.values, *ports)) + 1
    made = {o: fresh + k for k, o in enumerate(o for c in clones for o in c.outputs)}
    by_name = {v.name: v.id for v in region.values}
    new = made | {by_name[p.name.removesuffix(AGAIN)]: p.id for p in ports}
    rest = gathered_once(
        region, {gathered_parameters(region, c): new[c.key] for c in clones if gathers_parameter(region, c)}
    )
    nodes = [renamed(n, new) if n.key in readers else n for n in rest.nodes]
    first = _first_reader(nodes, set(made.values()))
    return replace(
        region,
        values=(*rest.values, *ports, *(_copy(region.by_id[o], new) for o in made)),
        nodes=(*nodes[:first], *(_cloned(c, new) for c in clones), *nodes[first:]),
        outputs=(*rest.outputs, *(Port(p.name + AGAIN, new[p.value]) for p in leaving)),
    )


def _cloned(node: Node, new: Mapping[int, int]) -> Node:
    outputs = tuple(new[o] for o in node.outputs)
    return replace(renamed(node, new), outputs=outputs, phase=Phase.RECOMPUTE, forward=node.key)


def _first_reader(nodes: Sequence[Node], new: Set[int]) -> int:
    reading = (k for k, n in enumerate(nodes) if new & {*n.inputs})
    return next(reading, sum(n.phase is Phase.FORWARD for n in nodes))


def _copy(v: Value, new: Mapping[int, int]) -> Value:
    return replace(v, id=new[v.id], storage=new.get(v.storage, v.storage), saved=False)
