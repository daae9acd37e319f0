"""Calls of torch, and kernels below autograd, to semantic operators, with what is known of their arguments.

Attention over repeated heads becomes attention over the heads that there are; a mask that is made of positions alone
becomes an attribute, another one stays a tensor that is read; what is put behind a cache becomes an append.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from ...ir.graph import Role
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim
from ..record.adapter import FakeWorld
from ..record.preserve import FunctionMode
from ..record.record import Recorder
from ..semantic import semantic
from .masks import ReplayMask, meaning_of

Handler = Callable[..., object]
_MEAN = 1
_ATTENTION = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)


@dataclass(frozen=True, slots=True)
class _Loss:
    """A mean loss over rows of logits, and what its backward needs."""

    logits: Tensor
    target: Tensor
    stats: Tensor


@dataclass
class RecordedKernels:
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
        self,
        grad: Tensor,
        logs: Tensor,
        target: Tensor,
        weight: Tensor | None,
        reduction: int,
        ignore_index: int,
        total: Tensor,
    ) -> Tensor:
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


_RESHAPES = (
    "aten.view",
    "aten._unsafe_view",
    "aten.reshape",
    "aten.clone",
    "aten.unsqueeze",
    "aten.contiguous",
    "aten._reshape_alias",
    "aten.alias",
)
_REDUCTIONS = ("none", "mean", "sum")


class Calls(FunctionMode):
    """Hands library calls, spelled as functions or as ATen operators, to their semantic forms."""

    def __init__(self, recorder: Recorder, world: FakeWorld, hints: Mapping[str, int]) -> None:
        """Know the recording that runs: provenance is read off it."""
        super().__init__()
        self._recorder, self._world, self._hints = recorder, world, hints
        self._masks: dict[fx.Node, ReplayMask | None] = {}
        aten = torch.ops.aten
        self._handlers: Mapping[Callable[..., object], Callable[..., object]] = {
            F.scaled_dot_product_attention: self._attention,
            aten.scaled_dot_product_attention.default: self._attention,
            torch.cat: self._concat,
            aten.cat.default: self._concat,
            aten.rms_norm.default: F.rms_norm,
            aten.layer_norm.default: _layer_norm,
            aten.cross_entropy_loss.default: _cross_entropy,
            aten.dropout.default: F.dropout,
            aten.baddbmm.default: torch.baddbmm,
            aten.pad.default: F.pad,
            aten.log_sigmoid.default: F.logsigmoid,
            **RecordedKernels(recorder, self._attend).handlers(),
        }

    def call(self, func: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Run what stands for the call."""
        return self._handlers.get(func, func)(*args, **kwargs)

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if {query.dim(), key.dim(), value.dim()} != {4}:
            return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        key, value = self._unrepeated(key, value)
        return self._attend(query, key, value, attn_mask, dropout_p, is_causal)[0].transpose(1, 2)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, given: Tensor | None, dropout: float, is_causal: bool
    ) -> tuple[Tensor, Tensor]:
        mask = ReplayMask(is_causal) if given is None else self._meaning(given)
        if mask is not None:
            return semantic.attention(q, k, v, None, mask.causal, mask.window, dropout)
        bias = given
        while bias is not None and bias.dim() < q.dim():
            bias = bias.unsqueeze(0)
        return semantic.attention(q, k, v, None, is_causal, 0, dropout, bias)

    def _meaning(self, mask: Tensor) -> ReplayMask | None:
        node = self._recorder.node_of(mask)
        if node not in self._masks:
            self._masks[node] = meaning_of(node, self._hints)
        return self._masks[node]

    def _unrepeated(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        k, v = self._fewer_heads(key), self._fewer_heads(value)
        if k is None or v is None or k.shape[1] != v.shape[1]:
            return key, value
        return k, v

    def _fewer_heads(self, tensor: Tensor) -> Tensor | None:
        """Return the tensor [b, g, t, d] that was repeated to [b, h, t, d], None when it was not.

        Both orders count: repeated as [b, g, t, d], and as [b, t, g, d] with heads and length swapped afterwards.
        """
        node = self._recorder.node_of(tensor)
        if _name(node) == "aten.transpose":
            source = node.args[0]
            found = self._before_repeat(source, 2) if isinstance(source, fx.Node) else None
            return None if found is None else found.transpose(1, 2)
        return self._before_repeat(node, 1)

    def _before_repeat(self, node: fx.Node, head_dim: int) -> Tensor | None:
        whole = self._dims(node)
        if len(whole) != 4:
            return None
        node = _through(node)
        spread = self._dims(node)
        if _name(node) != "aten.expand" or len(spread) != 5:
            return None
        groups, repeats = spread[head_dim : head_dim + 2]
        if not isinstance(groups, int) or not isinstance(repeats, int) or whole[head_dim] != groups * repeats:
            return None
        return self._of_dims(node.args[0], (*spread[: head_dim + 1], *spread[head_dim + 2 :]))

    def _of_dims(self, node: object, wanted: tuple[Dim, ...]) -> Tensor | None:
        """Return the first tensor of these dims that a node is a reshaping of."""
        while isinstance(node, fx.Node):
            node = self._unsliced(node)
            if self._dims(node) == wanted:
                tensor: Tensor = node.meta["val"]
                return tensor
            node = node.args[0] if _name(node) in _RESHAPES else None
        return None

    def _unsliced(self, node: fx.Node) -> fx.Node:
        """Return what a node is all of: `x[:, :]` has a backward pass of its own, which x has not."""
        while _name(node) == "aten.slice" and isinstance(source := node.args[0], fx.Node):
            if self._dims(source) != self._dims(node):
                break
            node = source
        return node

    def _dims(self, node: fx.Node) -> tuple[Dim, ...]:
        val = node.meta["val"]
        return tuple(self._world.dim(s) for s in val.shape) if isinstance(val, Tensor) else ()

    def _concat(self, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
        if len(tensors) == 2 and tensors[1].dim() == 4 and dim in (2, -2):
            past, new = tensors
            if tuple(past.shape) == (0,):
                return semantic.kv_append(None, new)
            node = self._recorder.node_of(past)
            if node.op == "placeholder" and node.meta.get("role") is Role.CACHE:
                return semantic.kv_append(past, new)
        return torch.cat(list(tensors), dim)


def _name(node: fx.Node) -> str:
    return str(node.target).rpartition(".")[0]


def _through(node: object) -> fx.Node:
    """Return what a node is a reshaping or a copy of."""
    assert isinstance(node, fx.Node)
    while _name(node) in _RESHAPES and isinstance(source := node.args[0], fx.Node):
        node = source
    return node


def _layer_norm(
    input: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    del cudnn_enable
    return F.layer_norm(input, list(shape), weight, bias, eps)


def _cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    name = _REDUCTIONS[reduction]
    return F.cross_entropy(
        input, target, weight, ignore_index=ignore_index, reduction=name, label_smoothing=label_smoothing
    )
