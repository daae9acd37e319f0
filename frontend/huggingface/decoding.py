"""A decode step without a past costs far too little: a graph whose attention reads nothing cached is refused."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.errors import NotUnderstoodError
from ...ir.graph import Graph, Role, Workload
from ...ir.ops import Trait, has
from ...ir.sizes.expr import Dim


def require_past(graph: Graph) -> None:
    """Refuse a decode graph with attention when nothing in it lives on between steps.

    Keys that are more than queries are taken for a past that comes as a plain input.
    """
    if graph.workload is not Workload.DECODE or any(r.of_role(Role.CACHE) for r in graph.regions):
        return
    lengths = list(_lengths(graph))
    if lengths and all(queries == keys for queries, keys in lengths):
        raise NotUnderstoodError(
            f"'{graph.name}' has attention but no KV cache among its inputs, so a decode step would attend to new "
            "tokens alone; name the inputs that are caches (caches=[..] of slipstick.trace, past_key and past_value "
            "inputs of .pt2, fx and ONNX), or ask for prefill"
        )


def _lengths(graph: Graph) -> Iterator[tuple[Dim, Dim]]:
    for region in graph.regions:
        for node in region.nodes:
            if has(node, Trait.ATTENDS, backward=False):
                queries, keys = (region.by_id[i].type.dims[-2] for i in node.inputs[:2])
                yield queries, keys


__all__ = ["require_past"]
