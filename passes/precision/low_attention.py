"""Attention in fp8: queries, keys, values and the gradient of the result are cast; messages in between carry casts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace

from ...ir.graph import Node, Phase, Region, Value
from ...ir.ops import OpClass, Trait, has
from ...ir.ops.fused.attention import AttentionAttrs
from ...ir.ops.quantise import QuantiseAttrs
from ...ir.records import dataclass
from ...ir.types import DType


def attended(region: Region, reads: int) -> Region:
    """Return a layer whose attention multiplies in fp8; results and their gradients keep the model's type.

    `reads` is how often a tensor passes through memory for its cast. Calls with a bias or a bend of their scores stay
    as they are: fp8 kernels have neither (TransformerEngine, get_attention_backend). A message over context-parallel
    ranks that attention alone reads carries the cast tensor, forward and in the recomputed gather of a ring.
    """
    calls = []
    for node in region.nodes:
        attrs = node.attrs
        if has(node, Trait.ATTENDS) and isinstance(attrs, AttentionAttrs) and not attrs.bias and not attrs.softcap:
            calls.append(node)
    draft = _Draft(region, reads, frozenset(n.key for n in calls))
    for node in calls:
        # q, k and v of a call; of its backward the gradient of the result before them.
        for index in range(4 if has(node, Trait.BACKWARD) else 3):
            draft.read(node, index)
    return draft.made() if calls else region


@dataclass
class _Draft:
    """A layer in the making: casts in front of nodes, what nodes read now, and messages that carry casts."""

    region: Region
    reads: int
    calls: frozenset[int]
    casts: dict[int, Value] = field(default_factory=dict)
    front: dict[int, list[Node]] = field(default_factory=dict)
    inputs: dict[tuple[int, int], int] = field(default_factory=dict)
    low: set[int] = field(default_factory=set)

    def read(self, node: Node, index: int) -> None:
        """Let one operand be a cast tensor, or what a message brings of one."""
        value = node.inputs[index]
        maker = self.region.producer.get(value)
        if maker is None or not self._carries(maker):
            self.inputs[node.key, index] = self._cast(value, node)
            return
        place = maker.outputs.index(value)
        self.inputs[maker.key, place] = self._cast(maker.inputs[place], maker)
        self.low.add(value)

    def _carries(self, maker: Node) -> bool:
        """Whether a node is a message of which every result is read by attention alone."""
        readers = {n.key for out in maker.outputs for n in self.region.users.get(out, ())}
        return (
            has(maker, OpClass.COMMUNICATION)
            and len(maker.inputs) == len(maker.outputs)
            and readers <= self.calls
            and not any(port.value in maker.outputs for port in self.region.outputs)
        )

    def _cast(self, source: int, user: Node) -> int:
        """Cast a tensor once, in front of its first user; the backward phase reads what the forward phase kept."""
        if source not in self.casts:
            old = self.region.by_id[source]
            ident = self.region.fresh_id + len(self.casts)
            made = Value(ident, replace(old.type, dtype=DType.FP8), ident, placements=old.placements)
            forward = user.forward if user.phase is Phase.BACKWARD else None
            node = Node("quantise", (source,), (ident,), QuantiseAttrs(self.reads), user.scope, user.phase, forward)
            self.casts[source] = made
            self.front.setdefault(user.key, []).append(node)
        return self.casts[source].id

    def made(self) -> Region:
        kinds = (
            replace(v, type=replace(v.type, dtype=DType.FP8)) if v.id in self.low else v for v in self.region.values
        )
        return replace(self.region, values=(*kinds, *self.casts.values()), nodes=tuple(self._nodes()))

    def _nodes(self) -> Iterator[Node]:
        for node in self.region.nodes:
            yield from self.front.get(node.key, ())
            yield replace(node, inputs=tuple(self.inputs.get((node.key, k), i) for k, i in enumerate(node.inputs)))
