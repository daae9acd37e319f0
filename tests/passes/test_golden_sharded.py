"""Small models, sharded, as text: what changes here must be meant to change.

`pytest tests/frontend tests/passes --update-golden` writes the files anew; read the difference before it is kept.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstick.ir.graph import Graph
from slipstick.ir.plan.precision import RECIPES
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.text.printer import print_graph
from slipstick.passes.manager import parse_pipeline

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

FOLDER = Path(__file__).parent / "golden"
PIPELINES = {
    "tiny-llama.tp-sp": "accumulate,shard{sp=true},bucket,optimizer,fuse",
    "tiny-mixtral.ep-split": "accumulate,route,shard{sp=true, regather=true, ep=true},bucket,optimizer,fuse",
    "tiny-mixtral.ep-whole": "accumulate,route{capacity=true},shard{sp=true, regather=true, ep=true, etp=false, "
    'imbalance=true, wire="fp8", routing_nodes=1},bucket,optimizer,fuse',
    # As TransformerEngine does it, recipe by recipe; then as torchao does.
    **{
        f"tiny-llama.{recipe}": "accumulate,shard{sp=true, regather=true, zero=1},"
        f'quantise{{recipe="{recipe}", keep=true}},bucket,optimizer,fuse'
        for recipe in RECIPES
    },
    "tiny-llama.fp8-fsdp": "accumulate,shard{zero=3},"
    'quantise{recipe="fp8", fused=true, gather=true},bucket,optimizer,fuse',
}


@pytest.mark.parametrize("name", PIPELINES)
def test_the_sharded_graph_is_the_golden_one(name: str, request: pytest.FixtureRequest) -> None:
    source = request.getfixturevalue(name.partition(".")[0].replace("-", "_"))
    assert isinstance(source, Graph)
    graph = parse_pipeline(PIPELINES[name]).run(source)[0]
    file = FOLDER / f"{name}.graph"
    if request.config.getoption("--update-golden", default=False):
        file.write_text(print_graph(graph), encoding="utf-8")
    text = file.read_text(encoding="utf-8")
    assert print_graph(graph) == text
    assert parse_graph(text) == graph
