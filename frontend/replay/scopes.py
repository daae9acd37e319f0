"""Module paths for graphs that carry none: a node belongs where the parameters around it belong.

A node that reads a parameter is of the module that owns it. Another one is of the innermost module that holds both what
comes before it and what comes after: attention, between the projections of a layer, is of that layer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import fx

from .program import HeldInput, Program

_NUMBERED = re.compile(r"^.*?(?:^|\.)\d+(?=\.|$)")


def guessed_scopes(program: Program, backward: frozenset[fx.Node]) -> Mapping[fx.Node, str]:
    """Return a path for each node of a graph, empty where nothing is known; `backward` nodes have their own only."""
    calls = [n for n in program.graph.graph.nodes if n.op.startswith("call")]
    owner = _owners(program)
    own: dict[fx.Node, str] = {}
    for node in calls:
        owners = [owner[s] for s in node.all_input_nodes if s in owner]
        if owners:
            own[node] = owners[0]
        if owners and len(owners) == len(node.all_input_nodes):
            owner[node] = owners[0]  # a parameter turned over or cast is one still
    nodes = [n for n in calls if n not in backward]
    before = _spread(nodes, own, along=True)
    after = _spread(nodes[::-1], own, along=False)
    return own | {n: _between(before[n], after[n]) for n in nodes if n not in own}


def _owners(program: Program) -> dict[fx.Node, str]:
    """Return the module that owns the parameter behind a node."""
    placeholders = [n for n in program.graph.graph.nodes if n.op == "placeholder"]
    paths = {n: s.path for n, s in zip(placeholders, program.sources, strict=False) if isinstance(s, HeldInput)}
    known = dict(program.root.named_parameters(remove_duplicate=False))
    paths |= {n: str(n.target) for n in program.graph.graph.nodes if n.op == "get_attr" and str(n.target) in known}
    return {n: path.rpartition(".")[0] for n, path in paths.items() if "." in path}


def _spread(nodes: list[fx.Node], own: Mapping[fx.Node, str], along: bool) -> dict[fx.Node, str]:
    """Return, for each node, the path of the nearest node that has one: among its inputs, or among its readers."""
    place = {n: k for k, n in enumerate(nodes)}
    found: dict[fx.Node, str] = {}
    for node in nodes:
        near = [n for n in (node.all_input_nodes if along else node.users) if n in place]
        near.sort(key=lambda n: place[n])
        found[node] = next((path for n in reversed(near) if (path := own.get(n) or found.get(n, ""))), "")
    return found


def _between(a: str, b: str) -> str:
    """Return the innermost module that holds both; between two layers, and behind the last one, the layer before.

    >>> _between("layers.0.qkv", "layers.0.out"), _between("layers.2.down", "head")
    ('layers.0', 'layers.2')
    """
    shared = _common(a, b)
    numbered = _NUMBERED.match(a)
    if numbered is not None and _NUMBERED.match(shared) is None:
        return numbered.group()
    return shared


def _common(a: str, b: str) -> str:
    shared: list[str] = []
    for x, y in zip(a.split("."), b.split("."), strict=False):
        if x != y:
            break
        shared.append(x)
    return ".".join(shared)


__all__ = ["guessed_scopes"]
