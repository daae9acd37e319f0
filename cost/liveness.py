"""The largest sum of temporary tensors alive at once in a region, as expressions at every node."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.expr import Expr, as_expr
from ..ir.graph import Graph, Phase, Region, Role

ONCE_A_STEP = (Phase.REDUCE, Phase.OPTIMIZER)


def live_bytes(region: Region) -> list[Expr]:
    """Return, node by node, the bytes of results alive while the node runs.

    Counted are storages made in the region in a phase that runs every micro-batch. Not counted are what is kept for
    the backward phase (that is the activations' account), parameters, caches and running gradient sums.
    """
    nodes = [n for n in region.nodes if n.phase not in ONCE_A_STEP]
    last_read: dict[int, int] = {}
    for step, node in enumerate(nodes):
        for i in node.inputs:
            last_read[region.by_id[i].storage] = step
    leaving = {region.by_id[p.value].storage for p in region.outputs}
    forward = {o for n in nodes if n.phase is Phase.FORWARD for o in n.outputs}
    skipped = _accounted_elsewhere(region)
    alive: dict[int, Expr] = {}
    found: list[Expr] = []
    for step, node in enumerate(nodes):
        for o in node.outputs:
            s = region.by_id[o].storage
            if s not in skipped and region.by_id[s].role is Role.RESULT:
                alive.setdefault(s, region.by_id[s].type.num_bytes)
        found.append(sum(alive.values(), as_expr(0)))
        forward_goes_on = step + 1 < len(nodes) and nodes[step + 1].phase is Phase.FORWARD
        here = leaving if forward_goes_on else leaving - forward
        alive = {s: b for s, b in alive.items() if last_read.get(s, -1) > step or s in here}
    return found


def live_bytes_of(graph: Graph) -> Mapping[str, list[Expr]]:
    """Return for every region the bytes of results alive at its nodes.

    Where layers are recomputed in groups, the new results of the earlier ones of a group wait while the later ones run.
    """
    waiting = _waiting(graph)
    found: dict[str, list[Expr]] = {}
    for region in graph.regions:
        live = live_bytes(region)
        phases = [n.phase for n in region.nodes if n.phase not in ONCE_A_STEP]
        late = [e for e, phase in zip(live, phases, strict=True) if phase is not Phase.FORWARD]
        found[region.name] = [*live, *(e + more for more in waiting.get(region.name, ()) for e in late)]
    return found


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
        if reads[name]:
            found.setdefault(name, set()).add(before)
        before = before + held[name]
    return found


def held_bytes(region: Region) -> Expr:
    """Return the bytes of recomputed results that the backward phase of the region, or the next layer, reads."""
    later = {i for n in region.nodes if n.phase is Phase.BACKWARD for i in n.inputs}
    read = later | {p.value for p in region.outputs}
    storages = {region.by_id[i].storage for i in read if _recomputed(region, i)}
    return sum((region.by_id[s].type.num_bytes for s in sorted(storages) if _recomputed(region, s)), as_expr(0))


def _recomputed(region: Region, value: int) -> bool:
    node = region.producer.get(value)
    return node is not None and node.phase is Phase.RECOMPUTE


def _accounted_elsewhere(region: Region) -> set[int]:
    saved = {v.storage for v in region.values if v.saved}
    sums = {region.by_id[o].storage for n in region.nodes if n.op in ("accumulate", "kv_append") for o in n.outputs}
    return saved | sums
