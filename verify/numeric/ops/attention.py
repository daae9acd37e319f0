"""Attention with all that can stand beside it, norms, rotary embedding, softmax and the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ....frontend.semantic.constants import STYLES, turned
from ....ir.ops.fused.attention import AttentionAttrs, KvAppendAttrs
from ....ir.ops.fused.index_keys import IndexAttrs
from ....ir.ops.tensors.normalize import DimAttrs, NormAttrs
from ..call import NotComputedError, RankCall, Reference, attrs_of, given, gradients, number, operator, share, word

_EPS = {"rms": 1e-6, "layer": 1e-5}  # defaults of our operator and of torch's


def norm(call: RankCall) -> tuple[Tensor, ...]:
    """The normalised rows, then as many statistics of rows as the call makes: (mean, 1 / deviation) or 1 / rms."""
    x, *rest = call.inputs
    first = given(call, "weight", 1 if rest else None) if _is_layer(call) else (1 if rest else None)
    weight = rest[0] if first is not None else None
    bias = rest[-1] if len(rest) > (weight is not None) else None
    y, mean, inverse = _normed(call, x, weight, bias)
    return ((y, mean, inverse) if _is_layer(call) else (y, inverse))[: len(call.dims)]


def norm_bwd(call: RankCall) -> tuple[Tensor, ...]:
    """Gradients of x, weight and bias, those that the call makes, of (dy, x, statistics, weight)."""
    grad, x, *rest = call.inputs
    weight = next((t for t in rest[1:] if t.dim() == 1), None)
    tensors = (x,) if weight is None else (x, weight)
    found = gradients(lambda t: _normed(call, t[0], t[1] if len(t) > 1 else None, None)[0], tensors, grad)
    bias = grad.reshape(-1, grad.shape[-1]).sum(0)
    return (*found, bias)[: len(call.dims)]


def _is_layer(call: RankCall) -> bool:
    return attrs_of(call, NormAttrs).kind == "layer"


def _normed(call: RankCall, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Rows over their length: the deviation, the root mean square, or (L2) the Euclidean one."""
    layer = _is_layer(call)
    mean = x.mean(-1, keepdim=True)
    centred = x - mean if layer else x
    square = centred.square()
    size = square.sum(-1, keepdim=True) if "l2_norm" in operator(call) else square.mean(-1, keepdim=True)
    inverse = torch.rsqrt(size + number(call, "eps", _EPS["layer" if layer else "rms"]))
    y = centred * inverse
    y = y if weight is None else y * (weight + number(call, "offset", 0.0))
    return y if bias is None else y + bias, mean, inverse


def rope(call: RankCall) -> tuple[Tensor, ...]:
    """Rotated x [.., d] by tables that broadcast to it."""
    x, cos, sin = call.inputs
    return (_rotated(call, x, cos, sin),)


def rope_bwd(call: RankCall) -> tuple[Tensor, ...]:
    """The adjoint of the rotation; that is linear, so that its gradient is the same anywhere."""
    grad, cos, sin = call.inputs
    return gradients(lambda t: _rotated(call, t[0], cos, sin), (torch.zeros_like(grad),), grad)


def _rotated(call: RankCall, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The first entries of x, as many as the tables have (twice as many in narrow styles), by pairs of a style."""
    style = word(call, "style", "half")
    if style not in STYLES:
        raise NotComputedError(f"rotary embedding in the style '{style}'")
    return turned(x, cos, sin, style)


def softmax(call: RankCall) -> tuple[Tensor, ...]:
    """Softmax along a dim, or its logarithm where the call says so."""
    x, dim = call.inputs[0], attrs_of(call, DimAttrs).dim
    return (torch.log_softmax(x, dim) if "log_softmax" in operator(call) else torch.softmax(x, dim),)


def softmax_bwd(call: RankCall) -> tuple[Tensor, ...]:
    """Gradient y (dy - sum(dy y)), or of a logarithm dy - exp(y) sum(dy), of (dy, y)."""
    grad, y = call.inputs
    dim = attrs_of(call, DimAttrs).dim
    if "log_softmax" in operator(call):
        return (grad - y.exp() * grad.sum(dim, keepdim=True),)
    return (y * (grad - (grad * y).sum(dim, keepdim=True)),)


_SUM, _TARGET = 1, 2  # places of the statistics of the loss; in front of them the maximum


def cross_entropy(call: RankCall) -> tuple[Tensor, ...]:
    """Mean loss, and a row (0, sum of exponentials, logit of the target).

    The maximum that a kernel subtracts is nothing here, so that statistics over parts of the vocabulary add up; the
    logit of a target counts on the rank that has it. The loss of a part of the vocabulary is none: `loss_of` makes it
    of whole statistics.
    """
    logits, target = call.inputs
    inside, local = _local_targets(call, 0, logits, target)
    chosen = logits.gather(-1, local.unsqueeze(-1)).squeeze(-1) * inside
    sums = logits.exp().sum(-1)
    statistics = torch.stack((torch.zeros_like(sums), sums, chosen), dim=-1)
    return loss_of(call, statistics, target), statistics


def loss_of(call: RankCall, statistics: Tensor, target: Tensor) -> Tensor:
    """Return this rank's part of the mean loss, of statistics [.., 3] that are whole over the vocabulary."""
    kept = _kept(call, target)
    losses = (statistics[..., _SUM].log() - statistics[..., _TARGET]) * kept
    return losses.sum() / _rows(call, 0, kept)


def cross_entropy_bwd(call: RankCall) -> tuple[Tensor, ...]:
    """Gradient (softmax - one at the target) dloss / rows of (dloss, logits, targets, statistics)."""
    grad, logits, target, statistics = call.inputs
    kept = _kept(call, target)
    inside, local = _local_targets(call, 1, logits, target)
    soft = logits.exp() / statistics[..., _SUM].unsqueeze(-1)
    hit = torch.zeros_like(logits).scatter_(-1, local.unsqueeze(-1), inside.unsqueeze(-1))
    return ((soft - hit) * kept.unsqueeze(-1) * grad / _rows(call, 1, kept),)


def _kept(call: RankCall, target: Tensor) -> Tensor:
    """One for each row that counts, as torch leaves rows with the ignored label out."""
    return (target != int(number(call, "ignore_index", -100))).double()


def _rows(call: RankCall, logits: int, kept: Tensor) -> float:
    """Rows of the mean over all ranks; 1 for a sum. Ranks with parts of the rows must leave the same number out: 0."""
    if word(call, "reduction", "mean") == "sum":
        return 1.0
    others = 1
    for dim in range(kept.dim()):
        others *= share(call, logits, dim)[1]
    if others > 1 and not bool(kept.all()):
        raise NotComputedError("a mean over rows of several ranks, of which some are ignored")
    return float(kept.sum()) * others


def _local_targets(call: RankCall, value: int, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """One where this rank's part of the vocabulary has the target, and the target in that part (0 elsewhere)."""
    index, _ = share(call, value, logits.dim() - 1)
    local = target.long() - index * logits.shape[-1]
    inside = (local >= 0) & (local < logits.shape[-1])
    return inside.to(logits.dtype), local.where(inside, torch.zeros_like(local))


# As good as minus infinity in a softmax, without its NaN in rows and gradients that are hidden altogether.
HIDDEN = -1e30


def attention(call: RankCall) -> tuple[Tensor, ...]:
    """Result [b, s, h, d_v] and log-sum-exp [b, h, s] of q [b, h, s, d], k [b, g, t, d], v [b, g, t, d_v]."""
    return _attend(call, call.inputs)[: len(call.dims)]


def attention_bwd(call: RankCall) -> tuple[Tensor, ...]:
    """Gradients of q, k, v, then of sinks and bias as far as the call makes them."""
    grad, q, k, v, _, _, *extras = call.inputs
    found = gradients(lambda inputs: _attend(call, inputs)[0], (q, k, v, *extras), grad)
    return found[: len(call.dims)]


def _attend(call: RankCall, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    q, k, v, *rest = inputs
    attrs = attrs_of(call, AttentionAttrs)
    extras = dict(zip(attrs.extras, rest, strict=True))
    # Scaled products of queries and keys, softly capped where the call says so.
    scale = number(call, "scale", 0.0) or float(q.shape[3]) ** -0.5
    scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).transpose(2, 3) * scale
    scores = attrs.softcap * torch.tanh(scores / attrs.softcap) if attrs.softcap else scores
    if "bias" in extras:
        # A bias of numbers is added; one of truth values says what is seen.
        bias = extras["bias"]
        scores = scores + bias.clamp(min=HIDDEN) if bias.is_floating_point() else scores.masked_fill(bias == 0, HIDDEN)
    scores = scores.masked_fill(~_visible(call, attrs, (q.shape[2], k.shape[2]), extras.get("ids")), HIDDEN)
    sinks = extras.get("sinks")
    if sinks is not None:
        scores = torch.cat((scores, sinks.reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)), dim=3)
    weights = torch.softmax(scores, dim=3)[..., : k.shape[2]]
    values = v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)
    return (weights @ values).transpose(1, 2), torch.logsumexp(scores, dim=3)


def _visible(call: RankCall, attrs: AttentionAttrs, sizes: tuple[int, int], ids: Tensor | None) -> Tensor:
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


def _positions(call: RankCall, balanced: bool, queries: int, keys: int) -> tuple[Tensor, Tensor]:
    """Positions of this rank's queries and of all keys: of a balanced split as it distributes, else the last ones."""
    if balanced:
        return call.positions(keys)
    return torch.arange(queries) + (keys - queries), torch.arange(keys)


def index_keys(call: RankCall) -> tuple[Tensor, ...]:
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


def kv_append(call: RankCall) -> tuple[Tensor, ...]:
    """New keys or values behind the cache."""
    return (torch.cat(call.inputs, dim=attrs_of(call, KvAppendAttrs).dim),)


REFERENCES: Mapping[str, Reference] = {
    "attention": attention,
    "attention_bwd": attention_bwd,
    "index_keys": index_keys,
    "kv_append": kv_append,
    "norm": norm,
    "norm_bwd": norm_bwd,
    "rope": rope,
    "rope_bwd": rope_bwd,
    "softmax": softmax,
    "softmax_bwd": softmax_bwd,
    "cross_entropy": cross_entropy,
    "cross_entropy_bwd": cross_entropy_bwd,
}
