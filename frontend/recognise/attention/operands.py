"""The operands of attention's two products as tensors [batch, heads, length, width], read off the products' specs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ....ir.ops import Trait, has
from ....ir.ops.tensors.layout import PermuteAttrs
from ....ir.sizes.expr import Dim, as_dim, product
from ...aten.matmul_fold import through
from ..look import UNCHANGED, Look, fn_of
from ..rewrite import Draft
from .grouped_heads import each_head_once

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor whose dims `batch`, `length` and `width` are groups of positions in `dims`, the dims to read it in."""

    value: int
    dims: tuple[Dim, ...]
    batch: tuple[int, ...]
    length: tuple[int, ...]
    width: tuple[int, ...]

    def sizes(self, positions: Sequence[int]) -> Dim:
        """Return the number of entries of some dims together."""
        return product_of(self.dims[i] for i in positions)


def product_of(dims: Iterator[Dim]) -> Dim:
    """Return a product as a dim."""
    return as_dim(product(tuple(dims)))


def operand(
    look: Look, ident: int, letters: str, batch: str, length: str, width: str, scaled: bool = True
) -> Operand | None:
    """Return the tensor behind casts, copies, views and, if `scaled`, scalings whose batch dims are [batch, heads].

    Of all tensors on the way back that fit the furthest counts. A batch of one dim is a single head.
    """
    wanted = tuple(tuple(letters.index(c) for c in group) for group in (batch, length, width))
    best: Operand | None = None
    for value, groups in _forms(look, ident, scaled):
        flat = [tuple(d for i in positions for d in groups[i]) for positions in wanted]
        found = Operand(value, look.value(value).type.dims, *flat)
        if len(found.width) == 1 and (best is None or len(found.batch) == 2 or len(best.batch) != 2):
            best = found
    return best


def _forms(look: Look, ident: int, scaled: bool) -> Iterator[tuple[int, Groups]]:
    """Yield a value and all it is a view or a multiple of, with the dims that each of its dims flattens."""
    groups: Groups = tuple((i,) for i in range(look.value(ident).type.rank))
    yield ident, groups
    while (node := look.producer.get(ident)) is not None:
        source = node.inputs[0] if node.inputs else -1
        if has(node, Trait.RESHAPES, Trait.PERMUTES):
            step = through(node, look.value(source).type.dims, look.value(ident).type.dims)
            if step is None:
                return
            groups = tuple(tuple(a for d in g for a in step[d]) for g in groups)
        elif not has(node, *UNCHANGED):
            given = look.operands(node)
            if not scaled or fn_of(node) not in ("mul", "div") or len(given) != 1:
                return
            (source,) = given
        ident = source
        yield ident, groups


def without_repeats(look: Look, given: Operand) -> Operand:
    """Return keys or values with each head once."""
    if len(given.batch) < 2:
        return given
    wide = look.made_by_op(look.base(given.value), Trait.EXPANDS)
    if len(given.batch) == 3 and wide is not None:
        narrow = look.value(wide.inputs[0]).type.dims
        repeated = given.batch[2]
        if len(narrow) == len(given.dims) and narrow[repeated] == 1:
            return Operand(wide.inputs[0], narrow, given.batch, given.length, given.width)
    if len(given.batch) != 2:
        return given
    value, dims = each_head_once(look, given.value, given.batch[1])
    return Operand(value, dims, given.batch, given.length, given.width)


def by_head(draft: Draft, given: Operand, shared: int) -> int:
    """Return a value [batch, heads, length, width]; `shared` dims of the length are heads that share keys."""
    look = draft.look
    ident = given.value
    if look.value(ident).type.dims != given.dims:
        ident = draft.view("reshape", ident, given.dims)
    order = (*given.batch, *given.length, *given.width)
    dims = tuple(given.dims[i] for i in order)
    if order != tuple(range(len(order))):
        ident = draft.view("permute", ident, dims, PermuteAttrs(order))
    heads = len(given.batch) + shared
    outer = (dims[0], product_of(iter(dims[1:heads])), *dims[heads:])
    return ident if outer == dims else draft.view("reshape", ident, outer)


__all__ = ["Operand", "by_head", "operand", "without_repeats"]
