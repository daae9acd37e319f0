"""What a mask says, by the positions that it compares: the future is hidden, a window is seen, or its value counts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from ...ir.graph import Node, Role
from ...ir.ops import Trait
from ...ir.ops.tensors.layout import PermuteAttrs
from ...ir.ops.tensors.pointwise import FillAttrs
from ...ir.records import dataclass
from ...ir.types import DType
from .rewrite import UNCHANGED, Look, fn_of

_THROUGH = (*UNCHANGED, Trait.VIEW)
# Comparisons by the names that torch has for them; the reader of ONNX says them so, too.
_RELATIONS: Mapping[str, str] = MappingProxyType(
    {
        "lt": "<",
        "less": "<",
        "le": "<=",
        "less_equal": "<=",
        "gt": ">",
        "greater": ">",
        "ge": ">=",
        "greater_equal": ">=",
    }
)
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
    relation = _RELATIONS.get(look.said(node).name.rpartition(".")[2].lower())
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


_CONSTANT = ("zeros", "ones", "constant", "empty")
_MASK_NAME = re.compile("mask|causal|tri[lu]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RecognisedMask:
    """`causal` hides the future, `window` > 0 shows that many keys; `known` is False where values decide, too."""

    causal: bool = False
    window: int = 0
    known: bool = True

    def __or__(self, other: RecognisedMask) -> RecognisedMask:
        """Join what two parts of a mask say."""
        window = min((w for w in (self.window, other.window) if w), default=0)
        return RecognisedMask(self.causal or other.causal, window, self.known and other.known)


_JOINING = (
    "where", "add", "sub", "mul", "and", "or", "not", "div", "floor_div", "remainder", "square", "reciprocal",
    "addcmul", "min", "max",
)  # fmt: skip
_UNKNOWN = RecognisedMask(known=False)


def read_mask(look: Look, ident: int) -> RecognisedMask:
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
        return RecognisedMask() if node.attrs.kind in _CONSTANT else _UNKNOWN
    fn = fn_of(node)
    if fn == "compare":
        return _compared(look, node)
    if fn == "where" and len(node.inputs) == 1 and (triangle := re.search("tri[lu]", look.said(node).name)):
        # `tril(k)` marks query - key >= -k, `triu(k)` marks query - key < 1 - k.
        name = triangle[0]
        diagonal = int(look.number(node) or 0)
        return read_mask(look, node.inputs[0]) | _beyond(-diagonal if name == "tril" else 1 - diagonal)
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


def _all_of(look: Look, idents: tuple[int, ...]) -> RecognisedMask:
    found = RecognisedMask()
    for i in idents:
        found |= read_mask(look, i)
    return found


def _stored(look: Look, ident: int, is_test: bool = False) -> RecognisedMask:
    """A stored square of flags is the causal mask, one of numbers where its name says so or it is tested for 0.

    Any other square of numbers may be a bias; one stored number says nothing.
    """
    value = look.value(ident)
    if value.role is not Role.BUFFER:
        return _UNKNOWN
    dims = value.type.dims
    if value.type.numel == 1:
        return RecognisedMask()
    is_square = len(dims) > 1 and dims[-1] == dims[-2] and all(d == 1 for d in dims[:-2])
    is_mask = is_test or value.type.dtype is DType.BOOL or _MASK_NAME.search(value.name) is not None
    return RecognisedMask(causal=True) if is_square and is_mask else _UNKNOWN


def _beyond(first: float) -> RecognisedMask:
    """The mask that tells distances below `first` from the others.

    Below 0 is the future, and what is at least 2 behind may be beyond a window. Which side is hidden need not be known:
    the other way round the first query, or the last, would see nothing at all. At 1 the present is with the future: a
    mask of the past, as is any number below 0.
    """
    if first == 0:
        return RecognisedMask(causal=True)
    return RecognisedMask(window=int(first)) if first > 1 else _UNKNOWN


def _compared(look: Look, node: Node) -> RecognisedMask:
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
