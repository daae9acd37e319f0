"""Modules of multi-token prediction: weights, work and gradients by hand, DeepSeek-V3's by what is published of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slipstick.backends.machine.load import load_system
from slipstick.cost.flops import Convention, ModelFlops
from slipstick.driver.estimate import estimate, lower
from slipstick.frontend import load
from slipstick.ir.errors import NotBuiltError, PlanError
from slipstick.ir.graph import Graph, Phase, Region, Role
from slipstick.ir.ops import OpClass, Trait, has, work_of
from slipstick.ir.plan import Family, PlanWords, check_family, plan_of
from slipstick.ir.plan.layout.stages import lay_stages
from slipstick.passes.families import pipeline_for
from slipstick.passes.mtp.mtp import Mtp
from slipstick.verify.proof.certificate import certify

# The tiny Llama: hidden 64, 2 key-value heads of 16, MLP 96, vocabulary 160.
HIDDEN, VOCAB = 64, 160
LAYER = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96
MTP = Family(mtp_num_layers=1)
ENV = {"batch": 2, "seq": 64}
TOKENS = 2 * 64


def made(graph: Graph, layers: int = 1) -> Graph:
    return Mtp(layers).apply(graph).graph


def flops(graph: Graph, phase: Phase, *kinds: OpClass) -> float:
    """FLOPs of a phase in products, by default those of weights."""
    asked = kinds or (OpClass.MATMUL,)
    counted = ((r, n) for r in graph.regions for n in r.nodes if n.phase is phase and has(n, *asked))
    return sum(float(work_of(r, n).tensor_flops.evaluate(ENV)) * graph.counts[r.name] for r, n in counted)


@pytest.mark.parametrize("layers", [1, 3])
def test_a_module_adds_a_layer_a_projection_and_three_norms(tiny_llama: Graph, layers: int) -> None:
    """The table and the head are shared; a layer has two norms of its own besides."""
    added = made(tiny_llama, layers).num_parameters.evaluate({}) - tiny_llama.num_parameters.evaluate({})
    assert added == layers * (LAYER + 2 * HIDDEN * HIDDEN + (2 + 3) * HIDDEN)


@pytest.mark.parametrize("layers", [1, 3])
def test_a_module_multiplies_its_layer_its_projection_and_the_head(tiny_llama: Graph, layers: int) -> None:
    graph = made(tiny_llama, layers)
    forward = layers * 2 * TOKENS * (LAYER + 2 * HIDDEN * HIDDEN + HIDDEN * VOCAB)
    assert flops(graph, Phase.FORWARD) - flops(tiny_llama, Phase.FORWARD) == forward
    assert flops(graph, Phase.BACKWARD) - flops(tiny_llama, Phase.BACKWARD) == 2 * forward
    before, after = (flops(g, Phase.FORWARD, OpClass.ATTENTION) for g in (tiny_llama, graph))
    assert after == before * (2 + layers) / 2  # the tiny Llama has two layers


def reached(region: Region, value: int) -> set[str]:
    """Ports and forward nodes' ops whose gradients a value of the backward phase is made of."""
    node = region.producer.get(value)
    if node is None:
        return {region.by_id[value].name} - {""}
    return {node.op}.union(*(reached(region, i) for i in node.inputs))


@pytest.mark.parametrize("name", ["tiny_llama", "tiny_gpt2", "tiny_deepseek"])
def test_gradients_of_what_is_shared_are_added_up(name: str, request: pytest.FixtureRequest) -> None:
    """The owner of table and head adds what each module sends; the last layer's gradient comes of both heads."""
    source = request.getfixturevalue(name)
    graph = made(source, 2)
    ports = {p.name: r.name for r in graph.regions for p in r.outputs if r.phase_of(p.value) is Phase.BACKWARD}
    first, head = graph.region("prologue"), graph.region("epilogue")
    table = next(n.inputs[1] for n in first.nodes if has(n, Trait.READS_TABLE))
    assert "mtp_table_grad" in reached(first, dict(first.grads)[table])
    sent = {name for name in ports if name.startswith("mtp_head_grad")}
    handed = [g for _, g in head.grads] + [p.value for p in head.outputs]
    assert sent <= set().union(*(reached(head, value) for value in handed))
    shared = {v.name for r in source.regions for v in r.of_role(Role.PARAM) if "*" not in v.name and v.type.rank > 1}
    owned = [r.by_id[p].name for r in graph.regions for p, _ in r.grads]
    assert all(owned.count(name) == 1 for name in shared)


def test_the_second_module_reads_the_first_one(tiny_llama: Graph) -> None:
    graph = made(tiny_llama, 2)
    assert list(graph.sequence())[-6:] == [
        "mtp_embedding_inner", "mtp_layer", "mtp_head_inner", "mtp_embedding", "mtp_layer", "mtp_head",
    ]  # fmt: skip
    layer, stream = graph.region("mtp_layer"), graph.region("block0").outputs[0].name
    assert stream in {v.name for v in layer.of_role(Role.PORT)}
    assert stream in {p.name for p in layer.outputs}


@pytest.mark.parametrize("family", [Family(sp=True, pp=True, mtp_num_layers=2), Family(zero=3, mtp_num_layers=2)])
def test_what_ranks_compute_is_proven_to_be_what_one_would(tiny_llama: Graph, family: Family) -> None:
    graphs: dict[str, Graph] = {}
    made, times = pipeline_for(family).run(tiny_llama, dump=lambda _, step, graph: graphs.update({step.name: graph}))
    assert certify(graphs["accumulate"], graphs["shard"], made, [t.name for t in times]).holds


def test_deepseek_v3_has_the_work_that_megatron_bridge_counts() -> None:
    """Its tables print 259.8 GFLOP a token (1,276 TFLOP/s at 4,912 tokens/s) and 249.7 `w/o MTP` (1,088 at 4,357).

    Both count half of attention.
    The model card has 11.5B weights of the module without what is shared, and ours its projection (0.10B) too.
    """
    source = load("deepseek-v3")
    graph = made(source)
    weights = graph.num_parameters.evaluate({}) - source.num_parameters.evaluate({})
    assert float(weights) - 2 * 7168**2 == pytest.approx(11.5e9, rel=0.001)
    env = {"batch": np.ones(1), "seq": np.full(1, 4096.0)}
    without, with_it = (
        ModelFlops.of(g).total(env, Convention.CAUSAL)[0] / 4096 for g in (source, lower(source, MTP).source)
    )
    assert with_it - without == pytest.approx((1276 / 4.912 - 1088 / 4.357) * 1e9, rel=0.02)
    assert with_it == pytest.approx(1276e12 / 4912, rel=0.005)


def test_a_pipeline_has_modules_on_its_last_stage_and_adds_up_gradients_of_the_table(tiny_llama: Graph) -> None:
    lowered = lower(tiny_llama, Family(mtp_num_layers=1, pp=True))
    layout = lay_stages(lowered.graph, "even", 2)
    runs = [{r.name: n for r, n in zip(lowered.graph.regions, c.counts, strict=True) if n} for c in layout.classes]
    assert [{name for name in stage if name.startswith("mtp_")} for stage in runs] == [
        set(), {"mtp_embedding", "mtp_layer", "mtp_head"},
    ]  # fmt: skip
    shared = next(r for r in lowered.graph.schedule if r.regions[0].startswith("shared"))
    assert set(shared.regions[1:]) == {"prologue", "mtp_embedding"}
    crosses = next(r for r in lowered.graph.regions if r.name.startswith("boundary"))
    plain = lower(tiny_llama, Family(pp=True)).graph
    assert len(crosses.nodes) == len(next(r for r in plain.regions if r.name.startswith("boundary")).nodes)


def low(graph: Graph) -> set[str]:
    """Regions with casts to low precision."""
    return {r.name for r in graph.regions if any(has(n, Trait.QUANTISES) for n in r.nodes)}


def test_recipes_of_fp8_hold_for_modules_and_nvfp4_does_not(tiny_llama: Graph) -> None:
    """As Megatron-LM has it; bf16-last counts the layers of the model."""
    assert low(lower(tiny_llama, Family(mtp_num_layers=1, precision="fp8")).graph) == {"block0", "mtp_layer"}
    assert low(lower(tiny_llama, Family(mtp_num_layers=1, precision="nvfp4")).graph) == {"block0"}
    edge = lower(tiny_llama, Family(mtp_num_layers=1, precision="fp8", bf16_last=1)).graph
    assert low(edge) == {"block0", "mtp_layer"}
    assert edge.counts["block0_high"] == 1


def test_modules_are_recomputed_as_layers(tiny_llama: Graph) -> None:
    lowered = lower(tiny_llama, Family(mtp_num_layers=1, recompute="full")).graph
    again = {r.name for r in lowered.regions if any(n.phase is Phase.RECOMPUTE for n in r.nodes)}
    assert again == {"block0", "mtp_layer"}


@pytest.mark.parametrize("degrees", [{"tp": 2}, {"pp": 2}, {"cp": 2}, {"zero": 3}])
def test_a_step_takes_longer_and_more_memory(tiny_llama: Graph, degrees: dict[str, int]) -> None:
    system = load_system("dgx-h100")

    def step(layers: int) -> tuple[float, float]:
        words = PlanWords(seq_len=512, global_batch=4, num_gpus=2, mtp_num_layers=layers, **degrees)  # type: ignore[arg-type]
        metrics = estimate(tiny_llama, system, plan_of(words, system.stack)).metrics
        return metrics["step_time_s"], metrics["peak_mem_bytes"]

    none, one, two = map(step, range(3))
    assert none[0] < one[0] < two[0]
    assert none[1] < one[1] < two[1]


def test_what_cannot_be_is_refused(tiny_llama: Graph) -> None:
    with pytest.raises(NotBuiltError, match="use one of them"):
        check_family(Family(mtp_num_layers=1, lora_rank=8))
    with pytest.raises(PlanError, match="of training only"):
        check_family(Family(mtp_num_layers=1, workload=load("llama-3.1-8b", "prefill").workload))
    # More would fill memory.
    with pytest.raises(PlanError, match="1 to 1000"):
        Mtp(2**31).apply(tiny_llama)
    headless = replace(tiny_llama, schedule=tiny_llama.schedule[:-1])
    with pytest.raises(NotBuiltError, match="not a row of layers"):
        made(headless)
