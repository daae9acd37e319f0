"""A flat graph folded by what was recorded: by the calls of modules, or by module paths where calls were not noted."""

from __future__ import annotations

from dataclasses import replace

from ...ir.graph import Graph
from ..aten.flat import Flat
from .blocks import Identity, NotAlikeError, fold_recorded, one_by_one
from .regions import cut
from .units import Layers, layers_of


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


__all__ = ["fold_by_scope", "whole"]
