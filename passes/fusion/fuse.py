"""Chains of pointwise ops become one kernel each: inputs are read once, intermediates stay on the chip."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

from ...ir.editing.rewriter import RegionRewriter
from ...ir.graph import Node, Region, Value
from ...ir.meaning import ChainLink, cast_to, chained
from ...ir.ops import Trait, has
from ...ir.ops.tensors.pointwise import ElementwiseAttrs
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim
from ..base import RegionPass

_ALSO = {"cast": ("cast",), "copy": ("copy",)}


@dataclass(frozen=True, slots=True)
class Fuse(RegionPass[Node]):
    """Fuse pointwise producers into pointwise consumers of the same shape.

    A producer whose result is also needed elsewhere (kept for backward, or read by another op later) still writes
    it; the consumer then no longer reads it back.
    """

    name: ClassVar[str] = "fuse"

    def matches(self, region: Region) -> Iterable[Node]:
        """Yield the pointwise nodes."""
        return (n for n in region.nodes if _fns(n) is not None)

    def rewrite(self, region: RegionRewriter, match: Node) -> None:
        """Pull the producers of a node into it, again and again, until none fits."""
        consumer = match
        while (producer := next(_producers(region, consumer), None)) is not None:
            kernel = _joined(region, producer, consumer)
            region.replace(consumer, kernel)
            region.erase(producer, heir=kernel)
            consumer = kernel


def _producers(region: RegionRewriter, consumer: Node) -> Iterator[Node]:
    """Pointwise makers of inputs, of the same shape and phase, whose results no other node reads before."""
    for node in filter(None, map(region.maker, consumer.inputs)):
        alike = node.phase is consumer.phase and _shape(region, node) == _shape(region, consumer)
        readers = (n for o in node.outputs for n in region.users(o))
        if _fns(node) is not None and alike and region.first((consumer, *readers)) is consumer:
            yield node


def _joined(region: RegionRewriter, producer: Node, consumer: Node) -> Node:
    """One node for both; a result of the producer stays an output when somebody else reads it."""
    elsewhere = {o for o in producer.outputs if region.is_needed(o) or any(n is not consumer for n in region.users(o))}
    inputs = tuple(dict.fromkeys((*producer.inputs, *(i for i in consumer.inputs if i not in producer.outputs))))
    outputs = (*consumer.outputs, *(o for o in producer.outputs if o in elsewhere))
    attrs = ElementwiseAttrs((*(_fns(producer) or ()), *(_fns(consumer) or ())))
    meaning = chained([link_of(region.values, n) for n in (producer, consumer)], inputs, outputs)
    return replace(consumer, op="elementwise", inputs=inputs, outputs=outputs, attrs=attrs, meaning=meaning)


def link_of(values: Mapping[int, Value], node: Node) -> ChainLink | None:
    """Return a node as part of a chain; casts that passes have inserted have none of their own."""
    meaning = node.meaning
    if meaning is None and has(node, Trait.CASTS):
        meaning = cast_to(values[node.key].type.dtype)
    return None if meaning is None else ChainLink(meaning, node.inputs, node.outputs)


def _fns(node: Node) -> tuple[str, ...] | None:
    """The pointwise functions of a node, None when it is not pointwise."""
    if isinstance(node.attrs, ElementwiseAttrs):
        return node.attrs.fns
    return _ALSO.get(node.op)


def _shape(region: RegionRewriter, node: Node) -> tuple[Dim, ...]:
    return region.values[node.key].type.dims
