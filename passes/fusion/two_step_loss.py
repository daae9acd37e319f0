"""The loss in two steps, as PyTorch's own cross-entropy runs it: log-softmax, then the likelihood of the targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from ...ir.graph import Node, Region, Value
from ...ir.meaning import In, Meaning, OperatorCall, Out
from ...ir.ops.tensors.normalize import DimAttrs
from ...ir.records import dataclass
from ..base import LossPass

# What the two nodes compute: the logarithm of a softmax. The loss of that is the loss of the logits.
_LOG = Meaning((OperatorCall("aten._log_softmax", (("self", In(0)),)),), (Out(0),))
_LOG_BWD = Meaning(
    (OperatorCall("aten._log_softmax_backward_data", (("grad_output", In(0)), ("output", In(1)))),), (Out(0),)
)


@dataclass(frozen=True, slots=True)
class TwoStepLoss(LossPass):
    """Keep log-probabilities instead of logits, and make two gradients of their size in the backward phase.

    `torch.nn.functional.cross_entropy` calls `log_softmax` and `nll_loss`; their backward functions each write a
    tensor of the size of the logits (`aten/src/ATen/native/SoftMax.cpp`, `LossNLL.cpp`). At that moment three tensors
    of fp32 logits exist, 12 bytes a logit.
    """

    name: ClassVar[str] = "two_step_loss"

    def rewrite(self, region: Region, loss: Node, back: Node) -> Region:
        """Return the region with its loss, forward and backward, made anew."""
        fresh = region.fresh_id
        logits, grad = region.by_id[loss.inputs[0]], region.by_id[back.key]
        made = (_like(logits, fresh), _like(grad, fresh + 1))
        attrs = DimAttrs(logits.type.rank - 1, across=True)
        first = replace(loss, op="softmax", inputs=(logits.id,), outputs=(fresh,), attrs=attrs, meaning=_LOG)
        last = replace(back, op="softmax_bwd", inputs=(fresh + 1, fresh), attrs=attrs, forward=fresh, meaning=_LOG_BWD)
        inner = replace(back, inputs=(back.inputs[0], fresh, *back.inputs[2:]), outputs=(fresh + 1,))
        steps = {
            loss.key: (first, replace(loss, inputs=(fresh, *loss.inputs[1:]))),
            back.key: (inner, last),
        }
        return replace(region, values=(*region.values, *made), nodes=tuple(_replaced(region, steps)))


def _like(v: Value, ident: int) -> Value:
    return replace(v, id=ident, storage=ident, saved=False)


def _replaced(region: Region, steps: dict[int, tuple[Node, Node]]) -> Iterator[Node]:
    for node in region.nodes:
        yield from steps.get(node.key, (node,))
