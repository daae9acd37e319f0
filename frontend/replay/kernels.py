"""Kernels that a graph below autograd names (attention of each device, log likelihood) to semantic operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from ..record.record import Recorder
from ..semantic import semantic

Handler = Callable[..., object]
_MEAN = 1
_ATTENTION = (
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Loss:
    """A mean loss over rows of logits, and what its backward needs."""

    logits: Tensor
    target: Tensor
    stats: Tensor


@dataclass
class Kernels:
    """The kernels of one recording; losses are remembered until their backward comes."""

    recorder: Recorder
    attend: Callable[..., tuple[Tensor, Tensor]]
    _losses: dict[fx.Node, _Loss] = field(default_factory=dict)
    _slopes: dict[fx.Node, tuple[Tensor, _Loss]] = field(default_factory=dict)

    def handlers(self) -> Mapping[Handler, Handler]:
        """Return what stands for each kernel that this torch has."""
        aten = torch.ops.aten
        found: dict[Handler, Handler] = {
            aten.nll_loss_forward.default: self._likelihood,
            aten.nll_loss_backward.default: self._likelihood_backward,
            aten._log_softmax_backward_data.default: self._log_softmax_backward,
        }
        for name in _ATTENTION:
            forward, backward = (getattr(aten, n, None) for n in (name, f"{name}_backward"))
            if forward is not None:
                found[forward.default] = self._by_name(forward.default, self._attention)
            if backward is not None:
                found[backward.default] = self._by_name(backward.default, self._attention_backward)
        return found

    def _by_name(self, op: OpOverload, handler: Callable[[Mapping[str, object], int], object]) -> Handler:
        """Kernels of attention share names of arguments, and differ in order and number."""
        names = [a.name for a in op._schema.arguments]
        num_outputs = len(op._schema.returns)

        def call(*args: object, **kwargs: object) -> object:
            return handler({**dict(zip(names, args, strict=False)), **kwargs}, num_outputs)

        return call

    def _attention(self, given: Mapping[str, object], num_outputs: int) -> tuple[Tensor | None, ...]:
        mask = given.get("attn_mask", given.get("attn_bias"))
        q, k, v = (given[name] for name in ("query", "key", "value"))
        out, lse = self.attend(q, k, v, mask, given.get("dropout_p", 0.0), given.get("is_causal", False))
        return (out.transpose(1, 2), lse, *(None,) * (num_outputs - 2))

    def _attention_backward(self, given: Mapping[str, object], num_outputs: int) -> tuple[Tensor | None, ...]:
        grad = given.get("grad_out", given.get("grad_out_"))
        tensors = (grad, *(given[n] for n in ("query", "key", "value", "out", "logsumexp")))
        slope, q, k, v, out, lse = (t for t in tensors if isinstance(t, Tensor))
        made = semantic.attention_bwd(
            slope.transpose(1, 2), q, k, v, out.transpose(1, 2), lse, None,
            bool(given.get("is_causal")), 0, float(str(given.get("dropout_p", 0.0))), None, None, 0.0, False,
        )  # fmt: skip
        return (*made[:3], *(None,) * (num_outputs - 3))

    def _likelihood(
        self, logs: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
    ) -> tuple[Tensor, Tensor]:
        node = self.recorder.node_of(logs)
        source = node.args[0] if str(node.target) == "aten._log_softmax.default" else None
        if weight is not None or reduction != _MEAN or not isinstance(source, fx.Node):
            picked = -logs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
            return (picked.mean() if reduction == _MEAN else picked.sum() if reduction else picked), logs.new_empty(())
        logits: Tensor = source.meta["val"]
        loss, stats = semantic.cross_entropy(logits, target)
        self._losses[node] = _Loss(logits, target, stats)
        return loss, logs.new_empty(())

    def _likelihood_backward(
        self, grad: Tensor, logs: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int,
        total: Tensor,
    ) -> Tensor:  # fmt: skip
        loss = self._losses.get(self.recorder.node_of(logs))
        if loss is None:
            return torch.zeros_like(logs).scatter(-1, target.unsqueeze(-1), -1.0) * grad
        slope = torch.empty_like(logs)
        self._slopes[self.recorder.node_of(slope)] = (grad, loss)
        return slope

    def _log_softmax_backward(self, grad: Tensor, output: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
        found = self._slopes.get(self.recorder.node_of(grad))
        if found is None:
            plain: Tensor = torch.ops.aten._log_softmax_backward_data.default(grad, output, dim, dtype)
            return plain
        slope, loss = found
        return semantic.cross_entropy_bwd(slope, loss.logits, loss.target, loss.stats)


__all__ = ["Kernels"]
