"""The largest sum of temporary tensors alive at once, as expressions at every node, with the messages beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise, product
from typing import NamedTuple

from ..ir.expr import Expr, as_expr, total
from ..ir.graph import ONCE_A_STEP, Graph, Node, Phase, Region, Role
from ..passes.gathers import gathers_parameter


class Alive(NamedTuple):
    """Bytes alive at once, where a device has all of some regions."""

    regions: frozenset[str]
    num_bytes: Expr


def transient_bytes(graph: Graph) -> Iterator[Alive]:
    """Yield bytes of short-lived tensors while each node runs: of its own region, and of messages beside it.

    With the bytes come the regions that a device must have for that: the node's own, and its neighbours that send.

    Beside a region run the gather of the parameters that the next region reads, and in the backward phase the reduction
    of the gradients that the region before made, as FSDP2 does: it prefetches one unit, and holds the input of a
    reduce-scatter until the next one starts (`post_backward` in torch/distributed/fsdp/_fully_shard).
    """
    for region in graph.regions:
        beside, senders = _beside(graph, region), _senders(region)
        filled = {i for n in senders for i in n.inputs}
        for node, live in zip(_running(region), live_bytes(region), strict=True):
            filling = node in senders or (node.op == "cast" and node.key in filled)
            when = "forward" if node.phase is Phase.FORWARD else "sending" if filling else "backward"
            yield from (Alive(names | {region.name}, live + more) for names, more in beside[when])


def live_bytes(region: Region) -> list[Expr]:
    """Return, node by node, the bytes of results alive while the node runs.

    Counted are storages made in the region in a phase that runs every micro-batch. Not counted are what is kept for
    the backward phase (that is the activations' account), parameters, caches and running gradient sums. Parameters
    that are gathered together are freed together.
    """
    nodes = _running(region)
    last_read = _last_read(region, nodes)
    leaving = {region.by_id[p.value].storage for p in region.outputs}
    forward = {o for n in nodes if n.phase is Phase.FORWARD for o in n.outputs}
    skipped = _accounted_elsewhere(region)
    alive: dict[int, Expr] = {}
    found: list[Expr] = []
    for step, node in enumerate(nodes):
        for o in node.outputs:
            s = region.by_id[o].storage
            if s not in skipped and region.by_id[s].role is Role.RESULT:
                alive.setdefault(s, _held_bytes(region, s))
        found.append(sum(alive.values(), as_expr(0)))
        forward_goes_on = step + 1 < len(nodes) and nodes[step + 1].phase is Phase.FORWARD
        here = leaving if forward_goes_on else leaving - forward
        alive = {s: b for s, b in alive.items() if last_read.get(s, -1) > step or s in here}
    return found


def _held_bytes(region: Region, value: int) -> Expr:
    """What passes by block by block is never there whole: a rank holds the block it works on and the next one."""
    made = region.producer.get(value)
    if made is not None and made.op == "ring_gather":
        return region.by_id[made.inputs[made.outputs.index(value)]].type.num_bytes * 2
    users = region.users.get(value, ())
    if len(users) == 1 and users[0].op == "ring_scatter":
        return region.by_id[users[0].outputs[users[0].inputs.index(value)]].type.num_bytes * 2
    return region.by_id[value].type.num_bytes


def _last_read(region: Region, nodes: list[Node]) -> dict[int, int]:
    """The number of the last node that reads each storage, or reads something of the same unit."""
    found: dict[int, int] = {}
    for step, node in enumerate(nodes):
        for i in node.inputs:
            found[region.by_id[i].storage] = step
    for node in nodes:
        if gathers_parameter(region, node):
            unit = max(found.get(o, -1) for o in node.outputs)
            found.update(dict.fromkeys(node.outputs, unit))
    return found


def _running(region: Region) -> list[Node]:
    return [n for n in region.nodes if n.phase not in ONCE_A_STEP]


def _accounted_elsewhere(region: Region) -> set[int]:
    saved = {v.storage for v in region.values if v.saved}
    sums = {region.by_id[o].storage for n in region.nodes if n.op in ("accumulate", "kv_append") for o in n.outputs}
    return saved | sums


def _beside(graph: Graph, region: Region) -> Mapping[str, list[Alive]]:
    """Bytes of messages beside a region's nodes, for each pair of neighbours; while it sends, only gathers are."""
    pairs = _neighbours(graph)
    later = [graph.region(b) for a, b in pairs if a == region.name]
    earlier = [graph.region(a) for a, b in pairs if b == region.name]
    forward = _messages(region, ((r, _gathered(r, forward=True)) for r in later))
    gathers = _messages(region, ((r, _gathered(r, forward=False)) for r in earlier))
    reductions = _messages(region, ((r, _reduced(r)) for r in later))
    backward = [Alive(a | b, x + y) for (a, x), (b, y) in product(gathers, reductions)]
    return {"forward": forward, "backward": backward, "sending": gathers}


def _messages(region: Region, found: Iterable[tuple[Region, Expr]]) -> list[Alive]:
    """Messages of neighbours; none at all where a device may have no neighbour that sends one."""
    some = sorted((Alive(frozenset({r.name}), e) for r, e in found if e != 0), key=str)
    return some if any(names <= {region.name} for names, _ in some) else [Alive(frozenset(), as_expr(0)), *some]


def _neighbours(graph: Graph) -> set[tuple[str, str]]:
    """Pairs of regions of which the second runs right behind the first in the forward phase."""
    runs = [run for run in graph.schedule if run.count]
    found = {pair for run in runs for pair in zip(run.regions, run.regions[1:], strict=False)}
    found |= {(run.regions[-1], run.regions[0]) for run in runs if run.count > 1}
    return found | {(a.regions[-1], b.regions[0]) for a, b in pairwise(runs)}


def _gathered(region: Region, forward: bool) -> Expr:
    """Bytes of the parameters that a region gathers in a phase and frees behind it."""
    nodes = [n for n in _running(region) if (n.phase is Phase.FORWARD) is forward and gathers_parameter(region, n)]
    values = (region.by_id[o] for n in nodes for o in n.outputs)
    return total(v.type.num_bytes for v in values if not v.saved)


def _reduced(region: Region) -> Expr:
    """Bytes of the gradients that a region sends in every micro-batch."""
    return total(region.by_id[i].type.num_bytes for n in _senders(region) for i in n.inputs)


def _senders(region: Region) -> list[Node]:
    """What scatters gradients in every micro-batch."""
    summed = {i for n in region.nodes if n.op == "accumulate" for i in n.inputs}
    return [n for n in _running(region) if n.op == "reduce_scatter" and summed.intersection(n.outputs)]
