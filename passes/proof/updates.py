"""The update of parameters: each by its own gradient, and whole again on every rank that reads it."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.graph import Node, Region
from ...ir.ops import Trait, has
from .refine import Fault, spoken

_VIEWS = (Trait.TAKES_RANGE, Trait.CASTS, Trait.COPIES, Trait.TO_HOST, Trait.FROM_HOST)


def update_faults(region: Region) -> Iterator[Fault]:
    """Yield parameters that are updated by another one's gradient, not at all, or twice; and those left in shards."""
    steps = [n for n in region.nodes if has(n, Trait.UPDATES)]
    pairs = set(region.grads)
    updated = [pair for n in steps for pair in _pairs(region, n)]
    for param, grad in updated:
        if (param, grad) not in pairs:
            name = region.by_id[param].name
            yield Fault(region.name, f"update of '{name}'", f"reads %{grad}, which is not its gradient")
    for param, _ in region.grads if steps else ():
        times = sum(p == param for p, _ in updated)
        if times != 1:
            yield Fault(region.name, f"update of '{region.by_id[param].name}'", f"runs {times} times")
    for node in steps:
        yield from _left_in_shards(region, node)


def _pairs(region: Region, node: Node) -> Iterator[tuple[int, int]]:
    """Parameters and gradients of an update, behind what brings them there."""
    half = len(node.inputs) // 2
    grads = {g for _, g in region.grads}
    for p, g in zip(node.inputs[:half], node.inputs[half:], strict=True):
        yield _back(region, p, set()), _back(region, g, grads)


def _back(region: Region, value: int, ends: set[int]) -> int:
    """Go back through views and copies to one of some values, or to the first."""
    while value not in ends and (node := region.producer.get(value)) is not None and has(node, *_VIEWS):
        value = node.inputs[node.outputs.index(value)]
    return value


def _left_in_shards(region: Region, node: Node) -> Iterator[Fault]:
    """An updated shard of a parameter that rests whole must be gathered."""
    for given, made in zip(node.inputs, node.outputs, strict=False):
        param = region.by_id[_back(region, given, set())]
        reached, todo = {made}, [made]
        while todo:
            for user in region.users.get(todo.pop(), ()):
                new = [o for i, o in zip(user.inputs, user.outputs, strict=False) if i in reached and o not in reached]
                reached |= set(new)
                todo += new
        if all(region.by_id[r].placements != param.placements for r in reached):
            yield Fault(region.name, spoken(node), f"leaves '{param.name}' in shards, where it rests whole")
