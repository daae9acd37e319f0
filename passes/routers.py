"""Which nodes choose the experts of tokens: all between the router's product and the bank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..ir.graph import Node, Region
from ..ir.ops import OpClass, has

# Places of expert ids and weights among the inputs of what reads them.
_CHOSEN: Mapping[str, tuple[int, ...]] = {"experts": (1, 2), "dispatch": (1,), "combine": (1, 2)}
_STOPS = (OpClass.MATMUL, OpClass.EXPERTS, OpClass.ATTENTION, OpClass.COMMUNICATION, OpClass.NORM, OpClass.HOST)


def chosen_by(region: Region, bank: Node) -> tuple[int, ...]:
    """Return the expert ids and weights that a node of a bank reads; empty for any other node."""
    return tuple(bank.inputs[i] for i in _CHOSEN.get(bank.op, ()))


def routing(region: Region) -> tuple[Node, ...]:
    """Return the nodes that make expert ids and weights out of the products of routers, in running order."""
    wanted = [i for n in region.nodes for i in chosen_by(region, n)]
    found = {n.key for n in _before(region, wanted) if not has(n, *_STOPS)}
    return tuple(n for n in region.nodes if n.key in found)


def routers(region: Region) -> frozenset[int]:
    """Return the keys of the products that routing starts from."""
    wanted = [i for n in region.nodes for i in chosen_by(region, n)]
    return frozenset(n.key for n in _before(region, wanted) if has(n, OpClass.MATMUL))


def _before(region: Region, values: Iterable[int]) -> list[Node]:
    """Nodes that values are made by, back to products, norms and messages, those included."""
    found: dict[int, Node] = {}
    queue = list(values)
    while queue:
        node = region.producer.get(queue.pop())
        if node is None or node.key in found:
            continue
        found[node.key] = node
        if not has(node, *_STOPS):
            queue += node.inputs
    return list(found.values())
