"""What a mask says: that the future is hidden, that only a window is seen, or something only its values know."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...ir.graph import Node, Role
from ...ir.ops.pointwise import FillAttrs
from .look import LAYOUT, UNCHANGED, Look, fn_of

_THROUGH = (*UNCHANGED, *LAYOUT)
_CONSTANT = ("zeros", "ones", "constant", "empty")


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


_UNKNOWN = Mask(known=False)


def read_mask(look: Look, ident: int) -> Mask:
    """Return what a tensor says that is added to scores, multiplied with them, or chooses among them.

    Comparisons of ranges, triangles of constants and square stored constants are understood; a tensor that is given
    to the model, learned or computed from data is not.
    """
    ident = look.behind(ident, *_THROUGH)
    node = look.producer.get(ident)
    if node is None:
        return _stored(look, ident)
    if isinstance(node.attrs, FillAttrs):
        return Mask() if node.attrs.kind in _CONSTANT else _UNKNOWN
    fn = fn_of(node)
    if fn == "compare":
        return _compared(look, node)
    if fn == "where" and len(node.inputs) == 1 and (triangle := re.search("tri[lu]", look.said(node).name)):
        return read_mask(look, node.inputs[0]) | _triangle(look, node, triangle[0])
    if fn in ("where", "add", "sub", "mul", "and", "or", "not", "div", "min", "max"):
        return _all_of(look, look.operands(node))
    return _UNKNOWN


def _all_of(look: Look, idents: tuple[int, ...]) -> Mask:
    found = Mask()
    for i in idents:
        found |= read_mask(look, i)
    return found


def _stored(look: Look, ident: int) -> Mask:
    """A stored square of numbers is the causal mask; one stored number says nothing."""
    value = look.value(ident)
    if value.role is not Role.BUFFER:
        return _UNKNOWN
    dims = value.type.dims
    if value.type.numel == 1:
        return Mask()
    is_square = len(dims) > 1 and dims[-1] == dims[-2] and all(d == 1 for d in dims[:-2])
    return Mask(causal=True) if is_square else _UNKNOWN


def _triangle(look: Look, node: Node, name: str) -> Mask:
    """`tril` and `triu` with their diagonal: at 0 or 1 the causal mask, further off the far end of a window."""
    diagonal = int(look.number(node) or 0)
    if diagonal in (0, 1):
        return Mask(causal=True)
    # tril(-w) marks what lies w and more behind, triu(1 - w) what is seen.
    return Mask(window=-diagonal if name == "tril" else 1 - diagonal) if diagonal < 0 else _UNKNOWN


def _compared(look: Look, node: Node) -> Mask:
    """Positions with positions; or a mask with a number."""
    given = look.operands(node)
    offsets: list[float] = []
    if all(_is_position(look, i, offsets) for i in given):
        return _of_positions(look, node, given, offsets)
    return _all_of(look, given) if len(given) == 1 else _UNKNOWN


def _of_positions(look: Look, node: Node, given: tuple[int, ...], offsets: list[float]) -> Mask:
    number = look.number(node) if len(given) == 1 else None
    if number is not None:
        offsets.append(number)
    reach = max((abs(o) for o in offsets), default=0.0)
    if reach <= 1:
        return Mask(causal=True)
    name = look.said(node).name.rpartition(".")[2]
    # Distances are compared with a number: d <= w sees one key more than d < w.
    return Mask(window=int(reach) + (len(given) == 1 and name in ("le", "gt")))


def _is_position(look: Look, ident: int, offsets: list[float]) -> bool:
    """Whether a value is made of ranges, of positions that are given, and of plain numbers, which are collected."""
    ident = look.behind(ident, *_THROUGH)
    node = look.producer.get(ident)
    if node is None:
        value = look.value(ident)
        return value.role is Role.INPUT and "position" in value.name
    if isinstance(node.attrs, FillAttrs):
        return node.attrs.kind == "arange"
    if fn_of(node) not in ("add", "sub"):
        return False
    given = look.operands(node)
    if len(given) == 1 and (number := look.number(node)) is not None:
        offsets.append(number)
    return all(_is_position(look, i, offsets) for i in given)


__all__ = ["Mask", "read_mask"]
