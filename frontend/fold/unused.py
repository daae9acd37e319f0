"""Parameters of a module against those of its graph: none twice, none invented, and what is left out is said."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from torch import nn

from ...ir.errors import InternalError
from ...ir.graph import Graph, Role

_NUMBER = re.compile(r"\*\+\d+|\d+")
_NAMED = 3


def with_unused(graph: Graph, module: nn.Module) -> Graph:
    """Return the graph with a note on parameters that the module holds and no operator reads.

    InternalError when the graph has parameters that the module does not have, or more elements of them.
    """
    _check(graph, module)
    num, whole = round(float(graph.num_parameters.evaluate({}))), count_parameters(module)
    if num >= whole:
        return graph
    note = f"{whole - num:,} of {whole:,} parameters take no part in {graph.workload} and are not in the graph"
    return replace(graph, notes=(*graph.notes, note + _places(graph, module)))


def count_parameters(module: nn.Module) -> int:
    """Return the number of distinct parameters of a module."""
    return sum(p.numel() for p in module.parameters())


def _check(graph: Graph, module: nn.Module) -> None:
    """Compare elements name by name, with stars for numbers of layers and experts.

    Parameters that a description joins under a name of its own (experts' matrices) are no more than what is left.
    """
    held: Counter[str] = Counter()
    for name, p in module.named_parameters():
        held[_starred(name)] += p.numel()
    read: Counter[str] = Counter()
    for name, kind, count in graph.distinct_parameters():
        read[_starred(name)] += round(float(kind.numel.evaluate({}))) * count
    more = [f"{n}: {read[n]:,} elements of {held[n]:,}" for n in read if n in held and read[n] > held[n]]
    joined, left = read.keys() - held.keys(), sum((held - read).values())
    if joined and sum(read[n] for n in joined) > left:
        more.append(f"{', '.join(sorted(joined)[:3])}: {sum(read[n] for n in joined):,} elements of {left:,}")
    if more:
        raise InternalError(f"graph '{graph.name}' has parameters that its module does not have: {'; '.join(more[:3])}")


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
