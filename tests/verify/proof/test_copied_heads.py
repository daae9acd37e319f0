"""The proof wants the sum over ranks that hold copies of the same heads."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers", reason="builds its models; install slipstick[hf]")

from slipstick.benchmarks.small_configs import small_config
from slipstick.frontend.huggingface.configs.models import config_of
from slipstick.frontend.huggingface.configs.shrink import shrunken
from slipstick.ir.graph import Graph
from slipstick.passes.manager import parse_pipeline
from slipstick.verify.numeric.compare import subject_of
from slipstick.verify.proof.certificate import certify

from .mutate import copies_not_summed

COPIED: dict[str, dict[str, object]] = {
    "llama": {"num_attention_heads": 8, "num_key_value_heads": 4},
    "falcon": {"multi_query": True, "new_decoder_architecture": False},
}


@pytest.mark.parametrize(("model", "count"), [("llama", 2), ("falcon", 1)])
def test_the_sum_over_copied_heads_is_wanted(model: str, count: int) -> None:
    """Of 2 heads of keys in a projection of their own, and of one beside 8 heads of queries, ranks hold copies.

    Each rank has the gradient of its own queries' part alone: without the sum over `tp/2` (or `tp/1`, of the last
    entries) copies would drift apart, though each node is proven and the gradient lies as its parameter.
    """
    fields = {"model_type": model, **small_config(model), **COPIED[model]}
    source = subject_of(shrunken(config_of(model, fields))).graph
    graphs: dict[str, Graph] = {}
    parse_pipeline("accumulate,shard,bucket").run(
        source, None, lambda _, step, graph: graphs.update({step.name: graph})
    )
    order = ["accumulate", "shard"]
    assert certify(graphs["accumulate"], graphs["shard"], graphs["bucket"], [*order, "bucket"]).holds
    for stage in ("shard", "bucket"):
        tried = 0
        for region in graphs[stage].regions:
            for what, mutant in copies_not_summed(region):
                assert f"tp/{count}" in what
                wrong = graphs[stage].with_regions(tuple(mutant if r is region else r for r in graphs[stage].regions))
                sharded = wrong if stage == "shard" else graphs["shard"]
                found = certify(graphs["accumulate"], sharded, wrong, [*order, "bucket"])
                assert any("gradient of" in f.where and "copies" in f.what for f in found.faults), what
                tried += 1
        assert tried >= 2, stage
