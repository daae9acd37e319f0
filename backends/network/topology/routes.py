"""A graph of links: what each link carries when all groups talk at once, along the shortest paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ....ir.records import dataclass
from ....ir.units import is_digits
from .level import Edge

if TYPE_CHECKING:
    import networkx as nx

Indices: TypeAlias = NDArray[np.intp]
# Links that a step looks at for all senders of a batch, so that a graph of 4,096 nodes needs little memory.
_BATCH_LINKS = 2**20


@dataclass(frozen=True, slots=True)
class RouteLoad:
    """Hops of the longest way, and the seconds the busiest link takes for each byte that a member sends."""

    hops: float
    seconds_per_byte: float


@dataclass(frozen=True, slots=True)
class LinkRows:
    """Links of a graph in compressed rows, one for each way.

    Attributes:
        count: nodes; the first are the members in order, the others switches.
        starts: where the links of each node start; one more than nodes.
        ends: the node at the other end of each link.
        bytes_per_s: bandwidth of each link.
    """

    count: int
    starts: Indices
    ends: Indices
    bytes_per_s: NDArray[np.float64]

    @classmethod
    def of(cls, edges: Sequence[Edge]) -> LinkRows:
        """Sort links by their nodes; two between the same nodes make one of their bandwidths together."""
        names = dict.fromkeys((*members_of(edges), *(node for edge in edges for node in (edge.one, edge.other))))
        index, count = {name: place for place, name in enumerate(names)}, len(names)
        one, other = np.array([(index[edge.one], index[edge.other]) for edge in edges]).T
        keys, where = np.unique([one * count + other, other * count + one], return_inverse=True)
        rates = np.zeros(len(keys))
        np.add.at(rates, where.ravel(), np.tile([edge.bytes_per_s for edge in edges], 2))
        return cls(count, np.searchsorted(keys, np.arange(count + 1) * count), keys % count, rates)

    def after(self, frontier: Indices) -> tuple[Indices, Indices, Indices]:
        """Return all links of some nodes, and by link the node itself and that at the other end.

        A node of a batch is known by its number plus `count` for each sender before its own.
        """
        node = frontier % self.count
        starts, degrees = self.starts[node], self.starts[node + 1] - self.starts[node]
        links = np.arange(degrees.sum()) + np.repeat(starts - np.cumsum(degrees) + degrees, degrees)
        return links, np.repeat(frontier, degrees), self.ends[links] + np.repeat(frontier - node, degrees)


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
    return tuple(sorted((node for node in nodes if is_digits(node)), key=int))


@lru_cache(maxsize=256)
def loads(edges: tuple[Edge, ...], group_size: int, step: int, pattern: str) -> RouteLoad:
    """Count what every link carries when each member of all groups sends one byte by a pattern.

    Groups of `group_size` members, `step` apart, lie side by side. Where several ways are the shortest, each carries
    its part by their number. Links run both ways at once.

    >>> square = tuple(Edge(str(i), str((i + 1) % 4), 25e9) for i in range(4))
    >>> round(loads(square, 4, 1, "ring").seconds_per_byte * 25e9, 9)
    1.0
    """
    rows = LinkRows.of(edges)
    carried, longest = np.zeros_like(rows.bytes_per_s), 1
    batch = max(_BATCH_LINKS // len(rows.ends), 1)
    senders = [
        (group, place) for group in _groups(len(members_of(edges)), group_size, step) for place in range(len(group))
    ]
    for first in range(0, len(senders), batch):
        some = senders[first : first + batch]
        sources, wanted = np.zeros(len(some), np.intp), np.zeros((len(some), rows.count))
        for row, (group, place) in enumerate(some):
            sources[row] = group[place]
            wanted[row, group] = np.roll(_parts(len(group), pattern), place)
        longest = max(longest, _spread(rows, sources, wanted, carried))
    return RouteLoad(float(longest), float((carried / rows.bytes_per_s).max()))


def _spread(rows: LinkRows, sources: Indices, wanted: NDArray[np.float64], carried: NDArray[np.float64]) -> int:
    """Add what some nodes send to the links of their shortest paths (Brandes 2001), and return the most hops.

    All senders go one hop further at a time, until they have met all to which they send; then back.
    """
    passing, ways = wanted.ravel(), np.zeros(wanted.size)
    frontier = sources + np.arange(len(sources)) * rows.count
    ways[frontier] = 1.0
    waiting, at = np.count_nonzero(passing), np.empty(wanted.size, np.intp)
    hops: list[tuple[Indices, Indices, Indices]] = []
    while waiting and len(frontier):
        around = rows.after(frontier)
        unmet = ways[around[-1]] == 0
        links, begins, ends = (column[unmet] for column in around)
        np.add.at(ways, ends, ways[begins])
        hops.append((links, begins, ends))
        # Of the links that lead to a node, the last names it.
        at[ends] = np.arange(len(ends))
        frontier = ends[at[ends] == np.arange(len(ends))]
        waiting -= np.count_nonzero(passing[frontier])
    for links, begins, ends in reversed(hops):
        parts = passing[ends] * ways[begins] / ways[ends]
        carried += np.bincount(links, parts, len(carried))
        np.add.at(passing, begins, parts)
    return len(hops)


def _groups(members: int, group_size: int, step: int) -> Iterator[Indices]:
    """Yield all groups that are full, side by side; one that reaches past the end is cut off if it is the only one."""
    block = group_size * step
    for index in range(max(members // block, 1)):
        for offset in range(step):
            yield np.arange(index * block + offset, min((index + 1) * block, members), step)


@lru_cache(maxsize=256)
def _parts(size: int, pattern: str) -> NDArray[np.float64]:
    """Return which part of its byte a member sends to the one so many places further; none to itself."""
    parts = np.zeros(size)
    if pattern in ("peers", "pairs"):
        parts[1:] = 1 / max(size - 1, 1)
    elif pattern == "both":
        parts[1 % size] += 0.5
        parts[-1] += 0.5
    else:
        # The farthest exchange, half of the group away, is the busiest.
        parts[size // 2 if pattern == "swap" else 1 % size] = 1.0
    parts[0] = 0.0
    return parts
