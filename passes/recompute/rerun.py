"""Forward nodes run again in the backward phase: copies in front of what reads their results."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from ...ir.editing.rewriter import RegionRewriter
from ...ir.graph import Node, Phase, Port, Region
from ...ir.ops import Trait, has
from ...ir.records import dataclass
from ..gathers import (
    casts_parameter,
    gather_once,
    gathered_parameters,
    gathers_parameter,
    gathers_sequence,
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
    at, names = RegionRewriter(region), dict[int, int]()
    for v in (v for v in region.values if v.name in what.entering):  # a layer that is skipped has none
        names[v.id] = at.add(replace(v, name=v.name + AGAIN, saved=False))
    copies = at.copies(clones, region, names)
    if not names:
        return region
    copies = [replace(c, phase=Phase.RECOMPUTE, forward=n.key) for c, n in zip(copies, clones, strict=True)]
    for node in (n for n in region.nodes if n.key in what.readers):
        at.rewire(node, names)
    gather_once(at, {gathered_parameters(region, c): names[c.key] for c in clones if gathers_parameter(region, c)})
    first = at.first(user for c in copies for o in c.outputs for user in at.users(o))
    if first is not None:
        at.insert_before(first, *copies)
    elif copies:
        at.insert_after(forward[-1], *copies)
    at.outputs = (*region.outputs, *(Port(p.name + AGAIN, names[p.value]) for p in leaving))
    return at.finish()


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
