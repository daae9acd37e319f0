"""The links of a graph as text, one a line, into checked edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ....ir.errors import SystemFileError, UsageError
from ....ir.text.untrusted import read_settings
from ....ir.units import parse_quantity, split_quantity
from .level import Edge
from .routes import graph_of, members_of

if TYPE_CHECKING:
    from ...machine.files.system_tree import Tree


def read_edges(text: str) -> tuple[Edge, ...]:
    """Read lines such as `0 1 25 GB/s`; what follows a `#` is a comment.

    Members are numbers from 0, in the order of the ranks; nodes of any other name are switches.

    Raises:
        UsageError: a line that is no link.

    >>> read_edges("0 leaf 50 GB/s  # first rank")
    (Edge(one='0', other='leaf', bytes_per_s=50000000000.0),)
    """
    lines = (line.partition("#")[0].split(maxsplit=2) for line in text.splitlines())
    return tuple(_edge(words) for words in lines if words)


def _edge(words: list[str]) -> Edge:
    if len(words) != 3 or not split_quantity(words[2])[1]:
        raise UsageError(f"edge '{' '.join(words)}': write two nodes and a bandwidth, as in 0 1 25 GB/s")
    one, other, rate = words
    bytes_per_s = parse_quantity(rate, "B/s").value_si
    if bytes_per_s <= 0 or one == other:
        raise UsageError(f"edge '{' '.join(words)}': it must join two nodes, with a bandwidth of more than zero")
    return Edge(one, other, bytes_per_s)


def least_bytes_per_s(edges: Sequence[Edge]) -> float:
    """Return the bandwidth of all links of a member, of the one that has least.

    >>> least_bytes_per_s(read_edges("0 1 25 GB/s"))
    25000000000.0
    """
    rates: dict[str, float] = {}
    for edge in edges:
        for node in (edge.one, edge.other):
            rates[node] = rates.get(node, 0.0) + edge.bytes_per_s
    return min(rates[node] for node in members_of(edges))


def edge_faults(text: str) -> Iterator[str]:
    """Yield what is wrong with the links of a graph: lines, missing members, parts that nothing joins."""
    import networkx as nx

    try:
        edges = read_edges(text)
    except UsageError as error:
        yield str(error)
        return
    members = members_of(edges)
    if members != tuple(str(i) for i in range(len(members))) or len(members) < 2:
        yield f"edges must name the members 0, 1, 2, ...; found {', '.join(members[:8]) or 'none'}"
    parts = [sorted(part) for part in nx.connected_components(graph_of(edges))] if edges else []
    if len(parts) > 1:
        shown = "; ".join(", ".join(part[:4]) for part in parts[:3])
        yield f"edges make a graph of {len(parts)} parts that nothing joins: {shown}"


def with_edges(level: Tree, folder: Path | None) -> Tree:
    """Put the text of a file in place of `edges_file: NAME`, which lies in the folder of the system's own.

    Raises:
        SystemFileError: a file that cannot be read.
    """
    if folder is None or not isinstance(level, dict) or not isinstance(level.get("edges_file"), str):
        return level
    path = folder / str(level["edges_file"])
    try:
        text = read_settings(path)
    except (OSError, UnicodeDecodeError) as error:
        raise SystemFileError(f"cannot read the edges of '{level.get('name')}' in '{path}': {error}") from error
    return {**{k: v for k, v in level.items() if k != "edges_file"}, "edges": text}
