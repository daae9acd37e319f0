"""Parameters of a module that its graph does not read: what was left out is said, with its size."""

from __future__ import annotations

import re
from collections import Counter

from torch import nn

from ..ir.graph import Graph, Role

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_NAMED = 3


def unused_note(module: nn.Module, graph: Graph) -> tuple[str, ...]:
    """Return a note on the parameters that no node reads, by the paths that hold most of them; none where all are read.

    Paths have stars for numbers: a layer, an expert.
    """
    num_unused = sum(p.numel() for p in module.parameters()) - graph.num_parameters
    if num_unused == 0:
        return ()
    read = {_starred(v.name) for r in graph.regions for v in r.of_role(Role.PARAM)}
    left: Counter[str] = Counter()
    for name, p in module.named_parameters():
        if _starred(name) not in read:
            left[_starred(name).rpartition(".")[0]] += p.numel()
    most = [path for path, _ in left.most_common(_NAMED)]
    rest = f" and {len(left) - len(most)} more" if len(left) > len(most) else ""
    named = f": {', '.join(most)}{rest}" if most else ""
    return (f"{num_unused} parameters are not read in this graph{named}",)


def _starred(name: str) -> str:
    return _NUMBER.sub("*", name)


__all__ = ["unused_note"]
