"""The loss as a compiler makes it: casts around it stay inside of its kernels, so that no fp32 logits ever exist."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from ...ir.editing.rewriter import RegionRewriter
from ...ir.graph import Node, Region, Role
from ...ir.meaning import chained
from ...ir.ops import OpClass, Trait, has
from ...ir.records import dataclass
from ..base import LossPass
from .fuse import link_of


@dataclass(frozen=True, slots=True)
class CompiledLoss(LossPass):
    """Let the loss read logits in the type of the model and write their gradient in it.

    Models cast logits to fp32 before the loss. Inductor makes one kernel of the cast, the log-softmax and the choice of
    the target, and its partitioner keeps what the cast reads (`torch/_functorch/partitioners.py`: pointwise and
    reductions are made again behind what is kept); the kernel of the backward phase casts the gradient as it writes it.
    Of 12 bytes a logit that PyTorch's own functions hold at that moment, 4 are left in bf16.
    """

    name: ClassVar[str] = "compiled_loss"

    def rewrite(self, region: RegionRewriter, match: tuple[Node, Node]) -> None:
        """Let both do the work of the casts around them, where nobody else reads what lies between."""
        (loss, back), old = match, region.region
        before = _cast(old, old.producer.get(loss.inputs[0]))
        after = _cast(old, next(iter(old.users.get(back.key, ())), None))
        if before is None or after is None or not (_alone(old, before, loss, back) and _alone(old, back, after)):
            return
        forward, backward = (before, loss), (before, back, after)
        chains = _joined(old, forward, loss.outputs), _joined(old, backward, after.outputs)
        for node in (before, after):
            region.erase(node)
        for node, chain in zip(match, chains, strict=True):
            region.replace(node, chain)


def _cast(region: Region, node: Node | None) -> Node | None:
    """Return a node that changes the type of a result and does nothing else."""
    plain = node is not None and has(node, Trait.CASTS) and len(node.outputs) == 1
    return node if node is not None and plain and region.by_id[node.key].role is Role.RESULT else None


def _alone(region: Region, node: Node, *readers: Node) -> bool:
    """Whether nobody else reads, views or hands on the first result of a node."""
    value = node.outputs[0]
    seen = any(v.storage == value and v.id != value for v in region.values)
    left = any(p.value == value for p in region.outputs)
    return not seen and not left and {n.key for n in region.users.get(value, ())} == {n.key for n in readers}


def _joined(region: Region, chain: tuple[Node, ...], outputs: tuple[int, ...]) -> Node:
    """Return the loss, forward or backward, that does the work of the casts before and behind it."""
    (middle,) = (n for n in chain if has(n, OpClass.LOSS))
    first = chain[0]
    inputs = tuple(first.inputs[0] if i == first.key else i for i in middle.inputs)
    meaning = chained([link_of(region.by_id, n) for n in chain], inputs, outputs)
    return replace(middle, inputs=inputs, outputs=outputs, meaning=meaning)
