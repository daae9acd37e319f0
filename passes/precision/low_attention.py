"""Attention in fp8: queries, keys, values and the gradient of the result are cast; messages in between carry casts."""

from __future__ import annotations

from dataclasses import replace

from ...ir.editing.rewriter import RegionRewriter
from ...ir.graph import Node, Phase, Region, Value
from ...ir.ops import OpClass, Trait, has
from ...ir.ops.fused.attention import AttentionAttrs
from ...ir.ops.quantise import QuantiseAttrs
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
    draft = _Draft(region)
    for node in calls:
        # q, k and v of a call; of its backward the gradient of the result before them.
        for index in range(4 if has(node, Trait.BACKWARD) else 3):
            value = node.inputs[index]
            maker = region.producer.get(value)
            if maker is None or not _carries(region, maker, frozenset(n.key for n in calls)):
                draft.read(node, index, draft.cast(value, node, reads))
                continue
            place = maker.outputs.index(value)
            draft.read(maker, place, draft.cast(maker.inputs[place], maker, reads))
            draft.retype(DType.FP8, value)
    return draft.finish()


def _carries(region: Region, maker: Node, calls: frozenset[int]) -> bool:
    """Whether a node is a message of which every result is read by attention alone."""
    readers = {n.key for out in maker.outputs for n in region.users.get(out, ())}
    return (
        has(maker, OpClass.COMMUNICATION)
        and len(maker.inputs) == len(maker.outputs)
        and readers <= calls
        and not any(port.value in maker.outputs for port in region.outputs)
    )


class _Draft(RegionRewriter):
    """A layer in which tensors are cast once."""

    def __init__(self, region: Region) -> None:
        super().__init__(region)
        self._casts: dict[int, int] = {}

    def cast(self, source: int, user: Node, reads: int) -> int:
        """Cast a tensor in front of its first user; the backward phase reads what the forward phase kept."""
        if source not in self._casts:
            old = self.region.by_id[source]
            made = self.add(Value(0, replace(old.type, dtype=DType.FP8), 0, placements=old.placements))
            forward = user.forward if user.phase is Phase.BACKWARD else None
            attrs = QuantiseAttrs(reads)
            self.insert_before(user, Node("quantise", (source,), (made,), attrs, user.scope, user.phase, forward))
            self._casts[source] = made
        return self._casts[source]
