"""Prefill and decode on simulated ranks in float64: logits, tokens and caches are those of the module itself."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers", reason="builds its models; install slipstick[hf]")

from slipstick.benchmarks.numeric import BATCH, SEQ, STEPS, kinds_for, outcome, step_verdicts, subject
from slipstick.ir.graph import Graph, Node, Workload
from slipstick.ir.ops.fused.attention import AttentionAttrs
from slipstick.ir.ops.tensors.layout import SliceAttrs
from slipstick.ir.plan import Family
from slipstick.passes.families import pipeline_for
from slipstick.verify.numeric.compare import ComparedModule, Verdict
from slipstick.verify.numeric.serving import ServingStep, compare_step, step_of

pytestmark = pytest.mark.oracle

# Windows, sinks and experts; latents; weights of norms to which one is added; states; soft caps.
SAMPLE = (
    ("gpt_oss", Workload.DECODE), ("gpt_oss", Workload.PREFILL), ("deepseek_v3", Workload.DECODE),
    ("nemotron", Workload.PREFILL), ("mamba", Workload.DECODE),
)  # fmt: skip
# A token of a decode step is on all ranks, and its rows come back to another rank than took them.
NOT_FOLLOWED = (Workload.DECODE, "ep over tp + sp")
SLOW = (("gemma2", Workload.DECODE), ("bamba", Workload.DECODE), ("deepseek_v3", Workload.PREFILL))


@lru_cache(maxsize=3)
def small(model_type: str, workload: Workload) -> tuple[ComparedModule, ServingStep]:
    """A small model, and one step of it."""
    of = subject(model_type, workload)
    return of, step_of(of, workload, BATCH, SEQ)


def lowered(model_type: str, family: Family) -> Graph:
    """Its step as a plan leaves it."""
    made, _ = pipeline_for(family).run(small(model_type, family.workload)[0].graph)
    return made


def run(model_type: str, graph: Graph, **degrees: int) -> Verdict:
    of, step = small(model_type, graph.workload)
    return compare_step(of, graph, degrees, step)


@pytest.mark.parametrize("workload", [Workload.PREFILL, Workload.DECODE])
def test_a_step_computes_what_the_module_computes(workload: Workload) -> None:
    names = kinds_for("llama", STEPS)
    found = {name: outcome(v) for name, v in step_verdicts(small("llama", workload)[0], names)}
    assert found == dict.fromkeys(names, "equal")


@pytest.mark.parametrize(
    ("model_type", "workload"), [*SAMPLE, *(pytest.param(*s, marks=pytest.mark.slow) for s in SLOW)]
)
def test_a_kind_of_cache_is_what_the_module_keeps(model_type: str, workload: Workload) -> None:
    names = kinds_for(model_type, STEPS)
    found = {name: outcome(v) for name, v in step_verdicts(small(model_type, workload)[0], names)}
    told = {name: text.partition(":")[0] for name, text in found.items()}
    assert told == {name: "not run" if (workload, name) == NOT_FOLLOWED else "equal" for name in names}


def test_a_step_of_fused_kernels_compares_tokens_and_every_cache() -> None:
    found = run("llama", lowered("llama", Family(workload=Workload.DECODE, kernels="fused")), tp=2)
    layers = range(2)
    caches = {f"cache.{k}.{what}" for k in layers for what in ("keys", "values")}
    assert {d.what for d in found.differences} == {"logits", "tokens", *caches}


def changed(graph: Graph, op: str, old: Node, new: Node) -> Graph:
    """The graph with one node of an op replaced by another."""
    return graph.with_regions(tuple(
        replace(r, nodes=tuple(new if n == old and n.op == op else n for n in r.nodes)) for r in graph.regions
    ))  # fmt: skip


def first(graph: Graph, op: str) -> Node:
    return next(n for r in graph.regions for n in r.nodes if n.op == op)


def test_a_new_token_in_front_of_the_cache_is_found() -> None:
    graph = lowered("llama", Family(workload=Workload.DECODE))
    append = first(graph, "kv_append")
    found = run("llama", changed(graph, "kv_append", append, replace(append, inputs=append.inputs[::-1])))
    assert any(d.what == "cache.0.keys" and d.relative > 1e-3 for d in found.differences)


def test_a_window_of_one_key_less_is_found() -> None:
    graph = lowered("gpt_oss", Family(workload=Workload.DECODE))
    attention = next(n for r in graph.regions for n in r.nodes
                     if isinstance(n.attrs, AttentionAttrs) and n.attrs.window)  # fmt: skip
    assert isinstance(attention.attrs, AttentionAttrs)
    narrow = replace(attention, attrs=replace(attention.attrs, window=attention.attrs.window - 1))
    found = run("gpt_oss", changed(graph, "attention", attention, narrow))
    assert found.worst is not None
    assert found.worst.relative > 1e-3


def test_a_view_of_merged_products_that_begins_elsewhere_is_found() -> None:
    graph = lowered("llama", Family(workload=Workload.DECODE, kernels="fused"))
    keys = next(n for r in graph.regions for n in r.nodes if isinstance(n.attrs, SliceAttrs) and n.attrs.start != 0)
    assert isinstance(keys.attrs, SliceAttrs)
    wrong = replace(keys, attrs=replace(keys.attrs, start=0))
    assert "takes entries" in run("llama", changed(graph, "slice", keys, wrong), tp=2).broken
