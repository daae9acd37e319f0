"""Softmax in single steps, exp(x - max x) / sum, to `softmax`."""

from __future__ import annotations

from ....ir.graph import Node
from ....ir.ops import Trait
from ....ir.ops.tensors.normalize import DimAttrs, ReduceAttrs
from ..look import Look, fn_of
from ..rewrite import Draft


def softmax(look: Look, node: Node) -> Draft | None:
    """Find a softmax at its division; the maximum may be left out."""
    if fn_of(node) != "div" or len(node.inputs) != 2:
        return None
    power = look.made_by(look.base(node.inputs[0]), "exp")
    total = look.made_by_op(look.base(node.inputs[1]), Trait.REDUCES)
    if power is None or total is None or not isinstance(total.attrs, ReduceAttrs):
        return None
    attrs = total.attrs
    if attrs.fn != "sum" or len(attrs.dims) != 1 or look.base(total.inputs[0]) != power.key:
        return None
    x, inside = _shifted(look, power.inputs[0], attrs.dims)
    if not look.is_closed((power, total, *inside), node):
        return None
    draft = Draft(look, node)
    draft.add("softmax", (x,), [look.value(node.key).type], DimAttrs(attrs.dims[0]))
    return draft


def _shifted(look: Look, ident: int, dims: tuple[int, ...]) -> tuple[int, tuple[Node, ...]]:
    """Return x of x - max(x) and the nodes; any other value is itself."""
    node = look.made_by(ident, "sub")
    most = None if node is None or len(node.inputs) != 2 else look.producer.get(node.inputs[1])
    if node is None or most is None or not look.is_largest(most) or most.inputs[0] != node.inputs[0]:
        return ident, ()
    along = most.attrs.dims if isinstance(most.attrs, ReduceAttrs) else dims
    if along != dims:
        return ident, ()
    return node.inputs[0], (node, most)


__all__ = ["softmax"]
