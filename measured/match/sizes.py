"""Sizes by which kernels and nodes know one another: of products, of attention, of messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from math import prod
from typing import TypeAlias

from ..traces.kinds import KernelKind
from ..traces.trace import Message
from .planned import HeadSizes, MatrixProduct, PlannedNode

# What kind of thing it is, then its sizes.
Key: TypeAlias = tuple[str, tuple[int, ...]]
Dims: TypeAlias = tuple[int, ...]
# Operators whose first two matrices are the factors; others may be called with the result, or a summand, before them.
_FACTORS_FIRST = ("aten::mm", "aten::bmm", "aten::matmul", "aten::linear", "aten::_scaled_mm", "aten::_grouped_mm")


def product_key(p: MatrixProduct) -> Key:
    """Return the key of a product; a product and its transpose are one.

    >>> product_key(MatrixProduct(1, 64, 32, 8)) == product_key(MatrixProduct(1, 32, 64, 8))
    True
    """
    return "product", (p.batch, min(p.m, p.n), max(p.m, p.n), p.k)


def dims_of(inputs: str) -> Sequence[Dims]:
    """Return the shapes of tensors in the text that a trace has of an operator's inputs, without scalars.

    >>> dims_of("c10::BFloat16 [[8, 4], [4, 2], []]")
    ((8, 4), (4, 2))
    """
    at = inputs.find("[")
    try:
        tree = json.loads(inputs[at:]) if at >= 0 else []
    except ValueError:
        return ()
    return tuple(tuple(d) for d in tree if isinstance(d, list) and d and all(isinstance(n, int) for n in d))


def key_of(kind: KernelKind, op: str, inputs: str) -> Key | None:
    """Return the key of an operator's call, None where its shapes do not say.

    >>> key_of(KernelKind.GEMM, "aten::addmm", "float [[32], [64, 8], [8, 32]]")
    ('product', (1, 32, 64, 8))
    """
    dims = dims_of(inputs)
    if kind is KernelKind.GEMM:
        found = _product(op, [d for d in dims if len(d) > 1])
        return None if found is None else product_key(found)
    if kind is KernelKind.ATTENTION:
        # The queries come first, of the backward phase the gradient of what they made; layouts of heads differ.
        sizes = next((d for d in dims if len(d) in (3, 4)), None)
        return None if sizes is None else ("attention", (prod(sizes),))
    return None


def message_key(message: Message) -> Key:
    """Return the key of a collective."""
    return "message", (*message.kind.encode(), round(message.num_bytes))


def keys_of(node: PlannedNode) -> Iterator[Key]:
    """Yield the keys of the kernels that a node may run as, each once a kernel.

    Attention is one kernel, or its products by themselves.
    """
    yield from map(product_key, node.products)
    if node.heads is not None:
        h = node.heads
        yield "attention", (h.batch * h.heads * h.queries * h.width,)
        yield from map(product_key, _attention_products(h, node.phase == "forward"))
    if node.sent is not None:
        yield message_key(Message(node.op, node.sent.ranks, node.sent.num_bytes))


def _attention_products(h: HeadSizes, forward: bool) -> Iterator[MatrixProduct]:
    batch = h.batch * h.heads
    scores, values = MatrixProduct(batch, h.queries, h.keys, h.width), MatrixProduct(batch, h.queries, h.width, h.keys)
    if forward:
        return iter((scores, values))
    turned = MatrixProduct(batch, h.keys, h.width, h.queries)
    return iter((turned, scores, values, turned))


def _product(op: str, matrices: Sequence[Dims]) -> MatrixProduct | None:
    if len(matrices) < 2:
        return None
    if len(matrices) > 2 and op not in _FACTORS_FIRST:
        result, found = matrices[0], _of_factors(*matrices[1:3])
        if found is not None and prod(result) == found.batch * found.m * found.n:
            return found
    return _of_factors(*matrices[:2])


def _of_factors(a: Dims, b: Dims) -> MatrixProduct | None:
    """Return the product of two factors; the second may be a weight as linear layers hold it, [n, k]."""
    k = a[-1]
    if len(b) == 2:
        m = prod(a[:-1])
        if b[0] == k:
            return MatrixProduct(1, m, b[1], k)
        return MatrixProduct(1, m, b[0], k) if b[1] == k else None
    if len(a) == 2 and b[1] == k:
        # Rows that are distributed among weights.
        return MatrixProduct(1, a[0], b[2], k)
    if a[:-2] == b[:-2] and b[-2] == k:
        return MatrixProduct(prod(a[:-2]), a[-2], b[-1], k)
    return None
