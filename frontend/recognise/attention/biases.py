"""What is added to scores and is no mask of positions, as one tensor [batch, heads, queries, keys]."""

from __future__ import annotations

from collections.abc import Sequence

from ....ir.ops import Trait
from ....ir.ops.tensors.pointwise import ElementwiseAttrs, broadcast
from ....ir.sizes.expr import Dim, product
from ....ir.types import TensorType
from ..look import UNCHANGED
from ..rewrite import Draft

Shape = tuple[Dim, ...]


def joined_bias(draft: Draft, biases: Sequence[int], scores: Shape) -> int | None:
    """Return all that is added as one tensor, None where there is nothing or its dims are not those of scores."""
    fitted = [_fitted(draft, i, scores) for i in biases]
    found: int | None = None
    for bias in fitted:
        if bias is None:
            return None
        found = bias if found is None else _sum(draft, found, bias)
    return found


def _fitted(draft: Draft, ident: int, scores: Shape) -> int | None:
    """Take expands and casts away; dims [batch x heads, ..] come apart, missing dims in front are ones."""
    look = draft.look
    ident = look.behind(ident, *UNCHANGED, Trait.EXPANDS)
    dims = look.value(ident).type.dims
    if len(dims) == len(scores) - 1 and dims[0] == product(scores[:2]):
        dims = (*scores[:2], *dims[1:])
    dims = (1,) * (len(scores) - len(dims)) + dims
    if len(dims) != len(scores) or any(d not in (1, s) for d, s in zip(dims, scores, strict=True)):
        return None
    return ident if look.value(ident).type.dims == dims else draft.view("reshape", ident, dims)


def _sum(draft: Draft, a: int, b: int) -> int:
    left, right = (draft.look.value(i).type for i in (a, b))
    wider = left if left.dtype.is_floating else right
    dims = broadcast(left.dims, right.dims)
    assert dims is not None
    return draft.add("elementwise", (a, b), [TensorType(dims, wider.dtype)], ElementwiseAttrs(("add",)))


__all__ = ["joined_bias"]
