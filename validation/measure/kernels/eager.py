"""The forward of each kind of node as eager code runs it; autograd knows the backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from .ground import HEAD_DIM, VOCABULARY, Ground
from .huggingface import rms_norm, rotate

Forward: TypeAlias = Callable[[], Tensor]
# A forward, and the leaves that get gradients.
Leaves: TypeAlias = tuple[Forward, tuple[Tensor, ...]]
Build: TypeAlias = Callable[[Ground], Leaves]


def unary(fn: Callable[[Tensor], Tensor]) -> Build:
    """Return a function of one activation."""

    def build(at: Ground) -> Leaves:
        x = at.full()
        return lambda: fn(x), (x,)

    return build


def binary(fn: Callable[[Tensor, Tensor], Tensor]) -> Build:
    """Return a function of two activations."""

    def build(at: Ground) -> Leaves:
        x, y = at.full(), at.full()
        return lambda: fn(x, y), (x, y)

    return build


def rms(at: Ground) -> Leaves:
    """LlamaRMSNorm as HuggingFace writes it."""
    x, module = at.full(), rms_norm(at.cols, at.device.kind, at.dtype)
    return lambda: module(x), (x, *module.parameters())


def layer(at: Ground) -> Leaves:
    """Layer norm."""
    x, w, b = at.full(), at.leaf(at.cols), at.leaf(at.cols)
    return lambda: F.layer_norm(x, (at.cols,), w, b), (x, w, b)


def rope(at: Ground) -> Leaves:
    """Rotary embedding; heads lie beside one another in memory, as a projection leaves them."""
    x = at.full()
    cos, sin = (at.device.random(at.dtype, 1, 1, at.rows, HEAD_DIM) for _ in range(2))
    heads = x.view(1, at.rows, at.cols // HEAD_DIM, HEAD_DIM).transpose(1, 2)
    return lambda: rotate(heads, cos, sin), (x,)


def embedding(at: Ground) -> Leaves:
    """Look up one row of a table for each index."""
    table, ids = at.leaf(VOCABULARY, at.cols), at.indices(VOCABULARY)
    return lambda: F.embedding(ids, table), (table,)


def loss(at: Ground) -> Leaves:
    """Mean cross-entropy of logits in fp32, as HuggingFace takes it."""
    logits, labels = at.full(), at.indices(at.cols)
    return lambda: F.cross_entropy(logits.float(), labels), (logits,)
