"""Which operators of a graph have no rule, and how much they weigh."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .graph import ONCE_A_STEP, Graph
from .ops import work_of
from .ops.unpriced import UnpricedAttrs
from .sizes.expr import Num


def unpriced_calls(graph: Graph) -> dict[str, int]:
    """Return how often operators without a rule run in one pass over the model, by name.

    >>> from slipstick.ir.graph import Workload
    >>> from slipstick.ir.types import DType
    >>> unpriced_calls(Graph("empty", Workload.TRAIN, DType.BF16, (), ()))
    {}
    """
    found: dict[str, int] = {}
    for region in graph.regions:
        for node in region.nodes:
            if isinstance(node.attrs, UnpricedAttrs):
                found[node.attrs.name] = found.get(node.attrs.name, 0) + graph.counts[region.name]
    return found


def unpriced_note(calls: Iterable[tuple[str, int]]) -> str:
    """Say which operators only count by their bytes, for people.

    >>> unpriced_note([("aten.cummax", 32)])
    'only the bytes of operators without a rule are counted, not what they compute: aten.cummax (32 calls)'
    """
    listed = ", ".join(f"{name} ({count} call{'s' if count != 1 else ''})" for name, count in calls)
    return f"only the bytes of operators without a rule are counted, not what they compute: {listed}"


def unpriced_byte_share(graph: Graph, env: Mapping[str, Num]) -> float:
    """Return the part of the bytes of one pass over the model that operators without a rule read and write."""
    moved = {True: 0.0, False: 0.0}
    for region in graph.regions:
        for node in region.nodes:
            if node.phase not in ONCE_A_STEP:
                num_bytes = float(work_of(region, node).num_bytes.evaluate(env))
                moved[isinstance(node.attrs, UnpricedAttrs)] += graph.counts[region.name] * num_bytes
    return moved[True] / (moved[True] + moved[False]) if moved[True] else 0.0


__all__ = ["unpriced_byte_share", "unpriced_calls", "unpriced_note"]
