"""Attention with all that can stand beside it, the indexer of sparse attention, and the append to a cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ....ir.ops.fused.attention import AttentionAttrs, KvAppendAttrs
from ....ir.ops.fused.index_keys import IndexAttrs
from ..call import Call, NotComputedError, Reference
from ..differentiate import gradients
from ..models.constants import attrs_of, number

# As good as minus infinity in a softmax, without its NaN in rows and gradients that are hidden altogether.
HIDDEN = -1e30


def attention(call: Call) -> tuple[Tensor, ...]:
    """Result [b, s, h, d_v] and log-sum-exp [b, h, s] of q [b, h, s, d], k [b, g, t, d], v [b, g, t, d_v]."""
    return _attend(call, call.inputs)[: len(call.dims)]


def attention_bwd(call: Call) -> tuple[Tensor, ...]:
    """Gradients of q, k, v, then of sinks and bias as far as the call makes them."""
    grad, q, k, v, _, _, *extras = call.inputs
    found = gradients(lambda inputs: _attend(call, inputs)[0], (q, k, v, *extras), grad)
    return found[: len(call.dims)]


def _attend(call: Call, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    q, k, v, *rest = inputs
    attrs = attrs_of(call, AttentionAttrs)
    extras = dict(zip(attrs.extras, rest, strict=True))
    scores = _scores(call, attrs, q, k)
    if "bias" in extras:
        scores = _biased(scores, extras["bias"])
    scores = scores.masked_fill(~_visible(call, attrs, (q.shape[2], k.shape[2]), extras.get("ids")), HIDDEN)
    sinks = extras.get("sinks")
    if sinks is not None:
        scores = torch.cat((scores, sinks.reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)), dim=3)
    weights = torch.softmax(scores, dim=3)[..., : k.shape[2]]
    values = v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)
    return (weights @ values).transpose(1, 2), torch.logsumexp(scores, dim=3)


def _scores(call: Call, attrs: AttentionAttrs, q: Tensor, k: Tensor) -> Tensor:
    """Scaled products of queries and keys, softly capped where the call says so."""
    scale = number(call, "scale", 0.0) or float(q.shape[3]) ** -0.5
    scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).transpose(2, 3) * scale
    return attrs.softcap * torch.tanh(scores / attrs.softcap) if attrs.softcap else scores


def _biased(scores: Tensor, bias: Tensor) -> Tensor:
    """A bias of numbers is added; one of truth values says what is seen."""
    return scores + bias.clamp(min=HIDDEN) if bias.is_floating_point() else scores.masked_fill(bias == 0, HIDDEN)


def _visible(call: Call, attrs: AttentionAttrs, sizes: tuple[int, int], ids: Tensor | None) -> Tensor:
    """Which keys each query sees: [s, t], or [b, 1, s, t] where keys were chosen."""
    chunk = int(number(call, "chunk", 0))
    queries, keys = _positions(call, attrs.balanced, *sizes)
    back = queries[:, None] - keys[None, :]
    seen = back >= 0 if attrs.causal else torch.ones_like(back, dtype=torch.bool)
    if chunk:
        # A cache of chunked keys holds the last ones alone: their own positions begin behind those that are gone.
        gone = max(0, call.sizes.get("kv", -sizes[1]) + sizes[0] - sizes[1])
        queries, keys = queries + gone, keys + gone
        seen = seen & (queries[:, None] // chunk == keys[None, :] // chunk)
    elif attrs.window:
        seen = seen & (back < attrs.window if attrs.causal else back.abs() <= attrs.window)
    if ids is None:
        return seen
    chosen = torch.zeros(*ids.shape[:2], sizes[1], dtype=torch.bool).scatter_(2, ids.long(), value=True)
    return seen & chosen[:, None]


def _positions(call: Call, balanced: bool, queries: int, keys: int) -> tuple[Tensor, Tensor]:
    """Positions of this rank's queries and of all keys: of a balanced split as it deals out, else the last ones."""
    if balanced:
        return call.positions(keys)
    return torch.arange(queries) + (keys - queries), torch.arange(keys)


def index_keys(call: Call) -> tuple[Tensor, ...]:
    """Ids [b, s, n] of the keys k [b, 1, t, d] that heads q [b, h, s, d], weighted [b, s, h], score best."""
    q, k, weights = call.inputs
    attrs = attrs_of(call, IndexAttrs)
    split = call.degrees.get("cp", 1) * call.degrees.get("up", 1)
    if call.degrees.get("up", 1) > 1 and q.shape[2] * split == k.shape[2]:
        raise NotComputedError("an indexer whose queries lie over 'up' and 'cp'")
    scores = torch.einsum("bhst,bsh->bst", torch.relu(q @ k.transpose(2, 3)), weights) * number(call, "scale", 1.0)
    if attrs.causal:
        balanced = split > 1 and q.shape[2] * split == k.shape[2]
        queries, keys = _positions(call, balanced, q.shape[2], k.shape[2])
        scores = scores.masked_fill(keys[None, :] > queries[:, None], HIDDEN)
    return (scores.topk(min(attrs.keys, k.shape[2]), dim=2).indices,)


def kv_append(call: Call) -> tuple[Tensor, ...]:
    """New keys or values behind the cache."""
    return (torch.cat(call.inputs, dim=attrs_of(call, KvAppendAttrs).dim),)


REFERENCES: Mapping[str, Reference] = {
    "attention": attention, "attention_bwd": attention_bwd, "index_keys": index_keys, "kv_append": kv_append,
}  # fmt: skip
