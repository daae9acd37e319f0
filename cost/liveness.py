"""The largest sum of temporary tensors alive at once in a region, as expressions at every node."""

from __future__ import annotations

from ..ir.expr import Expr, as_expr
from ..ir.graph import Phase, Region, Role

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
    skipped = _accounted_elsewhere(region)
    alive: dict[int, Expr] = {}
    found: list[Expr] = []
    for step, node in enumerate(nodes):
        for o in node.outputs:
            s = region.by_id[o].storage
            if s not in skipped and region.by_id[s].role is Role.RESULT:
                alive.setdefault(s, _held_bytes(region, s))
        found.append(sum(alive.values(), as_expr(0)))
        alive = {s: b for s, b in alive.items() if last_read.get(s, -1) > step or s in leaving}
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


def _accounted_elsewhere(region: Region) -> set[int]:
    saved = {v.storage for v in region.values if v.saved}
    sums = {region.by_id[o].storage for n in region.nodes if n.op in ("accumulate", "kv_append") for o in n.outputs}
    return saved | sums
