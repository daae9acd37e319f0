"""The way from attention's weights back to its scores: masks, caps, sinks, dropout and biases that lie between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from ...ir.graph import Node
from ...ir.ops import OpClass, Trait, has
from ...ir.ops.tensors.layout import ConcatAttrs
from ...ir.ops.tensors.normalize import DimAttrs
from ...ir.ops.tensors.pointwise import ElementwiseAttrs, broadcast
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, product
from ...ir.types import TensorType
from .masks import RecognisedMask, read_mask
from .rewrite import UNCHANGED, Draft, Look, fn_of

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


@dataclass
class Scores:
    """What lies between the products: their nodes, the mask, and what else bends the scores."""

    product: Node
    nodes: list[Node] = field(default_factory=list)
    mask: RecognisedMask = field(default_factory=RecognisedMask)
    biases: list[int] = field(default_factory=list)
    softcap: float = 0.0
    sinks: int | None = None
    dropout: float = 0.0


def scores_behind(look: Look, weights: int) -> Scores | None:
    """Return what leads from a product to attention weights, None where these are no softmax of one."""
    after: list[Node] = []
    found = _softmax_behind(look, weights, after)
    if found is None:
        return None
    softmax, dropout = found
    if not isinstance(softmax.attrs, DimAttrs) or softmax.attrs.dim != look.value(softmax.key).type.rank - 1:
        return None
    ident, sinks, nodes = _without_sinks(look, softmax.inputs[0])
    scores = _product_behind(look, ident)
    if scores is None:
        return None
    scores.nodes += [*after, softmax, *nodes]
    scores.dropout, scores.sinks = dropout, sinks
    return scores


def _softmax_behind(look: Look, ident: int, after: list[Node]) -> tuple[Node, float] | None:
    """Follow weights back through casts, views, dropout and the cut that takes sinks off."""
    dropout = 0.0
    while (node := look.producer.get(ident)) is not None:
        if has(node, Trait.SOFTMAX, backward=False):
            return node, dropout
        fn = fn_of(node)
        test = _repair_test(look, node) if fn == "where" else None
        if has(node, Trait.TAKES_RANGE) or fn == "dropout" or test is not None:
            after += [node] if test is None else [node, test]
            dropout = (look.number(node) or 0.0) if fn == "dropout" else dropout
        elif not has(node, *UNCHANGED, Trait.RESHAPES):
            return None
        ident = node.inputs[-1] if fn == "where" else node.inputs[0]
    return None


def _repair_test(look: Look, node: Node) -> Node | None:
    """Return the test of a choice that only takes what is no number out of the weights: where(isnan(p), 0, p)."""
    first, last = node.inputs[0], node.inputs[-1]
    test = look.made_by(first, "compare")
    return test if test is not None and look.operands(test) == (last,) else None


def _without_sinks(look: Look, ident: int) -> tuple[int, int | None, list[Node]]:
    """Return scores without the learned one a head that stands beside them, that one, and the nodes between."""
    nodes: list[Node] = []
    shift = look.made_by(look.base(ident), "sub")
    most = None if shift is None else look.producer.get(shift.inputs[-1])
    if shift is not None and most is not None and look.is_largest(most):
        nodes += [shift, most]
        ident = shift.inputs[0]
    join = look.made_by_op(look.base(ident), Trait.JOINS)
    if join is None or len(join.inputs) != 2 or not isinstance(join.attrs, ConcatAttrs):
        return ident, None, nodes
    sinks = look.behind(join.inputs[1], *UNCHANGED, Trait.RESHAPES, Trait.EXPANDS)
    if look.value(sinks).type.rank != 1:
        return ident, None, nodes
    return join.inputs[0], sinks, [*nodes, join]


def _product_behind(look: Look, ident: int) -> Scores | None:
    """Follow scores back to their product; of several operands one leads there, the others are masks."""
    while (node := look.producer.get(ident)) is not None and has(node, *UNCHANGED, Trait.RESHAPES):
        ident = node.inputs[0]
    if node is None:
        return None
    if has(node, OpClass.MATMUL):
        return Scores(node, [node], *_bias_of(look, node))
    given = look.operands(node)
    if fn_of(node) not in ("mul", "div", "add", "sub", "where", "tanh", "max", "min", "clamp"):
        return None
    for position, way in enumerate(given):
        found = _product_behind(look, way)
        if found is not None:
            return _with_step(look, node, found, (*given[:position], *given[position + 1 :]))
    return None


def _bias_of(look: Look, node: Node) -> tuple[RecognisedMask, list[int]]:
    """What a product adds in its epilogue."""
    mask, biases = RecognisedMask(), []
    for bias in node.inputs[2:]:
        said = read_mask(look, bias)
        mask |= said
        biases += [] if said.known else [bias]
    return mask, biases


def _with_step(look: Look, node: Node, scores: Scores, others: tuple[int, ...]) -> Scores | None:
    """Join one step to what is known; None when a factor is no mask."""
    fn = fn_of(node)
    scores.nodes.append(node)
    if fn == "tanh":
        # The number that scores are divided by before the tanh; 1 where it is not known.
        below = look.made_by(look.base(node.inputs[0]), "div", "mul")
        number = None if below is None else look.number(below)
        if below is None or not number:
            scores.softcap = 1.0
        else:
            scores.softcap = number if fn_of(below) == "div" else 1.0 / number
    for other in others:
        said = read_mask(look, other)
        if not said.known:
            if fn not in ("add", "sub", "where"):
                return None
            scores.biases.append(other)
        scores.mask |= said
    return scores
