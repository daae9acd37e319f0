"""Activations and softmax in single steps to one node, and moves of data that are none."""

from __future__ import annotations

from ...ir.graph import Node, Role
from ...ir.ops import Trait, has
from ...ir.ops.fused.attention import KvAppendAttrs
from ...ir.ops.tensors.layout import ConcatAttrs, PermuteAttrs
from ...ir.ops.tensors.normalize import DimAttrs, ReduceAttrs
from ...ir.ops.tensors.pointwise import ElementwiseAttrs
from .rewrite import Draft, Look, fn_of


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


_MANY = 5


def turned_ones(look: Look, node: Node) -> Draft | None:
    """A permutation among whose five or more dims are some of size one, as einsum makes them: of the others alone."""
    if not isinstance(node.attrs, PermuteAttrs) or len(node.attrs.dims) < _MANY:
        return None
    source = look.value(node.inputs[0]).type.dims
    real = [d for d, size in enumerate(source) if size != 1]
    if len(real) == len(source):
        return None
    draft = Draft(look, node)
    narrow = draft.view("reshape", node.inputs[0], tuple(source[d] for d in real))
    order = tuple(real.index(d) for d in node.attrs.dims if d in real)
    if order != tuple(range(len(order))):
        narrow = draft.view("permute", narrow, tuple(source[real[d]] for d in order), PermuteAttrs(order))
    draft.view("reshape", narrow, look.value(node.key).type.dims)
    return draft


def result_in_order(look: Look, node: Node) -> Draft | None:
    """A copy of attention's result as it comes out: the kernel writes it so."""
    made = look.producer.get(node.inputs[0]) if has(node, Trait.COPIES) else None
    if made is None or not has(made, Trait.ATTENDS, backward=False):
        return None
    kind = look.value(node.key).type
    if look.value(node.inputs[0]).type != kind:
        return None
    draft = Draft(look, node)
    draft.add("reshape", node.inputs, [kind])
    return draft


def growing_cache(look: Look, node: Node) -> Draft | None:
    """A cache with new tokens side by side: these are written behind it."""
    if not isinstance(node.attrs, ConcatAttrs) or len(node.inputs) != 2:
        return None
    if look.value(node.inputs[0]).role is not Role.CACHE:
        return None
    draft = Draft(look, node)
    draft.add("kv_append", node.inputs, [look.value(node.key).type], KvAppendAttrs(node.attrs.dim))
    return draft


# The longest product of a GELU: x, a half, and 1 + tanh of a polynomial of x, with casts between them.
_MAX_STEPS = 12


def silu(look: Look, node: Node) -> Draft | None:
    """Find x sigmoid(x)."""
    if fn_of(node) != "mul" or len(node.inputs) != 2:
        return None
    a, b = node.inputs
    for x, gate in ((a, b), (b, a)):
        made = look.made_by(look.base(gate), "sigmoid")
        if made is not None and look.base(made.inputs[0]) == look.base(x) and look.is_closed((made,), node):
            return _pointwise(look, node, look.base(x), "silu")
    return None


def gelu(look: Look, node: Node) -> Draft | None:
    """Find x (1 + erf(x / sqrt 2)) / 2, and x (1 + tanh(polynomial of x)) / 2, factors in any order."""
    if fn_of(node) not in ("mul", "div"):
        return None
    factors, inside = _factors(look, node)
    if len(factors) != 2:
        return None
    for x, gate in (factors, factors[::-1]):
        found = _gate(look, gate, look.base(x))
        if found is not None and look.is_closed((*inside, *found), node):
            # Whether the product goes on with a plain number: the half then stands last.
            reader = look.sole_reader(node.key)
            continues = reader is not None and fn_of(reader) in ("mul", "div") and len(look.operands(reader)) == 1
            return None if continues else _pointwise(look, node, look.base(x), "gelu")
    return None


def _factors(look: Look, node: Node) -> tuple[list[int], list[Node]]:
    """Return the factors of a product that are no plain numbers, and the nodes it is made of."""
    factors: list[int] = []
    inside = [node]
    waiting = list(look.operands(node))
    while waiting:
        ident = waiting.pop(0)
        part = look.made_by(look.base(ident), "mul", "div")
        if part is not None and len(inside) < _MAX_STEPS and look.sole_reader(part.key) is not None:
            given = look.operands(part)
            if len(given) == 1 or fn_of(part) == "mul":
                inside.append(part)
                waiting += given
                continue
        factors.append(ident)
    return factors, inside


def _gate(look: Look, ident: int, x: int) -> tuple[Node, ...] | None:
    """Return the nodes of 1 + erf(..x..) or 1 + tanh(..x..), None when it is something else."""
    plus = look.made_by(look.base(ident), "add")
    given = () if plus is None else look.operands(plus)
    if plus is None or len(given) != 1:
        return None
    bend = look.made_by(look.base(given[0]), "erf", "tanh")
    if bend is None:
        return None
    inner = _made_of(look, bend.inputs[0], x)
    return None if inner is None else (plus, bend, *inner)


def _made_of(look: Look, ident: int, x: int) -> tuple[Node, ...] | None:
    """Return the nodes between a value and x when it is made of x and plain numbers alone."""
    nodes: dict[int, Node] = {}
    waiting = [ident]
    while waiting:
        ident = look.base(waiting.pop())
        if ident == x:
            continue
        node = look.made_by(ident, "mul", "div", "add", "pow", "square")
        if node is None or len(nodes) >= _MAX_STEPS:
            return None
        nodes[node.key] = node
        waiting += [i for i in look.operands(node) if look.base(i) not in nodes]
    return tuple(nodes.values())


def _pointwise(look: Look, node: Node, x: int, fn: str) -> Draft | None:
    """One function of x; the type of the result is that of x where a cast back follows."""
    if look.value(x).type.dims != look.value(node.key).type.dims:
        return None
    root = look.ending(node, look.value(x).type.dtype)
    draft = Draft(look, root)
    draft.add("elementwise", (x,), [look.value(root.key).type], ElementwiseAttrs((fn,)))
    return draft
