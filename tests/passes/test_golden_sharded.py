"""A small model, sharded, as text: what changes here must be meant to change.

`pytest tests/frontend tests/passes --update-golden` writes the file anew; read the difference before it is kept.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstick.ir.graph import Graph
from slipstick.ir.parse import parse_graph
from slipstick.ir.text import print_graph
from slipstick.passes.manager import parse_pipeline

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

FILE = Path(__file__).parent / "golden" / "tiny-llama.tp-sp.graph"
PIPELINE = "accumulate,shard{sp=true},bucket,optimizer,fuse"


def test_the_sharded_graph_is_the_golden_one(tiny_llama: Graph, request: pytest.FixtureRequest) -> None:
    graph = parse_pipeline(PIPELINE).run(tiny_llama)[0]
    if request.config.getoption("--update-golden", default=False):
        FILE.write_text(print_graph(graph), encoding="utf-8")
    text = FILE.read_text(encoding="utf-8")
    assert print_graph(graph) == text
    assert parse_graph(text) == graph
