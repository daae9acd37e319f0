"""Chains of pointwise ops become one kernel each: inputs are read once, intermediates stay on the chip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from ...ir.graph import Graph, Node, Region
from ...ir.meaning import ChainLink, cast_to, chained
from ...ir.ops import Trait, has
from ...ir.ops.tensors.pointwise import ElementwiseAttrs
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim
from ..base import Pass, PassResult, rewritten

_ALSO = {"cast": ("cast",), "copy": ("copy",)}


@dataclass(frozen=True, slots=True)
class Fuse(Pass):
    """Fuse pointwise producers into pointwise consumers of the same shape.

    A producer whose result is also needed elsewhere (kept for backward, or read by another op later) still writes
    it; the consumer then no longer reads it back.
    """

    name: ClassVar[str] = "fuse"

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite every region to a fixed point."""
        return rewritten(graph, _fused)


def _fused(region: Region) -> Region:
    order = list(region.nodes)
    position = {n.key: k for k, n in enumerate(order)}
    # Values that leave the region, or are gradients, or own a storage that somebody else views.
    views = {v.storage for v in region.values if v.storage != v.id}
    needed = {p.value for p in region.outputs} | {g for _, g in region.grads} | views
    readers = {i: [position[n.key] for n in nodes] for i, nodes in region.users.items()}
    maker = {o: k for k, n in enumerate(order) for o in n.outputs}
    alive: list[Node | None] = list(order)
    for k in range(len(order)):
        _absorb_producers(region, k, alive, maker, readers, needed)
    kept = [n for n in alive if n is not None]
    if len(kept) == len(order):
        return region
    home = {order[k].key: _kernel(k, order, alive, maker) for k in range(len(order)) if alive[k] is None}
    nodes = tuple(_relinked(n, home) for n in kept)
    made = {o for n in nodes for o in n.outputs}
    gone = {o for n in order for o in n.outputs} - made
    values = tuple(replace(v, storage=v.id) if v.storage in gone else v for v in region.values if v.id not in gone)
    return replace(region, values=values, nodes=nodes)


def _kernel(k: int, order: Sequence[Node], alive: Sequence[Node | None], maker: Mapping[int, int]) -> Node:
    """The kernel that swallowed node k, or the last of those that swallowed one another."""
    while (found := alive[k]) is None:
        k = maker[order[k].key]
    return found


def _relinked(node: Node, home: Mapping[int, Node]) -> Node:
    """A backward node of a fused forward node belongs to the kernel that swallowed it."""
    kernel = home.get(node.forward) if node.forward is not None else None
    return node if kernel is None else replace(node, forward=kernel.key)


def _absorb_producers(
    region: Region,
    k: int,
    alive: list[Node | None],
    maker: dict[int, int],
    readers: dict[int, list[int]],
    needed: set[int],
) -> None:
    """Pull the producers of node k into it, again and again, until none fits."""
    while True:
        consumer = alive[k]
        if consumer is None or _fns(consumer) is None:
            return
        found = next(
            (m for i in consumer.inputs if (m := _candidate(region, i, k, alive, maker, readers)) is not None), None
        )
        if found is None:
            return
        producer = alive[found]
        assert producer is not None
        alive[k] = _joined(region, producer, consumer, k, readers, needed)
        alive[found] = None
        maker.update(dict.fromkeys((*producer.outputs, *consumer.outputs), k))
        for i in producer.inputs:
            readers[i] = sorted({k if r == found else r for r in readers[i]})
        for o in producer.outputs:  # what stays inside of the kernel is not read from memory any more
            readers[o] = [r for r in readers.get(o, ()) if r != k]


def _candidate(
    region: Region, value: int, k: int, alive: list[Node | None], maker: dict[int, int], readers: dict[int, list[int]]
) -> int | None:
    m = maker.get(value)
    producer, consumer = (alive[m] if m is not None else None), alive[k]
    if m is None or producer is None or consumer is None or m == k or _fns(producer) is None:
        return None
    same = _shape(region, producer) == _shape(region, consumer) and producer.phase is consumer.phase
    first_reader = min((r for o in producer.outputs for r in readers.get(o, ())), default=k)
    return m if same and first_reader >= k else None


def _joined(
    region: Region, producer: Node, consumer: Node, k: int, readers: dict[int, list[int]], needed: set[int]
) -> Node:
    """One node for both; a result of the producer stays an output when somebody else reads it."""
    still = [o for o in producer.outputs if o in needed or any(r != k for r in readers.get(o, ()))]
    inputs = dict.fromkeys((*producer.inputs, *(i for i in consumer.inputs if i not in producer.outputs)))
    fns = (*(_fns(producer) or ()), *(_fns(consumer) or ()))
    outputs = (*consumer.outputs, *still)
    meaning = chained([link_of(region, producer), link_of(region, consumer)], tuple(inputs), outputs)
    return replace(
        consumer, op="elementwise", inputs=tuple(inputs), outputs=outputs, attrs=ElementwiseAttrs(fns), meaning=meaning
    )


def link_of(region: Region, node: Node) -> ChainLink | None:
    """Return a node as part of a chain; casts that passes have inserted have none of their own."""
    meaning = node.meaning
    if meaning is None and has(node, Trait.CASTS):
        meaning = cast_to(region.by_id[node.key].type.dtype)
    return None if meaning is None else ChainLink(meaning, node.inputs, node.outputs)


def _fns(node: Node) -> tuple[str, ...] | None:
    """The pointwise functions of a node, None when it is not pointwise."""
    if isinstance(node.attrs, ElementwiseAttrs):
        return node.attrs.fns
    return _ALSO.get(node.op)


def _shape(region: Region, node: Node) -> tuple[Dim, ...]:
    return region.by_id[node.outputs[0]].type.dims
