"""Activations in single steps to one pointwise function: GELU by erf or by tanh, and SiLU."""

from __future__ import annotations

from ...ir.graph import Node
from ...ir.ops.tensors.pointwise import ElementwiseAttrs
from .look import Look, fn_of
from .rewrite import Draft

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
            return None if _continues(look, node) else _pointwise(look, node, look.base(x), "gelu")
    return None


def _continues(look: Look, node: Node) -> bool:
    """Whether the product goes on with a plain number: the half then stands last."""
    reader = look.sole_reader(node.key)
    return reader is not None and fn_of(reader) in ("mul", "div") and len(look.operands(reader)) == 1


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


__all__ = ["gelu", "silu"]
