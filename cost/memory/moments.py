"""Bytes alive at every moment of a micro-batch: of a region's own nodes, and of what its neighbours have in flight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, product
from typing import NamedTuple

from ...ir.graph import Graph, Node, Phase, Region, Role
from ...ir.ops import Trait, has
from ...ir.sizes.expr import Expr, as_expr, total
from ...passes.gathers import gathers_parameter
from .liveness import live_bytes, received_gradients, running

NONE: frozenset[str] = frozenset()


class Alive(NamedTuple):
    """Bytes alive while a node of a region runs, on a device that has all of some regions."""

    region: str
    regions: frozenset[str]
    num_bytes: Expr


class _Beside(NamedTuple):
    """Bytes beside a region, where a device has all of some regions."""

    regions: frozenset[str]
    num_bytes: Expr


class _Messages(NamedTuple):
    """What may be beside a region in each phase; while it sends, in the backward phase, only gathers are."""

    forward: tuple[_Beside, ...]
    backward: tuple[_Beside, ...]
    sending: tuple[_Beside, ...]


def moments(graph: Graph) -> Iterator[Alive]:
    """Yield bytes alive while each node runs, kept or not: see `moments_by_node`."""
    return (alive for _, found in _by_region(graph) for _, alive in found)


def moments_by_node(graph: Graph) -> Iterator[tuple[Node, Alive]]:
    """Yield every node with the bytes alive while it runs, kept or not: of its own region, and of messages beside it.

    With the bytes come the regions that a device must have for that: the node's own, and its neighbours that send.

    Beside a region run the gather of the parameters that the next region reads, and in the backward phase the reduction
    of the gradients that the region before made, as FSDP2 does: it prefetches one unit, and holds the input of a
    reduce-scatter until the next one starts (`post_backward` in torch/distributed/fsdp/_fully_shard). Where layers are
    recomputed in groups, the new results of the earlier ones of a group wait while the later ones run.
    """
    return ((nodes[k], alive) for nodes, found in _by_region(graph) for k, alive in found)


def _by_region(graph: Graph) -> Iterator[tuple[Sequence[Node], Sequence[tuple[int, Alive]]]]:
    """Yield the running nodes of each region, and the bytes alive by their places."""
    received, waiting = received_gradients(graph), _waiting(graph)
    for region in graph.regions:
        before = frozenset(waiting.get(region.name, {as_expr(0)}))
        yield running(region), _alive(region, received, _beside(graph, region), before)


# Families of plans share most of their regions, and of these the neighbours often differ in nothing that is sent.
@lru_cache(maxsize=512)
def _alive(
    region: Region, received: frozenset[str], beside: _Messages, before: frozenset[Expr]
) -> tuple[tuple[int, Alive], ...]:
    """Bytes alive while each running node of a region runs, by its place."""
    senders = _senders(region)
    filled = {i for n in senders for i in n.inputs}
    found: list[tuple[int, Alive]] = []
    for k, (node, live) in enumerate(zip(running(region), live_bytes(region, received), strict=True)):
        filling = node in senders or (has(node, Trait.CASTS) and node.key in filled)
        forward = node.phase is Phase.FORWARD
        there = beside.forward if forward else beside.sending if filling else beside.backward
        for (names, more), held in product(there, {as_expr(0)} if forward else before):
            found.append((k, Alive(region.name, names | {region.name}, live + more + held)))
    return tuple(found)


def _waiting(graph: Graph) -> Mapping[str, set[Expr]]:
    """For each region, what the layers before it in its group have recomputed and hold."""
    handed = {p.name for r in graph.regions for p in r.outputs if _recomputed(r, p.value)}
    if not handed:
        return {}
    held = {r.name: held_bytes(r) for r in graph.regions}
    reads = {r.name: any(v.name in handed for v in r.of_role(Role.PORT)) for r in graph.regions}
    found: dict[str, set[Expr]] = {}
    before = as_expr(0)
    for name in graph.sequence():
        before = before if reads[name] else as_expr(0)
        found.setdefault(name, set()).add(before)
        before = before + held[name]
    return found


def held_bytes(region: Region) -> Expr:
    """Return the bytes of recomputed results that the backward phase of the region, or the next layer, reads."""
    later = {i for n in region.nodes if n.phase is Phase.BACKWARD for i in n.inputs}
    read = later | {p.value for p in region.outputs}
    storages = {region.by_id[i].storage for i in read if _recomputed(region, i)}
    return total(region.by_id[s].type.num_bytes for s in sorted(storages) if _recomputed(region, s))


def _recomputed(region: Region, value: int) -> bool:
    node = region.producer.get(value)
    return node is not None and node.phase is Phase.RECOMPUTE


def _beside(graph: Graph, region: Region) -> _Messages:
    """Bytes of messages beside a region's nodes, for each pair of neighbours."""
    # Pairs of regions of which the second runs right behind the first in the forward phase.
    runs = [run for run in graph.schedule if run.count]
    found = {pair for run in runs for pair in zip(run.regions, run.regions[1:], strict=False)}
    found |= {(run.regions[-1], run.regions[0]) for run in runs if run.count > 1}
    pairs = found | {(a.regions[-1], b.regions[0]) for a, b in pairwise(runs)}
    later = tuple(graph.region(b) for a, b in sorted(pairs) if a == region.name)
    earlier = tuple(graph.region(a) for a, b in sorted(pairs) if b == region.name)
    return _beside_neighbours(region, later, earlier)


# Families of plans share most of their regions: each is looked at once with the same neighbours.
@lru_cache(maxsize=512)
def _beside_neighbours(region: Region, later: tuple[Region, ...], earlier: tuple[Region, ...]) -> _Messages:
    """Bytes of messages beside a region's nodes, by the regions that run right behind it and right before it."""
    forward = _messages(region, ((r, _gathered(r, forward=True)) for r in later))
    gathers = _messages(region, ((r, _gathered(r, forward=False)) for r in earlier))
    # Bytes of the gradients that a region sends in every micro-batch.
    reductions = _messages(
        region, ((r, total(r.by_id[i].type.num_bytes for n in _senders(r) for i in n.inputs)) for r in later)
    )
    backward = (_Beside(a | b, x + y) for (a, x), (b, y) in product(gathers, reductions))
    return _Messages(tuple(forward), tuple(backward), tuple(gathers))


def _messages(region: Region, found: Iterable[tuple[Region, Expr]]) -> list[_Beside]:
    """Messages of neighbours; none at all where a device may have no neighbour that sends one."""
    some = sorted((_Beside(frozenset({r.name}), e) for r, e in found if e != 0), key=str)
    return some if any(names <= {region.name} for names, _ in some) else [_Beside(NONE, as_expr(0)), *some]


def _gathered(region: Region, forward: bool) -> Expr:
    """Bytes of the parameters that a region gathers in a phase and frees behind it."""
    nodes = [n for n in running(region) if (n.phase is Phase.FORWARD) is forward and gathers_parameter(region, n)]
    values = (region.by_id[o] for n in nodes for o in n.outputs)
    return total(v.type.num_bytes for v in values if not v.saved)


def _senders(region: Region) -> list[Node]:
    """What scatters gradients in every micro-batch."""
    summed = {i for n in region.nodes if has(n, Trait.ACCUMULATES) for i in n.inputs}
    return [n for n in running(region) if has(n, Trait.SCATTERS) and summed.intersection(n.outputs)]
