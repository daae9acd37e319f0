"""The loss in two steps, as PyTorch's own cross-entropy runs it: log-softmax, then the likelihood of the targets."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from ...ir.editing.rewriter import RegionRewriter
from ...ir.graph import Node
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

    def rewrite(self, region: RegionRewriter, match: tuple[Node, Node]) -> None:
        """Put the logarithms in front of the loss, and their backward behind that of the loss."""
        loss, back = match
        logits, grad = region.values[loss.inputs[0]], region.values[back.key]
        logs, inner = (region.add(replace(v, saved=False)) for v in (logits, grad))
        attrs = DimAttrs(logits.type.rank - 1, across=True)
        first = replace(loss, op="softmax", inputs=(logits.id,), outputs=(logs,), attrs=attrs, meaning=_LOG)
        last = replace(back, op="softmax_bwd", inputs=(inner, logs), attrs=attrs, forward=logs, meaning=_LOG_BWD)
        region.replace(loss, first, replace(loss, inputs=(logs, *loss.inputs[1:])))
        region.replace(back, replace(back, inputs=(back.inputs[0], logs, *back.inputs[2:]), outputs=(inner,)), last)
