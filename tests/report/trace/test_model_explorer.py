"""A graph for Model Explorer: every node once, edges between nodes that are there, times that add up to the step's."""

import json

import pytest

from slipstick import Family, GraphCache, load, load_system, make_plan
from slipstick.driver.estimate import estimate
from slipstick.report.trace.costed import costed_rows
from slipstick.report.trace.model_explorer import explorer_files


def test_nodes_have_their_costs_and_edges_meet_nodes() -> None:
    plan = make_plan(num_gpus=4, tp=2, seq_len=512, global_batch=4, family=Family(sp=True))
    answer = estimate(load("gpt2", cache=GraphCache.default()), load_system("dgx-h100"), plan)
    files = json.loads(json.dumps(explorer_files(answer)))
    (graph,) = files["graph.json"]["graphs"]
    known = {node["id"]: node for node in graph["nodes"]}
    assert len(known) == len(graph["nodes"]) == sum(len(r.nodes) for r in answer.table.lowered.graph.regions)
    edges = [edge for node in graph["nodes"] for edge in node["incomingEdges"]]
    assert edges
    assert all(edge["sourceNodeId"] in known for edge in edges)
    results = files["node_data.json"]["gpt2"]["results"]
    assert set(results) <= set(known)
    whole = sum(row.time_s * row.count for row in costed_rows(answer))
    assert sum(cell["value"] for cell in results.values()) == pytest.approx(whole, rel=1e-4)
    product = next(n for n in graph["nodes"] if n["label"] == "matmul" and "layer" not in n["id"])
    assert {"time_us", "bound", "flops", "bytes"} <= {a["key"] for a in product["attrs"]}
    assert product["namespace"].split("/")[1] in ("forward", "backward")
