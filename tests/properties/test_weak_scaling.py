"""Weak scaling: with data parallelism alone, what a GPU computes does not depend on how many there are."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slipstick.frontend.huggingface.configs.models import names
from slipstick.ir.graph import Graph, Phase
from slipstick.ir.ops import OpClass, op_def, work_of
from slipstick.ir.sizes.expr import Expr, symbol
from slipstick.ir.text.files import load_graph
from slipstick.passes.manager import parse_pipeline

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*.train.graph"))
# Biases of positions, parallel blocks with one key head, experts whose rows are looked up, scans, windows, biases and
# norms of every kind: from small configs of the library's own.
TYPES = (
    "bloom", "cohere", "exaone4", "falcon", "glm", "gpt_neox", "gptj", "granitemoe", "jetmoe", "mamba", "mistral",
    "mpt", "olmo2", "olmoe", "opt", "phi", "phi3", "qwen2_moe", "smollm3", "starcoder2",
)  # fmt: skip
NARROW = {"jetmoe": {"hidden_size": 256, "intermediate_size": 512, "num_key_value_heads": 4, "kv_channels": 32}}


def growing(graph: Graph) -> Iterator[str]:
    """Yield nodes of a step whose work has a positive power of dp, and messages of a step that cross it.

    What runs once a step is left out: ZeRO updates n/dp parameters, and a reduction's size is not work.
    """
    for region in graph.regions:
        for node in region.nodes:
            if op_def(node.op).kind is OpClass.COMMUNICATION:
                if node.phase in (Phase.FORWARD, Phase.BACKWARD) and "dp" in str(node.attrs):
                    yield f"{region.name}: {node}"
                continue
            work = work_of(region, node)
            if any(map(_grows, (work.tensor_flops, work.vector_flops, work.read_bytes, work.write_bytes))):
                yield f"{region.name}: {node}"


def _grows(size: Expr) -> bool:
    return any(name == "dp" and power > 0 for monomial, _ in size.terms for name, power in monomial)


def lowered(graph: Graph) -> Graph:
    return parse_pipeline('accumulate{dtype="fp32"},shard,bucket,optimizer,fuse').run(graph)[0]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.name)
def test_no_work_of_a_gpu_grows_with_the_replicas(path: Path) -> None:
    assert not list(growing(lowered(load_graph(path))))


def test_the_check_sees_work_that_grows() -> None:
    """Where each rank had the samples of all replicas, every layer would grow."""
    made = lowered(load_graph(GOLDEN[0]))
    env = {"mbs": symbol("mbs") * symbol("dp")}
    regions = (
        replace(r, values=tuple(replace(v, type=v.type.substitute(env)) for v in r.values)) for r in made.regions
    )
    assert len(list(growing(made.with_regions(tuple(regions))))) > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_nor_of_any_model_of_the_catalogue(name: str) -> None:
    pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")
    from slipstick.frontend import load

    assert not list(growing(lowered(load(name))))


@pytest.mark.slow
@pytest.mark.parametrize("model_type", TYPES)
def test_nor_of_models_that_look_up_stack_scan_and_repeat(model_type: str) -> None:
    pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")
    from slipstick.benchmarks.coverage.graphs import of_config
    from slipstick.benchmarks.small_configs import small_config
    from slipstick.ir.graph import Workload

    logging.disable(logging.WARNING)
    fields = small_config(model_type)
    graph = of_config(model_type, {**fields, **NARROW.get(model_type, {})}, Workload.TRAIN)
    logging.disable(logging.NOTSET)
    assert not list(growing(lowered(graph)))
