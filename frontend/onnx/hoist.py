"""What an optimiser left in the first layer for all layers to read, put in front of the layers again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...ir.graph import Role
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


__all__ = ["hoisted"]
