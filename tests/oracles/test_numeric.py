"""Sharded graphs run on simulated ranks in float64: loss, logits and gradients are those of the module itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers", reason="builds its models; install slipstick[hf]")

from slipstick.benchmarks.numeric import BATCH, PLANS, SEQ, outcome, subject, verdicts
from slipstick.benchmarks.small_configs import small_config
from slipstick.frontend.huggingface.configs.models import config_of
from slipstick.frontend.huggingface.configs.shrink import shrunken
from slipstick.ir.errors import VerifyError
from slipstick.ir.graph import Graph, Node, Phase, Region
from slipstick.ir.ops.collectives import CollectiveAttrs
from slipstick.ir.placement import PARTIAL, REPLICATE
from slipstick.ir.plan import Family
from slipstick.ir.plan.layout.stages import BOUNDARY
from slipstick.ir.sizes.expr import as_expr
from slipstick.passes import manager
from slipstick.passes.families import pipeline_for
from slipstick.passes.sharding import rules
from slipstick.passes.sharding.ask import Answer as Placed
from slipstick.passes.sharding.ask import Ask
from slipstick.verify.numeric.compare import ComparedModule, ModuleResults, Verdict, compare, subject_of

pytestmark = pytest.mark.oracle

# Each kind of layer once: plain, biases and parallel blocks, windows, latent attention, experts, recurrences.
SAMPLE = (
    "llama", "gemma2", "phi", "gpt2", "gpt_neox", "falcon", "bloom", "deepseek_v3", "gpt_oss", "mamba",
    "qwen3_next",
)  # fmt: skip
FEW = ("tp + sp", "zero 3", "pipeline")


@lru_cache(maxsize=2)
def small(model_type: str) -> tuple[ComparedModule, ModuleResults]:
    """A small model, and what it computes."""
    of = subject(model_type)
    return of, of.answer(of.inputs(BATCH, SEQ))


@pytest.mark.parametrize("plan", [name for name, kind in PLANS.items() if name != "hf plan" and not kind.experts])
def test_a_plan_computes_what_the_module_computes(plan: str) -> None:
    ((_, found),) = verdicts(small("llama")[0], [plan])
    assert outcome(found) == "equal"


@pytest.mark.parametrize("plan", ["ep", "ep x etp", "ep over tp", "ep over tp, no sp", "tp + sp", "cp ring", "zero 3"])
def test_experts_on_ranks_compute_what_the_module_computes(plan: str) -> None:
    ((_, found),) = verdicts(small("qwen3_moe")[0], [plan])
    assert outcome(found) == "equal"


def test_copies_in_a_fused_projection_sum_the_gradients_of_their_own_rows_once() -> None:
    of = subject("gpt_bigcode")
    lowered, _ = pipeline_for(Family(sp=True)).run(of.graph)
    block = lowered.region("block0")
    sums = [n for n in block.nodes if isinstance(n.attrs, CollectiveAttrs) and n.attrs.axis == "tp/1"]
    weight, bias = [i for n in sums for i in n.inputs]
    # Of 8 heads of queries each of 4 ranks has 2, of 16 entries; the one key and the one value, 32 entries, are summed.
    env = {"tp": 4.0}
    held = [as_expr(block.by_id[i].type.dims[0]).evaluate(env) for i in (weight, bias)]
    tails = [as_expr(n.attrs.tail).evaluate(env) for n in sums if isinstance(n.attrs, CollectiveAttrs)]
    assert (held, tails) == ([2 * 16 + 32] * 2, [32.0] * len(sums))
    found = compare(of, lowered, {"tp": 4}, BATCH, SEQ)
    assert found.equal, found


@pytest.mark.parametrize("tp", [2, 4])
def test_heads_side_by_side_share_the_one_key_and_value_that_every_rank_holds(tp: int) -> None:
    """Falcon's fused projection is looked at as 8 heads of queries, one of keys and one of values, of 16 each."""
    small = config_of("falcon", {"model_type": "falcon", **small_config("falcon"), "multi_query": True,
                                 "new_decoder_architecture": False})  # fmt: skip
    of = subject_of(shrunken(small))
    lowered, _ = pipeline_for(Family()).run(of.graph)
    block = lowered.region("block0")
    queries = next(block.by_id[n.inputs[0]].type for n in block.nodes if n.op == "attention")
    weight = next(v.type for v in block.values if v.name.endswith("query_key_value.weight"))
    env = {"tp": float(tp)}
    assert [as_expr(t.dims[d]).evaluate(env) for t, d in ((queries, 1), (weight, 0))] == [8 // tp, 128 // tp + 32]
    sums = [n.attrs for n in block.nodes if isinstance(n.attrs, CollectiveAttrs) and n.attrs.axis == "tp/1"]
    assert [as_expr(a.tail).evaluate(env) for a in sums] == [32.0]
    assert "all_gather" not in {n.op for n in block.nodes}
    found = compare(of, lowered, {"tp": tp}, BATCH, SEQ)
    assert found.equal, found


@pytest.mark.slow
@pytest.mark.parametrize(("model_type", "plan"), [("qwen3_next", "ep x etp"), ("nemotron_h", "one rank")])
def test_what_once_differed_is_equal(model_type: str, plan: str) -> None:
    """Heads among the rows that ranks route themselves; time steps that are at least so long (`dt_limit`)."""
    ((_, found),) = verdicts(subject(model_type), [plan])
    assert outcome(found) == "equal"


@pytest.mark.slow
@pytest.mark.parametrize("model_type", SAMPLE)
def test_an_architecture_computes_what_its_module_computes(model_type: str) -> None:
    found = {name: outcome(v) for name, v in verdicts(subject(model_type), FEW)}
    assert found == dict.fromkeys(FEW, "equal")


@pytest.mark.parametrize("model_type", ["phi3", "glm"])
def test_the_plan_of_transformers_gathers_what_it_cuts_in_blocks(model_type: str) -> None:
    """Tensors side by side whose rows are distributed as one block: a rank's part begins in the middle of one."""
    assert [outcome(v) for _, v in verdicts(subject(model_type), ["hf plan"])] == ["equal"]


def run(graph: Graph, **degrees: int) -> Verdict:
    of, answer = small("llama")
    return compare(of, graph, degrees, BATCH, SEQ, answer)


def test_a_rule_that_forgets_a_partial_sum_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rule_of = rules.rule_of
    sound = rule_of("matmul")
    assert sound is not None

    def forgetful(ask: Ask) -> Placed:
        made = sound(ask)
        return Placed(made.inputs, tuple(REPLICATE if p == PARTIAL else p for p in made.outputs))

    monkeypatch.setattr(rules, "rule_of", lambda op: forgetful if op == "matmul" else rule_of(op))
    with pytest.raises(VerifyError, match=r"matmul .* is no entry of matmul; nearest is .* R \(wanted P\)"):
        pipeline_for(Family()).run(small("llama")[0].graph)
    monkeypatch.setattr(manager, "verify_layouts", lambda *_: None)  # the numbers alone must tell as well
    lowered, _ = pipeline_for(Family()).run(small("llama")[0].graph)
    assert "differs between ranks that should hold the same" in run(lowered, tp=2).broken


def edited(graph: Graph, region: str, nodes: Iterator[Node]) -> Graph:
    """The graph with other nodes in one region."""
    made = tuple(nodes)
    return graph.with_regions(tuple(replace(r, nodes=made) if r.name == region else r for r in graph.regions))


def test_recomputation_from_the_wrong_value_is_found() -> None:
    lowered, _ = pipeline_for(Family(recompute="full", fused=False)).run(small("llama")[0].graph)
    block = lowered.region("block0")
    again = next(n for n in block.nodes if n.phase is Phase.RECOMPUTE and n.op == "elementwise" and len(n.inputs) == 2)
    # The residual is added twice in place of what the layer made of it.
    wrong = replace(again, inputs=(again.inputs[0], again.inputs[0]))
    assert run(lowered, tp=2).equal
    found = run(edited(lowered, "block0", (wrong if n is again else n for n in block.nodes)), tp=2)
    assert not found.equal
    assert found.worst is not None
    assert found.worst.relative > 1e-3


def test_a_backward_phase_that_reads_what_is_not_kept_is_found() -> None:
    lowered, _ = pipeline_for(Family()).run(small("llama")[0].graph)
    block = lowered.region("block0")
    bare = replace(block, values=tuple(replace(v, saved=False) for v in block.values))
    forgotten = lowered.with_regions(tuple(bare if r is block else r for r in lowered.regions))
    assert "which is not kept" in run(forgotten, tp=1).broken


@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.BACKWARD])
def test_a_pipeline_cut_that_sends_nothing_is_found(phase: Phase) -> None:
    lowered, _ = pipeline_for(Family(pp=True)).run(small("llama")[0].graph)
    assert run(lowered, pp=2).equal
    boundary: Region = lowered.region(BOUNDARY)
    cut = edited(lowered, BOUNDARY, (n for n in boundary.nodes if n.phase is not phase))
    assert "is not sent" in run(cut, pp=2).broken
