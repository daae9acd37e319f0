"""Parameters of a module that its graph does not read: what was left out is said, with its size and where it is."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from torch import nn

from ..ir.graph import Graph, Role

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_NAMED = 3


def with_unused(graph: Graph, module: nn.Module) -> Graph:
    """Return the graph with a note on parameters that the module holds and no operator reads."""
    num, whole = round(float(graph.num_parameters.evaluate({}))), count_parameters(module)
    if num >= whole:
        return graph
    note = f"{whole - num:,} of {whole:,} parameters take no part in {graph.workload} and are not in the graph"
    return replace(graph, notes=(*graph.notes, note + _places(graph, module)))


def count_parameters(module: nn.Module) -> int:
    """Return the number of distinct parameters of a module."""
    return sum(p.numel() for p in module.parameters())


def _places(graph: Graph, module: nn.Module) -> str:
    """The paths that hold most of what is not read, with stars for numbers of layers and experts."""
    read = {_starred(v.name) for r in graph.regions for v in r.of_role(Role.PARAM)}
    left: Counter[str] = Counter()
    for name, p in module.named_parameters():
        if _starred(name) not in read:
            left[_starred(name).rpartition(".")[0] or name] += p.numel()
    most = [path for path, _ in left.most_common(_NAMED)]
    rest = f" and {len(left) - len(most)} more" if len(left) > len(most) else ""
    return f": {', '.join(most)}{rest}" if most else ""


def _starred(name: str) -> str:
    return _NUMBER.sub("*", name)


__all__ = ["count_parameters", "with_unused"]
