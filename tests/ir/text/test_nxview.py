"""The networkx view: every node and edge, no circle, read-only."""

from dataclasses import replace

import networkx as nx
import pytest

from slipstick.ir.graph import Graph, Run
from slipstick.ir.text.nxview import to_networkx


def test_nodes_and_edges_by_hand(train_graph: Graph) -> None:
    view = to_networkx(train_graph)
    assert view.number_of_nodes() == (3 + 2) + (3 + 5) + (3 + 6)  # what comes from outside, then ops, a region
    # Operands: stem 2 + 2; block 2 + 1 + 2 + 2 + 2; head 2 + 2 + 0 + 4 + 2 + 2. Ports: h twice, dh twice.
    assert view.number_of_edges() == 4 + 9 + 12 + 4


def test_attributes(train_graph: Graph) -> None:
    view = to_networkx(train_graph)
    assert view.graph == {"name": "tiny", "workload": "train"}
    assert view.nodes["block/%5"] == {
        "op": "elementwise",
        "scope": "layers.*.act",
        "phase": "backward",
        "type": "bf16[batch, seq, 8]",
        "count": 2,
    }
    assert view.nodes["stem/%1"] == {"op": "param", "name": "embed.weight", "type": "bf16[16, 8]", "count": 1}
    assert view.nodes["head/%4"]["type"] == "fp32[] ; fp32[batch, seq, 3]".replace(" ;", ";")
    assert view.edges["block/%1", "block/%3"] == {"value": 1, "type": "bf16[8, 8]"}
    assert view.edges["head/%4", "head/%7"]["value"] == 5  # an edge starts at the node, whichever output it carries


def test_ports_link_to_the_nearest_region_in_running_direction(train_graph: Graph) -> None:
    view = to_networkx(train_graph)
    links = {(a, b): view.edges[a, b]["port"] for a, b in view.edges if "port" in view.edges[a, b]}
    assert links == {
        ("stem/%3", "block/%0"): "h",
        ("block/%4", "head/%0"): "h",
        ("head/%8", "block/%2"): "dh",
        ("block/%6", "stem/%2"): "dh",
    }


def test_the_view_is_frozen(train_graph: Graph) -> None:
    view = to_networkx(train_graph)
    assert nx.is_frozen(view)
    with pytest.raises(nx.NetworkXError, match="Frozen graph"):
        view.add_edge("a", "b")


def test_topological_order_runs_forward_then_backward(train_graph: Graph) -> None:
    place = {n: k for k, n in enumerate(nx.topological_sort(to_networkx(train_graph)))}
    chain = ["stem/%3", "block/%3", "block/%4", "head/%3", "head/%4", "head/%7", "head/%8", "block/%5", "stem/%4"]
    assert [place[n] for n in chain] == sorted(place[n] for n in chain)


def test_blocks_that_take_turns_make_no_circle(train_graph: Graph) -> None:
    second = replace(train_graph.region("block"), name="sparse")
    schedule = (Run(("stem",)), Run(("block", "sparse"), 30), Run(("head",)))
    view = to_networkx(replace(train_graph, regions=(*train_graph.regions, second), schedule=schedule))
    assert nx.is_directed_acyclic_graph(view)
    assert view.has_edge("block/%4", "sparse/%0")
    assert view.has_edge("sparse/%4", "head/%0")
    assert not view.has_edge("block/%4", "head/%0")
    assert view.has_edge("sparse/%6", "block/%2")
