"""What an optimiser left in the first layer for all layers to read, put in front of the layers again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from ...ir.graph import Role
from ..flat import Flat
from ..scoped import layer_path


def hoisted(flat: Flat) -> Flat:
    """Return the graph with nodes that no layer's own values reach, and other layers read, outside of the layers.

    Exporters compute a mask or a view of a rotary table once, in the layer that needs it first: alike layers would
    differ by it.
    """
    path, num_layers = layer_path(n.scope for n in flat.nodes)
    if num_layers < 2:
        return flat
    pattern = re.compile(rf"^{re.escape(path)}\.(\d+)(?:\.|$)")
    layer = {o: m.group(1) if (m := pattern.match(n.scope)) else "" for n in flat.nodes for o in n.outputs}
    shared = _shared(flat, layer, pattern)
    nodes = [replace(n, scope=path.rpartition(".")[0]) if n.key in shared else n for n in flat.nodes]
    return replace(flat, nodes=nodes)


def _shared(flat: Flat, layer: Mapping[int, str], pattern: re.Pattern[str]) -> set[int]:
    """Nodes of a layer that depend on none of them, and that nodes of another layer read, at once or through others."""
    own = {v.id for v in flat.values.values() if v.role is Role.CACHE or pattern.match(v.name)}
    free: set[int] = set()
    for node in flat.nodes:
        if layer[node.key] and not any(i in own or (layer.get(i) and i not in free) for i in node.inputs):
            free.update(node.outputs)
        elif (not layer[node.key] and any(i in own for i in node.inputs)) or layer[node.key]:
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
