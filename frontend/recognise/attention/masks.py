"""What a mask says: that the future is hidden, that only a window is seen, or something only its values know."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ....ir.graph import Node, Role
from ....ir.ops import Trait
from ....ir.ops.tensors.pointwise import FillAttrs
from ....ir.types import DType
from ..look import UNCHANGED, Look, fn_of
from .positions import threshold, turns

_THROUGH = (*UNCHANGED, Trait.VIEW)
_CONSTANT = ("zeros", "ones", "constant", "empty")
_MASK_NAME = re.compile("mask|causal|tri[lu]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Mask:
    """`causal` hides the future, `window` > 0 shows that many keys; `known` is False where values decide, too."""

    causal: bool = False
    window: int = 0
    known: bool = True

    def __or__(self, other: Mask) -> Mask:
        """Join what two parts of a mask say."""
        window = min((w for w in (self.window, other.window) if w), default=0)
        return Mask(self.causal or other.causal, window, self.known and other.known)


_JOINING = (
    "where", "add", "sub", "mul", "and", "or", "not", "div", "floor_div", "remainder", "square", "reciprocal",
    "addcmul", "min", "max",
)  # fmt: skip
_UNKNOWN = Mask(known=False)


def read_mask(look: Look, ident: int) -> Mask:
    """Return what a tensor says that is added to scores, multiplied with them, or chooses among them.

    Comparisons of ranges by less or greater, triangles of constants and stored squares of flags are understood;
    equality, the past hidden, and a tensor that is given to the model, learned or computed from data are not.
    """
    behind = _without_views(look, ident)
    if behind is None:
        return _UNKNOWN
    node = look.producer.get(behind)
    if node is None:
        return _stored(look, behind)
    if isinstance(node.attrs, FillAttrs):
        return Mask() if node.attrs.kind in _CONSTANT else _UNKNOWN
    fn = fn_of(node)
    if fn == "compare":
        return _compared(look, node)
    if fn == "where" and len(node.inputs) == 1 and (triangle := re.search("tri[lu]", look.said(node).name)):
        return read_mask(look, node.inputs[0]) | _triangle(look, node, triangle[0])
    if fn in _JOINING:
        return _all_of(look, look.operands(node))
    return _UNKNOWN


def _without_views(look: Look, ident: int) -> int | None:
    """Follow a value back through casts and views; None where one of them turns rows into columns."""
    while (node := look.made_by_op(ident, *_THROUGH)) is not None:
        if turns(node):
            return None
        ident = node.inputs[0]
    return ident


def _all_of(look: Look, idents: tuple[int, ...]) -> Mask:
    found = Mask()
    for i in idents:
        found |= read_mask(look, i)
    return found


def _stored(look: Look, ident: int, is_test: bool = False) -> Mask:
    """A stored square of flags is the causal mask, one of numbers where its name says so or it is tested for 0.

    Any other square of numbers may be a bias; one stored number says nothing.
    """
    value = look.value(ident)
    if value.role is not Role.BUFFER:
        return _UNKNOWN
    dims = value.type.dims
    if value.type.numel == 1:
        return Mask()
    is_square = len(dims) > 1 and dims[-1] == dims[-2] and all(d == 1 for d in dims[:-2])
    is_mask = is_test or value.type.dtype is DType.BOOL or _MASK_NAME.search(value.name) is not None
    return Mask(causal=True) if is_square and is_mask else _UNKNOWN


def _triangle(look: Look, node: Node, name: str) -> Mask:
    """`tril(k)` marks query - key >= -k, `triu(k)` marks query - key < 1 - k."""
    diagonal = int(look.number(node) or 0)
    return _beyond(-diagonal if name == "tril" else 1 - diagonal)


def _beyond(first: float) -> Mask:
    """The mask that tells distances below `first` from the others.

    Below 0 is the future, and what is at least 2 behind may be beyond a window. Which side is hidden need not be known:
    the other way round the first query, or the last, would see nothing at all. At 1 the present is with the future: a
    mask of the past, as is any number below 0.
    """
    if first == 0:
        return Mask(causal=True)
    return Mask(window=int(first)) if first > 1 else _UNKNOWN


def _compared(look: Look, node: Node) -> Mask:
    """Positions with positions; or a mask with a number."""
    first = threshold(look, node)
    if first is not None:
        return _beyond(first)
    given = look.operands(node)
    if len(given) != 1:
        return _UNKNOWN
    ident = _without_views(look, given[0])
    if ident is None:
        return _UNKNOWN
    return _stored(look, ident, is_test=True) if ident not in look.producer else read_mask(look, ident)


__all__ = ["Mask", "read_mask"]
