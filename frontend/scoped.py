"""A flat graph without a module to look at, folded by what the scopes of its nodes say of repeated layers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from ..ir.graph import Graph
from .blocks import Identity, NotAlikeError, fold
from .flat import Flat
from .regions import cut

_NUMBERED = re.compile(r"(?:^|(?<=\.))(\d+)(?=\.|$)")


def fold_by_scope(flat: Flat, identity: Identity) -> Graph:
    """Return the graph with layers of equal structure folded; a note says why where they cannot be."""
    path, num_layers = layer_path(n.scope for n in flat.nodes)
    if num_layers < 2:
        return whole(flat, identity)
    try:
        return fold(cut(flat, path, num_layers), (0,) * num_layers, range(num_layers), identity)
    except NotAlikeError as error:
        return whole(flat, replace(identity, notes=(*identity.notes, f"layers are not folded: {error}")))


def whole(flat: Flat, identity: Identity) -> Graph:
    """Return the graph as one region that runs once."""
    return fold(cut(flat, "", 0), (), (), identity)


def layer_path(scopes: Iterable[str]) -> tuple[str, int]:
    """Return the path whose numbered children hold the most nodes, and how many children there are.

    Children are numbered from 0 without a gap. Of paths with as many nodes the outermost counts.

    >>> layer_path(["embed", "model.layers.0.mlp", "model.layers.1.mlp.up.0", "model.layers.1"])
    ('model.layers', 2)
    >>> layer_path(["embed", "head"])
    ('', 0)
    """
    nodes: Counter[str] = Counter()
    children: dict[str, set[int]] = {}
    for scope in scopes:
        for found in _NUMBERED.finditer(scope):
            path = scope[: found.start()].rstrip(".")
            if path:
                nodes[path] += 1
                children.setdefault(path, set()).add(int(found.group(1)))
    for path, _ in sorted(nodes.items(), key=lambda item: (-item[1], len(item[0]))):
        numbers = children[path]
        if len(numbers) > 1 and numbers == set(range(len(numbers))):
            return path, len(numbers)
    return "", 0


__all__ = ["fold_by_scope", "layer_path", "whole"]
