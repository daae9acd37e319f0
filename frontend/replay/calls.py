"""Calls of torch to semantic operators, with what the recording so far says of their arguments.

Attention over repeated heads becomes attention over the heads that there are; a mask that is made of positions alone
becomes an attribute; what is put behind a cache becomes an append.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, fx
from torch.nn import functional as F  # noqa: N812 - the field's name for it
from torch.overrides import TorchFunctionMode

from ...ir.expr import Dim
from ...ir.graph import Role
from .. import semantic
from ..adapter import FakeWorld
from ..record import Recorder
from .masks import Mask, meaning_of

_RESHAPES = ("aten.view", "aten._unsafe_view", "aten.reshape", "aten.clone", "aten.unsqueeze", "aten.contiguous",
             "aten._reshape_alias", "aten.alias")  # fmt: skip
_REDUCTIONS = ("none", "mean", "sum")
_UNKNOWN_MASK = "the mask of attention in '{}' is no band of positions: its scores are counted as if all were seen"


class Calls(TorchFunctionMode):
    """Hands library calls, spelled as functions or as ATen operators, to their semantic forms."""

    def __init__(self, recorder: Recorder, world: FakeWorld, hints: Mapping[str, int]) -> None:
        """Know the recording that runs: provenance is read off it."""
        super().__init__()
        self._recorder, self._world, self._hints = recorder, world, hints
        self._masks: dict[fx.Node, Mask | None] = {}
        self.notes: dict[str, None] = {}
        aten = torch.ops.aten
        self._handlers: Mapping[Callable[..., object], Callable[..., object]] = {
            F.scaled_dot_product_attention: self._attention,
            aten.scaled_dot_product_attention.default: self._attention,
            torch.cat: self._concat,
            aten.cat.default: self._concat,
            aten.rms_norm.default: _rms_norm,
            aten.layer_norm.default: _layer_norm,
            aten.cross_entropy_loss.default: _cross_entropy,
            aten.dropout.default: _dropout,
        }

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        return self._handlers.get(func, func)(*args, **(kwargs or {}))

    def _attention(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        if {query.dim(), key.dim(), value.dim()} != {4}:
            return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        mask = Mask(is_causal) if attn_mask is None else self._meaning(attn_mask)
        if mask is None:
            self.notes[_UNKNOWN_MASK.format(self._recorder.scopes[-1])] = None
            mask = Mask(causal=False)
        key, value = self._unrepeated(key, value)
        out, _ = semantic.attention(query, key, value, None, mask.causal, mask.window, dropout_p)
        return out.transpose(1, 2)

    def _meaning(self, mask: Tensor) -> Mask | None:
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
        heads = spread[head_dim : head_dim + 2]
        before = _through(node.args[0])
        if isinstance(heads[0], int) and isinstance(heads[1], int) and whole[head_dim] == heads[0] * heads[1]:
            wanted = (*spread[: head_dim + 1], *spread[head_dim + 2 :])
            source = _unsqueezed(node.args[0])
            for candidate in (source, before):
                if candidate is not None and self._dims(candidate) == wanted:
                    tensor: Tensor = candidate.meta["val"]
                    return tensor
        return None

    def _dims(self, node: fx.Node) -> tuple[Dim, ...]:
        val = node.meta["val"]
        return tuple(self._world.dim(s) for s in val.shape) if isinstance(val, Tensor) else ()

    def _concat(self, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
        if len(tensors) == 2 and tensors[0].dim() == 4 and dim in (2, -2):
            node = self._recorder.node_of(tensors[0])
            if node.op == "placeholder" and node.meta.get("role") is Role.CACHE:
                return semantic.kv_append(tensors[0], tensors[1])
        return torch.cat(list(tensors), dim)


def _name(node: fx.Node) -> str:
    return str(node.target).rpartition(".")[0]


def _through(node: object) -> fx.Node:
    """Return what a node is a reshaping or a copy of."""
    assert isinstance(node, fx.Node)
    while _name(node) in _RESHAPES and isinstance(source := node.args[0], fx.Node):
        node = source
    return node


def _unsqueezed(node: object) -> fx.Node | None:
    """Return what a node is one reshape away from."""
    if isinstance(node, fx.Node) and _name(node) in _RESHAPES and isinstance(source := node.args[0], fx.Node):
        return source
    return None


def _rms_norm(input: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    return F.rms_norm(input, list(shape), weight, eps)


def _layer_norm(
    input: Tensor, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:  # fmt: skip
    del cudnn_enable
    return F.layer_norm(input, list(shape), weight, bias, eps)


def _cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1, ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    name = _REDUCTIONS[reduction]
    return F.cross_entropy(
        input, target, weight, ignore_index=ignore_index, reduction=name, label_smoothing=label_smoothing
    )


def _dropout(input: Tensor, p: float = 0.5, train: bool = True) -> Tensor:
    return F.dropout(input, p, train)


__all__ = ["Calls"]
