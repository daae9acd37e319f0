"""A compiled graph for Model Explorer: nodes with their costs, and their seconds as data to colour them by.

Forms are those of google-ai-edge/model-explorer: a collection of graphs (`graph.json`), and data of nodes
(`node_data.json`) that is loaded beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...driver.estimate import Estimate
from ...ir.graph import Node, Region
from ...ir.text.files import write_atomically
from ...ir.text.json_text import json_text
from .costed import CostedNode, costed_rows
from .nodes import short, shown

# Seconds of a step from none to most: what a node is coloured by.
_GRADIENT = ({"stop": 0, "bgColor": "#f5f5f5"}, {"stop": 1, "bgColor": "#d7301f"})


def write_explorer(answer: Estimate, folder: Path) -> None:
    """Write the graph after the passes and the data of its nodes to a folder."""
    for name, tree in explorer_files(answer).items():
        write_atomically(folder / name, json_text(tree).encode())


def explorer_files(answer: Estimate) -> Mapping[str, Mapping[str, object]]:
    """Return the trees of both files by their names. Seconds are those of all runs of a node in a micro-batch."""
    graph = answer.table.lowered.graph
    rows = {row.node: row for row in costed_rows(answer)}
    nodes = [node for region in graph.regions for node in _nodes(region, graph.counts[region.name], rows)]
    seconds = {name: {"value": short(row.time_s * row.count)} for name, row in rows.items()}
    return {
        "graph.json": {"label": graph.name, "graphs": [{"id": graph.name, "nodes": nodes}]},
        "node_data.json": {graph.name: {"results": seconds, "gradient": list(_GRADIENT)}},
    }


def _nodes(region: Region, count: int, rows: Mapping[str, CostedNode]) -> Iterator[Mapping[str, object]]:
    title = f"{region.name} x{count}" if count != 1 else region.name
    for node in region.nodes:
        name = f"{region.name}/%{node.key}"
        path = "/".join((title, str(node.phase), *node.scope.split("."))).rstrip("/")
        yield {
            "id": name,
            "label": node.op,
            "namespace": path,
            "attrs": [{"key": key, "value": value} for key, value in shown(node, rows.get(name))],
            "incomingEdges": _edges(region, node),
        }


def _edges(region: Region, node: Node) -> Sequence[Mapping[str, str]]:
    """Return where a node's inputs come from, inside its region."""
    found = []
    for place, value in enumerate(node.inputs):
        made = region.producer.get(value)
        if made is not None:
            found.append(
                {
                    "sourceNodeId": f"{region.name}/%{made.key}",
                    "sourceNodeOutputId": str(made.outputs.index(value)),
                    "targetNodeInputId": str(place),
                }
            )
    return found
