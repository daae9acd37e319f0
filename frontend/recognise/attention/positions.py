"""Positions of queries and keys that are compared: how far a key must lie behind a query to be on one side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ....ir.graph import Node, Role
from ....ir.ops import Trait
from ....ir.ops.tensors.layout import PermuteAttrs
from ....ir.ops.tensors.pointwise import FillAttrs
from ..look import UNCHANGED, Look, fn_of

_THROUGH = (*UNCHANGED, Trait.VIEW)
_LESS = frozenset({"lt", "less"})
_LESS_EQUAL = frozenset({"le", "lessorequal", "less_equal"})
_GREATER = frozenset({"gt", "greater"})
_GREATER_EQUAL = frozenset({"ge", "greaterorequal", "greater_equal"})
# What a comparison is when its sides change places.
_TURNED: Mapping[str, str] = MappingProxyType({"<": ">", "<=": ">=", ">": "<", ">=": "<="})


@dataclass(frozen=True, slots=True)
class _Distance:
    """`sign` times (query - key), plus an offset."""

    sign: int
    offset: float


def threshold(look: Look, node: Node) -> float | None:
    """Return the c for which a comparison tells query - key < c from query - key >= c.

    None for equality, and for all that is not one position, or distance, with another.
    """
    relation = _relation(look.said(node).name)
    given = look.operands(node)
    if not relation:
        return None
    if len(given) == 2:
        found = _difference(look, given[0], given[1])
        return None if found is None else _solved(found, relation, 0.0)
    number = look.number(node)
    found = _distance(look, given[0]) if len(given) == 1 and number is not None else None
    if found is None or number is None:
        return None
    return _solved(found, relation if node.inputs[0] == given[0] else _TURNED[relation], number)


def turns(node: Node) -> bool:
    """Whether a view swaps the last two dims, so that queries and keys change places."""
    dims = node.attrs.dims if isinstance(node.attrs, PermuteAttrs) else ()
    return len(dims) > 1 and dims[-1] < dims[-2]


def _relation(name: str) -> str:
    last = name.rpartition(".")[2].lower()
    names = (("<", _LESS), ("<=", _LESS_EQUAL), (">", _GREATER), (">=", _GREATER_EQUAL))
    return next((sign for sign, words in names if last in words), "")


def _solved(found: _Distance, relation: str, number: float) -> float:
    """The first whole distance on the far side: of `<` and `>=` the number itself, of `<=` and `>` one more."""
    bound = (number - found.offset) * found.sign
    side = relation if found.sign > 0 else _TURNED[relation]
    return bound if side in ("<", ">=") else bound + 1


def _distance(look: Look, ident: int) -> _Distance | None:
    """Follow a value back to the difference of two positions, plain numbers added on the way."""
    ident = look.behind(ident, *UNCHANGED, Trait.EXPANDS, Trait.RESHAPES, Trait.TAKES_RANGE)
    node = look.producer.get(ident)
    if node is None or fn_of(node) not in ("add", "sub"):
        return None
    given = look.operands(node)
    if len(given) == 2:
        return _difference(look, given[0], given[1]) if fn_of(node) == "sub" else None
    step = _step(look, node)
    inner = _distance(look, given[0]) if len(given) == 1 and step is not None else None
    return None if inner is None or step is None else _Distance(inner.sign, inner.offset + step)


def _difference(look: Look, first: int, second: int) -> _Distance | None:
    offsets = _offset(look, first), _offset(look, second)
    if offsets[0] is None or offsets[1] is None:
        return None
    one, other = _axes(look, first), _axes(look, second)
    if not one - other and not other - one:
        return None
    # Scores are [.., query, key]: the key's own dim is the later one. A single query has no dim of its own.
    is_query = max(one - other, default=-_FAR) < max(other - one, default=-_FAR)
    return _Distance(1 if is_query else -1, offsets[0] - offsets[1])


_FAR = 64


def _axes(look: Look, ident: int) -> frozenset[int]:
    """The dims along which a value changes, counted from the last, which is -1."""
    dims = look.value(look.behind(ident, *UNCHANGED, Trait.EXPANDS)).type.dims
    return frozenset(i - len(dims) for i, d in enumerate(dims) if d != 1)


def _offset(look: Look, ident: int) -> float | None:
    """The plain numbers added to a range or to positions that are given; None for what is neither."""
    ident = look.behind(ident, *_THROUGH)
    node = look.producer.get(ident)
    if node is None:
        value = look.value(ident)
        return 0.0 if value.role is Role.INPUT and "position" in value.name else None
    if isinstance(node.attrs, FillAttrs):
        return 0.0 if node.attrs.kind == "arange" else None
    return _moved(look, node) if fn_of(node) in ("add", "sub") else None


def _moved(look: Look, node: Node) -> float | None:
    given = look.operands(node)
    found = [_offset(look, i) for i in given]
    known = [f for f in found if f is not None]
    if len(known) != len(found) or not found:
        return None
    if len(given) > 1:
        return sum(known) if fn_of(node) == "add" else None
    step = _step(look, node)
    return None if step is None else known[0] + step


def _step(look: Look, node: Node) -> float | None:
    """What a call adds to its one operand; 0 where it is a size, such as how much is cached; None for `number - x`."""
    number = look.number(node) or 0.0
    if fn_of(node) == "add":
        return number
    is_turned = look.said(node).name.endswith("rsub") or look.is_number(node.inputs[0])
    return None if is_turned else -number


__all__ = ["threshold", "turns"]
