"""A flat graph folded by what was recorded: by the calls of modules, or by module paths where calls were not noted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from ..ir.graph import Graph
from .blocks import Identity, NotAlikeError, fold_recorded, one_by_one
from .flat import Flat
from .regions import cut
from .units import Layers, layers_of

_NUMBERED = re.compile(r"(?:^|(?<=\.))(\d+)(?=\.|$)")


def fold_by_scope(flat: Flat, identity: Identity) -> Graph:
    """Return the graph with layers of equal structure folded.

    Where they cannot be, each layer is a region of its own; where not even borders of layers are found, the graph is
    one region. A note says why.
    """
    layers = layers_of(flat)
    if not layers.paths:
        return whole(flat, identity)
    parts = cut(flat, layers)
    try:
        return fold_recorded(parts, identity)
    except NotAlikeError as error:
        noted = replace(identity, notes=(*identity.notes, f"layers are not folded: {error}"))
    try:
        return one_by_one(parts, noted)
    except NotAlikeError:
        return whole(flat, noted)


def whole(flat: Flat, identity: Identity) -> Graph:
    """Return the graph as one region that runs once."""
    return fold_recorded(cut(flat, Layers({}, ())), identity)


def layer_path(scopes: Iterable[str]) -> tuple[str, int]:
    """Return the path whose numbered children hold the most nodes, and how many children there are.

    Children are numbered from 0 without a gap. Of paths with as many nodes the outermost counts.

    >>> layer_path(["embed", "model.layers.0.mlp", "model.layers.1.mlp.up.0", "model.layers.1"])
    ('model.layers', 2)
    >>> layer_path(["embed", "head"])
    ('', 0)
    """
    return next(iter(_lists(scopes)), ("", 0))


def _lists(scopes: Iterable[str]) -> list[tuple[str, int]]:
    """Return the lists of modules, the one whose members hold the most nodes first, with the number of members."""
    nodes: Counter[str] = Counter()
    children: dict[str, set[int]] = {}
    for scope in scopes:
        for found in _NUMBERED.finditer(scope):
            path = scope[: found.start()].rstrip(".")
            if path:
                nodes[path] += 1
                children.setdefault(path, set()).add(int(found.group(1)))
    ordered = sorted(nodes, key=lambda path: (-nodes[path], len(path)))
    sizes = ((path, len(children[path])) for path in ordered)
    return [(path, size) for path, size in sizes if size > 1 and children[path] == set(range(size))]


__all__ = ["fold_by_scope", "layer_path", "whole"]
