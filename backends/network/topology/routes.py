"""A graph of links: what each link carries when all groups talk at once, along the shortest paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from ....ir.records import dataclass
from .level import Edge

if TYPE_CHECKING:
    import networkx as nx

Demand = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class RouteLoad:
    """Hops of the longest way, and the seconds the busiest link takes for each byte that a member sends."""

    hops: float
    seconds_per_byte: float


def graph_of(edges: Sequence[Edge]) -> nx.Graph[str]:
    """Return the graph of some links; two links between the same nodes make one of their bandwidths together."""
    import networkx as nx

    graph: nx.Graph[str] = nx.Graph()
    for edge in edges:
        before = graph.get_edge_data(edge.one, edge.other, {"bytes_per_s": 0.0})["bytes_per_s"]
        graph.add_edge(edge.one, edge.other, bytes_per_s=before + edge.bytes_per_s)
    return graph


def members_of(edges: Sequence[Edge]) -> tuple[str, ...]:
    """Return the nodes that are members, in order; others are switches.

    >>> members_of([Edge("1", "hub", 1e9), Edge("0", "hub", 1e9)])
    ('0', '1')
    """
    nodes = {node for edge in edges for node in (edge.one, edge.other)}
    return tuple(sorted((node for node in nodes if node.isdecimal()), key=int))


@lru_cache(maxsize=256)
def loads(edges: tuple[Edge, ...], group_size: int, step: int, pattern: str) -> RouteLoad:
    """Count what every link carries when each member of all groups sends one byte by a pattern.

    Groups of `group_size` members, `step` apart, lie side by side. Where several ways are the shortest, each carries
    its part by their number. Links run both ways at once.

    >>> square = tuple(Edge(str(i), str((i + 1) % 4), 25e9) for i in range(4))
    >>> round(loads(square, 4, 1, "ring").seconds_per_byte * 25e9, 9)
    1.0
    """
    graph = graph_of(edges)
    demand = _demand(members_of(edges), group_size, step, pattern)
    carried: dict[tuple[str, str], float] = {}
    longest = 1
    for source, wanted in demand.items():
        longest = max(longest, _spread(graph, source, wanted, carried))
    busiest = max((carried[a, b] / graph.edges[a, b]["bytes_per_s"] for a, b in carried), default=0.0)
    return RouteLoad(float(longest), busiest)


def _spread(
    graph: nx.Graph[str], source: str, wanted: Mapping[str, float], carried: dict[tuple[str, str], float]
) -> int:
    """Add what one node sends to the links of its shortest paths, and return the hops of the longest (Brandes 2001)."""
    import networkx as nx

    depth: dict[str, int] = dict(nx.single_source_shortest_path_length(graph, source))
    before = {node: [near for near in graph[node] if depth[near] == depth[node] - 1] for node in depth}
    order = sorted(depth, key=lambda node: depth[node])
    ways = {source: 1.0}
    for node in order[1:]:
        ways[node] = sum((ways[near] for near in before[node]), start=0.0)
    passing = dict(wanted)
    for node in reversed(order[1:]):
        amount = passing.get(node, 0.0)
        for near in before[node] if amount else ():
            part = amount * ways[near] / ways[node]
            carried[near, node] = carried.get((near, node), 0.0) + part
            passing[near] = passing.get(near, 0.0) + part
    return max((depth[node] for node in wanted), default=1)


def _demand(members: Sequence[str], group_size: int, step: int, pattern: str) -> Demand:
    demand: Demand = {}
    for group in _groups(members, group_size, step):
        for index, node in enumerate(group):
            for peer, part in _peers(index, len(group), pattern):
                if group[peer] != node:
                    sent = demand.setdefault(node, {})
                    sent[group[peer]] = sent.get(group[peer], 0.0) + part
    return demand


def _groups(members: Sequence[str], group_size: int, step: int) -> Iterator[Sequence[str]]:
    """Yield all groups that are full, side by side; one that reaches past the end is cut off if it is the only one."""
    block = group_size * step
    whole = max(len(members) // block, 1)
    for index in range(whole):
        for offset in range(step):
            yield members[index * block + offset : (index + 1) * block : step]


def _peers(index: int, size: int, pattern: str) -> Iterator[tuple[int, float]]:
    """Yield to whom a member sends, and which part of its byte."""
    if pattern in ("peers", "pairs"):
        yield from ((peer, 1 / (size - 1)) for peer in range(size) if peer != index)
    elif pattern == "both":
        yield from (((index + 1) % size, 0.5), ((index - 1) % size, 0.5))
    elif pattern == "swap":
        # The farthest exchange, half of the group away, is the busiest.
        yield ((index + size // 2) % size, 1.0)
    else:
        yield ((index + 1) % size, 1.0)
