"""The bandwidth between two halves of a graph: exact where it is small, else between two bounds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Literal

import numpy as np

from ....ir.records import dataclass
from .level import Edge
from .routes import graph_of, members_of

if TYPE_CHECKING:
    import networkx as nx

# 2^15 cuts of 16 nodes are tried in well under a second.
EXACT_NODES = 16


@dataclass(frozen=True, slots=True)
class Bisection:
    """Bandwidth one way between two halves of the members, the least of all halves.

    Attributes:
        bytes_per_s: the bandwidth, or for large graphs the best cut found, which the least does not exceed.
        at_least_bytes_per_s: what it cannot fall below.
        method: how it was found.
    """

    bytes_per_s: float
    at_least_bytes_per_s: float
    method: Literal["exact", "Kernighan-Lin above, spectral below"]


def bisection(edges: Sequence[Edge]) -> Bisection:
    """Return the bisection of a graph.

    With up to 16 members and no switches, all halves are tried. Else a cut by Kernighan and Lin (1970) bounds it from
    above and lambda_2 N/4 of the Laplacian (Fiedler 1973) from below; switches fall on the side that costs less there.

    >>> bisection([Edge(str(i), str((i + 1) % 8), 25e9) for i in range(8)])
    Bisection(bytes_per_s=50000000000.0, at_least_bytes_per_s=50000000000.0, method='exact')
    """
    graph, members = graph_of(edges), members_of(edges)
    if len(graph) == len(members) <= EXACT_NODES:
        first, rest = members[0], members[1:]
        halves = combinations(rest, len(members) // 2 - 1)
        least = min((_cut(graph, {first, *half}) for half in halves), default=0.0)
        return Bisection(least, least, "exact")
    return Bisection(_kernighan_lin(graph, members), _spectral(graph, members), "Kernighan-Lin above, spectral below")


def _cut(graph: nx.Graph[str], side: set[str]) -> float:
    return sum(rate for a, b, rate in _links(graph) if (a in side) != (b in side))


def _links(graph: nx.Graph[str]) -> list[tuple[str, str, float]]:
    return [(a, b, float(graph.edges[a, b]["bytes_per_s"])) for a, b in graph.edges]


def _kernighan_lin(graph: nx.Graph[str], members: Sequence[str]) -> float:
    """Bisect the members; switches then join the side to which they have the greater bandwidth."""
    import networkx as nx

    if len(graph) == len(members):
        one, _ = nx.community.kernighan_lin_bisection(graph, weight="bytes_per_s", seed=0)
        return _cut(graph, one)
    return _min_cut(graph, members[: len(members) // 2], members[len(members) // 2 :])


def _min_cut(graph: nx.Graph[str], one: Sequence[str], other: Sequence[str]) -> float:
    """The least cut between two sets of members, wherever switches lie."""
    import networkx as nx

    directed: nx.DiGraph[str] = nx.DiGraph()
    for a, b, rate in _links(graph):
        directed.add_edge(a, b, capacity=rate)
        directed.add_edge(b, a, capacity=rate)
    for node in one:
        directed.add_edge("all of one half", node)
    for node in other:
        directed.add_edge(node, "all of the other half")
    value, _ = nx.minimum_cut(directed, "all of one half", "all of the other half")
    return float(value)


def _spectral(graph: nx.Graph[str], members: Sequence[str]) -> float:
    """Return lambda_2 N/4, valid for halves of all nodes; 0, which says nothing, where some are switches."""
    if len(graph) != len(members):
        return 0.0
    index = {node: i for i, node in enumerate(members)}
    laplacian = np.zeros((len(members), len(members)))
    for a, b, rate in _links(graph):
        i, j = index[a], index[b]
        laplacian[i, i] += rate
        laplacian[j, j] += rate
        laplacian[i, j] -= rate
        laplacian[j, i] -= rate
    return float(np.linalg.eigvalsh(laplacian)[1]) * len(members) / 4
