"""Transposes that exporters spell over three dims, leading ones flattened, as the transposes they are."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ...ir.graph import Node
from ...ir.ops.tensors.layout import PermuteAttrs
from ...ir.sizes.expr import product
from ..aten.flat import Flat


def straightened(flat: Flat) -> Flat:
    """Return the graph with `reshape, permute the last two of three dims, reshape back` as one permute of all dims."""
    uses = Counter(i for n in flat.nodes for i in n.inputs) + Counter(flat.results)
    producer = {n.key: n for n in flat.nodes}
    done: dict[int, Node] = {}
    for node in flat.nodes:
        turn = producer.get(node.inputs[0]) if node.op == "reshape" else None
        if turn is not None and turn.op == "permute" and uses[turn.key] == 1 and _turns_back(flat, turn, node):
            done[turn.key] = node
    return _rewritten(flat, done) if done else flat


def _turns_back(flat: Flat, turn: Node, back: Node) -> bool:
    """Whether a reshape behind a transpose of three dims only takes the first apart."""
    made, out = flat.values[turn.key].type.dims, flat.values[back.key].type.dims
    swapped = isinstance(turn.attrs, PermuteAttrs) and turn.attrs.dims == (0, 2, 1)
    return swapped and len(out) > 3 and out[-2:] == made[1:] and product(out[:-2]) == product(made[:1])


def _rewritten(flat: Flat, done: dict[int, Node]) -> Flat:
    """The first of the two views takes the leading dim apart, the second is the permute."""
    out = replace(flat, values=dict(flat.values), nodes=[])
    backs = {n.key for n in done.values()}
    for node in flat.nodes:
        back = done.get(node.key)
        if node.key in backs:
            continue
        if back is None:
            out.nodes.append(node)
            continue
        *lead, a, b = flat.values[back.key].type.dims
        old = flat.values[node.key]
        out.values[node.key] = replace(old, type=old.type.with_dims((*lead, b, a)))
        order = (*range(len(lead)), len(lead) + 1, len(lead))
        out.nodes.append(replace(node, op="reshape", attrs=back.attrs))
        out.nodes.append(replace(back, op="permute", attrs=PermuteAttrs(order)))
    return out


__all__ = ["straightened"]
