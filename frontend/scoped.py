"""A flat graph without a module to look at, folded by what the scopes of its nodes say of repeated layers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from ..ir.graph import Graph
from .blocks import Identity, NotAlikeError, fold, one_by_one
from .flat import Flat
from .regions import cut

_NUMBERED = re.compile(r"(?:^|(?<=\.))(\d+)(?=\.|$)")


def fold_by_scope(flat: Flat, identity: Identity) -> Graph:
    """Return the graph with layers of equal structure folded.

    Where they cannot be, each layer is a region of its own; where not even borders of layers are found, the graph is
    one region. A note says why.
    """
    path, num_layers = layer_path(n.scope for n in flat.nodes)
    if num_layers < 2:
        return whole(flat, identity)
    said = ""
    for paths in dict.fromkeys((_in_step((n.scope for n in flat.nodes), path, num_layers), (path,))):
        try:
            return fold(cut(flat, paths, num_layers), (0,) * num_layers, range(num_layers), identity)
        except NotAlikeError as error:
            said = f"layers are not folded: {error}"
    noted = replace(identity, notes=(*identity.notes, said))
    try:
        return one_by_one(cut(flat, (path,), num_layers), noted)
    except NotAlikeError:
        return whole(flat, noted)


def whole(flat: Flat, identity: Identity) -> Graph:
    """Return the graph as one region that runs once."""
    return fold(cut(flat, (), 0), (), (), identity)


def layer_path(scopes: Iterable[str]) -> tuple[str, int]:
    """Return the path whose numbered children hold the most nodes, and how many children there are.

    Children are numbered from 0 without a gap. Of paths with as many nodes the outermost counts.

    >>> layer_path(["embed", "model.layers.0.mlp", "model.layers.1.mlp.up.0", "model.layers.1"])
    ('model.layers', 2)
    >>> layer_path(["embed", "head"])
    ('', 0)
    """
    return next(iter(_lists(scopes)), ("", 0))


def _in_step(scopes: Iterable[str], path: str, num_layers: int) -> tuple[str, ...]:
    """Return all lists beside this one that have as many members: layers may be made of one member of each."""
    beside = (other for other, size in _lists(scopes) if size == num_layers and not _nested(other, path))
    return (path, *beside)


def _nested(path: str, other: str) -> bool:
    return f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.")


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
