"""What exporters and optimisers moved, put back: shared nodes in front of the layers, transposes over all dims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ...ir.graph import Node, Role
from ...ir.ops.tensors.layout import PermuteAttrs
from ...ir.sizes.expr import product
from ..aten.flat import Flat
from ..fold.units import layers_of


def hoisted(flat: Flat) -> Flat:
    """Return the graph with nodes that no layer's own values reach, and other layers read, outside of the layers.

    Exporters compute a mask or a view of a rotary table once, in the layer that needs it first: alike layers would
    differ by it.
    """
    found = layers_of(flat)
    if len(found.paths) < 2:
        return flat
    around = found.paths[0][0].rpartition(".")[0].rpartition(".")[0]
    layer = {o: found.of_scope.get(n.scope) for n in flat.nodes for o in n.outputs}
    shared = _shared(flat, layer, tuple(f"{path}." for paths in found.paths for path in paths))
    nodes = [replace(n, scope=around) if n.key in shared else n for n in flat.nodes]
    return replace(flat, nodes=nodes)


def _shared(flat: Flat, layer: Mapping[int, int | None], inside: tuple[str, ...]) -> set[int]:
    """Nodes of a layer that depend on none of them, and that nodes of another layer read, at once or through others."""
    own = {v.id for v in flat.values.values() if v.role is Role.CACHE or v.name.startswith(inside)}
    free: set[int] = set()
    for node in flat.nodes:
        if layer[node.key] is not None and not any(
            i in own or (layer.get(i) is not None and i not in free) for i in node.inputs
        ):
            free.update(node.outputs)
        elif layer[node.key] is not None or any(i in own for i in node.inputs):
            own.update(node.outputs)
    wanted: set[int] = set()
    for node in reversed(flat.nodes):
        for i in node.inputs:
            if i in free and (layer[node.key] != layer[i] or node.key in wanted):
                wanted.add(i)
        if wanted.intersection(node.outputs):
            wanted.update(o for o in node.outputs)
            wanted.update(i for i in node.inputs if i in free)
    return wanted


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
