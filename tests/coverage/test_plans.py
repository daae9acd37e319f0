"""Traced types under the plans of the tables: lowered, estimated, and with the same compute for many replicas."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

from slipstick.benchmarks.coverage.graphs import of_config
from slipstick.benchmarks.coverage.plans import PLANS, planned
from slipstick.ir.graph import LengthBound, Workload

# Two streams of one stack of layers, and prompts of the model's own in front of every sequence.
NARROW = {
    "xlnet": {"n_layer": 2, "d_model": 64, "n_head": 4, "d_inner": 128, "vocab_size": 512},
    "cpmant": {
        "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "dim_head": 16, "dim_ff": 128,
        "vocab_size": 512,
    },
}  # fmt: skip


@pytest.mark.parametrize("model_type", NARROW)
def test_it_is_estimated_under_every_plan_and_replicas_add_no_work(model_type: str) -> None:
    logging.disable(logging.WARNING)
    graph = of_config(model_type, NARROW[model_type], Workload.TRAIN)
    logging.disable(logging.NOTSET)
    found = planned(graph)
    assert found.why_not == {}
    assert found.cell == str(len(PLANS))
    assert found.growth == pytest.approx(1.0, abs=1e-3)


def test_a_graph_of_one_length_is_put_under_plans_of_that_length() -> None:
    graph = of_config("llama", {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}, Workload.TRAIN)
    assert not planned(replace(graph, bounds=(LengthBound("seq", 4096, 4096),))).why_not
    assert not planned(replace(graph, bounds=(LengthBound("seq", 2047, 0, gaps=(2047,)),))).why_not
    assert not planned(replace(graph, bounds=(LengthBound("seq", 2, 511, gaps=(2,)),))).why_not
