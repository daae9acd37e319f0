"""What a group of nodes does, as arrays: the rows of its table by name, entries x points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...ir.ops import Work
from ...ir.ops.base import AttentionShape, GemmShape
from ...ir.records import dataclass
from ...ir.sizes.expr import Expr, as_expr

Array: TypeAlias = NDArray[np.float64]
Index: TypeAlias = NDArray[np.intp]
# What is listed of entries, and of calls of attention, banks and products.
_COLUMNS = (5, 6, 3, 5)


@dataclass(frozen=True, slots=True)
class Products:
    """Matrix products, products x points; `owner` is the entry that each belongs to."""

    owner: Index
    batch: Array
    m: Array
    n: Array
    k: Array
    groups: Array


@dataclass(frozen=True, slots=True)
class AttentionCalls:
    """Calls of attention, calls x points; `owner` is the entry that each belongs to."""

    owner: Index
    batch: Array
    heads: Array
    kv_heads: Array
    q_len: Array
    kv_len: Array
    extra_bytes: Array


@dataclass(frozen=True, slots=True)
class ExpertBanks:
    """Banks of experts, banks x points; `owner` is the entry that each belongs to."""

    owner: Index
    weight_bytes: Array
    rows: Array
    num_experts: Array


@dataclass(frozen=True, slots=True)
class Amounts:
    """FLOPs by unit, bytes and shape of every entry, entries x points, and the parts that some have."""

    tensor_flops: Array
    vector_flops: Array
    num_bytes: Array
    rows: Array
    cols: Array
    lengths: AttentionCalls
    banks: ExpertBanks
    products: Products


@dataclass(frozen=True, slots=True)
class RowwiseCalls:
    """The largest tensor of a call as rows of its last dim."""

    rows: Expr
    cols: Expr


SCALAR = RowwiseCalls(as_expr(1), as_expr(1))


def exprs_of(works: Sequence[Work], shapes: Sequence[RowwiseCalls]) -> list[Expr]:
    """List what `amounts_of` reads, in its order."""
    rows = [w.tensor_flops for w in works] + [w.vector_flops for w in works] + [w.num_bytes for w in works]
    rows += [s.rows for s in shapes] + [s.cols for s in shapes]
    calls = [w.attention for w in works if w.attention is not None]
    banks = [w.experts for w in works if w.experts is not None]
    products = [g for w in works for g in w.gemms]
    return [
        *rows,
        *_columns([_lengths(c) for c in calls]),
        *_columns([(b.weight_bytes, b.rows, b.num_experts) for b in banks]),
        *_columns([_sizes(g) for g in products]),
    ]


@dataclass(frozen=True, slots=True)
class Owners:
    """Which entry each call of attention, bank and product belongs to."""

    calls: Index
    banks: Index
    products: Index

    @classmethod
    def of(cls, works: Sequence[Work]) -> Owners:
        """Look at the entries in order."""
        return cls(
            _owners(i for i, w in enumerate(works) if w.attention is not None),
            _owners(i for i, w in enumerate(works) if w.experts is not None),
            _owners(i for i, w in enumerate(works) for _ in w.gemms),
        )


def amounts_of(num_entries: int, owners: Owners, values: Array) -> Amounts:
    """Name the rows of an evaluated table, as `exprs_of` lists them."""
    counts = (num_entries, len(owners.calls), len(owners.banks), len(owners.products))
    ends = tuple(accumulate(c * n for c, n in zip(counts, _COLUMNS, strict=True)))
    parts = (values[a:b] for a, b in zip((0, *ends), ends, strict=False))
    whole, calls, banks, products = (
        part.reshape(n, count, values.shape[1]) for part, n, count in zip(parts, _COLUMNS, counts, strict=True)
    )
    tensor, vector, moved, rows, cols = whole
    return Amounts(
        tensor,
        vector,
        moved,
        rows,
        cols,
        AttentionCalls(owners.calls, *calls),
        ExpertBanks(owners.banks, *banks),
        Products(owners.products, *products),
    )


def _lengths(call: AttentionShape) -> tuple[Expr, ...]:
    return call.batch, call.heads, call.kv_heads, call.q_len, call.kv_len, call.extra_bytes


def _sizes(product: GemmShape) -> tuple[Expr, ...]:
    return product.batch, product.m, product.n, product.k, as_expr(product.groups)


def _columns(records: Sequence[tuple[Expr, ...]]) -> Iterable[Expr]:
    return (e for column in zip(*records, strict=True) for e in column)


def _owners(found: Iterable[int]) -> Index:
    return np.fromiter(found, dtype=np.intp)
