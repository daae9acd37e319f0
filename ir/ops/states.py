"""What stays on a rank between steps, caches and parameters, and the collectives that may move it within one."""

from __future__ import annotations

from collections.abc import Iterator

from ..graph import Node, Phase, Region, Role, Value
from ..placement import EP, TP, MeshAxis, Shard
from . import Trait, has
from .collectives import CollectiveAttrs

_IN_STEP = (Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE)
# What hands on the entries of its first input: where they lie, or copied into another type or layout.
_SAME_ENTRIES = (Trait.VIEW, Trait.SAME_VALUES, Trait.QUANTISES, Trait.APPENDS)


def moved_states(region: Region) -> Iterator[tuple[Node, Value]]:
    """Yield each collective inside a step that moves a cache or a parameter, and what it moves.

    State decides and tokens follow: a token's keys are sent to the cache, never the cache to the keys. The one
    exception are gathers of parameters that rest in shards alike on all ranks of an axis (ZeRO stage 3); what is
    gathered once a step or by the optimizer (stages 1 and 2) runs in phases of its own.
    """
    for node in region.nodes:
        if not isinstance(node.attrs, CollectiveAttrs) or node.phase not in _IN_STEP:
            continue
        for value in map(region.by_id.__getitem__, node.inputs):
            state = _state_behind(region, value)
            if state is not None and not _gathers_shards(region, node, state):
                yield node, state


def _state_behind(region: Region, value: Value) -> Value | None:
    """Return the cache or parameter that a value shows entries of."""
    while value.role is Role.RESULT:
        node = region.producer[value.id]
        if not has(node, *_SAME_ENTRIES):
            return None
        value = region.by_id[node.inputs[0]]
    return value if value.role in (Role.CACHE, Role.PARAM) else None


def _gathers_shards(region: Region, node: Node, state: Value) -> bool:
    """Whether a node makes whole what ZeRO keeps in shards: over axes whose ranks would all have the same parameter.

    Those of `ep` have all but experts, of which each has its own; without `ep`, those of `tp` may have experts whole.
    """
    if state.role is not Role.PARAM or not has(node, Trait.GATHERS) or not isinstance(node.attrs, CollectiveAttrs):
        return False
    places = dict(state.placements)
    own = {TP} if not is_expert(region, state) else {EP} if EP in places else set[MeshAxis]()
    axes = node.attrs.axis.axes
    return own.isdisjoint(axes) and all(places.get(a) == Shard(0) for a in axes)


def is_expert(region: Region, v: Value) -> bool:
    """Whether a parameter holds one entry an expert, all of which, or a range of which, a bank reads."""
    todo = [v.id]
    while todo:
        value = todo.pop()
        for node in region.users.get(value, ()):
            if has(node, Trait.HOLDS_EXPERTS):
                return True
            if isinstance(node.attrs, CollectiveAttrs) and node.phase in _IN_STEP:
                todo += (o for i, o in zip(node.inputs, node.outputs, strict=True) if i == value)
            elif has(node, Trait.TAKES_RANGE, Trait.QUANTISES):
                todo += node.outputs
    return False
