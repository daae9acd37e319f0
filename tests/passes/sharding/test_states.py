"""State decides and tokens follow: no message inside a step moves a cache or a parameter; no batch is refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from slipstick.benchmarks.coverage.case import model_types
from slipstick.benchmarks.small_configs import small_config
from slipstick.frontend import config_of, load, load_config
from slipstick.ir.errors import PlanError, VerifyError
from slipstick.ir.graph import Graph, Role, Workload
from slipstick.ir.ops import call_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.placement import REPLICATE, TP, Shard
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.plan.divisibility import check_divisibility
from slipstick.ir.sizes.expr import as_expr
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.verify import verify
from slipstick.passes.families import pipeline_for

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

# A norm over all heads of keys; heads folded into the batch; a product with all cached values; a cut in halves of the
# heads; experts of attention; a state of a scan; a parameter of which each layer takes a part.
KINDS = ("codegen", "olmo2", "xglm", "doge", "diffllama", "jetmoe", "minimax", "zamba")
OTHERS = [pytest.param(t, marks=pytest.mark.deep) for t in model_types() if t not in KINDS]
# What transformers cannot build a small one of, or gives no cache.
NO_DECODE = {"blt", "cpmant", "gemma4_assistant", "gemma4_unified_assistant", "openai-gpt", "reformer", "xlm", "xlnet"}
BATCH = {"mbs", "batch", "dp", "fsdp", "ep"}


@cache
def of_type(model_type: str, workload: Workload) -> Graph:
    config = config_of(model_type, {"model_type": model_type, **small_config(model_type)})
    return load_config(config, workload)


def sharded(graph: Graph, **words: object) -> Graph:
    family = Family(workload=graph.workload, **words)  # type: ignore[arg-type]
    return pipeline_for(family).run(graph, stop_after="shard")[0]


def growing(graph: Graph) -> Iterator[str]:
    """Messages of a decode step that are longer where more tokens are cached."""
    for region in graph.regions:
        for node in region.nodes:
            if isinstance(node.attrs, CollectiveAttrs) and "kv" in message_bytes(call_of(region, node)).symbols:
                yield f"{region.name}: {node.op} over {node.attrs.axis}: {node.attrs.why}"


def of_batches(graph: Graph) -> list[str]:
    return [str(c) for c in graph.constraints if not BATCH.isdisjoint(as_expr(c.dim).symbols)]


@pytest.mark.parametrize("model_type", [*KINDS, *OTHERS])
def test_messages_of_a_decode_step_do_not_grow_with_the_cache(model_type: str) -> None:
    if model_type in NO_DECODE:
        pytest.skip("has no decode step here")
    graph = of_type(model_type, Workload.DECODE)
    for words in ({"tp_plan": "megatron"}, {"tp_plan": "dtensor-naive"}, {"ep": True}):
        lowered = sharded(graph, **words)  # verified: no cache and no parameter is moved
        assert list(growing(lowered)) == []
        assert of_batches(lowered) == []
    if any(h.axis == "tp" for h in graph.hints):  # of its own plans, that of Doge sums over heads for each cached token
        assert list(growing(sharded(graph, tp_plan="hf"))) == [] or model_type == "doge"


@pytest.mark.parametrize("phase", ["train", "prefill", "decode"])
@pytest.mark.parametrize(
    "words",
    [
        {"sp": True, "ep": True, "etp": False}, {"ep": True, "etp": False}, {"etp": False, "sp": True},
        {"ep": True, "exchange": "allgather"}, {"ep": True, "etp": False, "exchange": "allgather"}, {"etp_dp": True},
        {"cp": "ring"}, {"cp": "ulysses", "ep": True, "etp": False, "sp": True}, {"ep": True, "imbalance": True},
    ],
    ids=str,
)  # fmt: skip
def test_no_batch_makes_a_degree_illegal(words: dict[str, object], phase: str) -> None:
    assert of_batches(sharded(load("mixtral-8x7b", phase), **words)) == []


def test_a_rank_with_some_rows_has_one_at_least() -> None:
    """Four experts a token on eight ranks: no rank has half a row."""
    graph = sharded(load("gpt-oss-20b", "decode"), ep=True, etp=False)
    plan = make_plan(num_gpus=8, tp=8, ep=8, etp=1, seq_len=1, kv_len=512, micro_batch=1, family=Family(
        workload=Workload.DECODE, ep=True, etp=False))  # fmt: skip
    check_divisibility(graph, plan)
    rows = {
        as_expr(region.by_id[node.inputs[0]].type.dims[0]).evaluate({"mbs": float(mbs), "tp": 8.0})
        for region in graph.regions
        for node in region.nodes
        if node.op == "expert_bank"
        for mbs in (1, 2, 3)
    }
    assert rows == {1.0, 2.0}  # 4, 8 and 12 rows


def test_a_cache_that_a_layer_reads_all_of_is_whole_on_every_rank() -> None:
    graph = sharded(of_type("doge", Workload.DECODE))
    caches = [v for r in graph.regions for v in r.of_role(Role.CACHE)]
    lies = {v.name.rpartition(".")[2]: v.placement(TP) for v in caches}
    assert lies == {"keys": Shard(1), "values": REPLICATE}
    assert any("cache.*.values' is whole on every rank of tp" in note for note in graph.notes)


MOVES = """slipstick.graph 1
graph "toy" decode bf16
axes dp, tp
schedule block
region block
  %0 = {role} "state" : bf16[mbs, 8/{axis}, kv, 64] <dp=R, tp=R>
  %1 = reshape(%0) : bf16[mbs, 8/{axis}, kv, 8, 8] ~0 <dp=R, tp=R>
  %2 = all_gather(%1) {{axis="{axis}", dim=1, why="test"}} : bf16[mbs, 8, kv, 8, 8] <dp=R, tp=R>
end
"""


@pytest.mark.parametrize("role", ["cache", "param"])
def test_a_message_that_moves_state_is_a_broken_rule(role: str) -> None:
    text = MOVES.format(role=role, axis="tp")
    with pytest.raises(VerifyError, match=f"'all_gather' at the top moves {role} 'state', which stays where it is"):
        verify(parse_graph(text))


def test_shards_of_zero_are_no_state_that_moves(tiny_llama: Graph) -> None:
    """Stage 3 gathers parameters over the axes on which they are alike, and nothing else."""
    graph = sharded(tiny_llama, zero=3)
    gathers = [n for r in graph.regions for n in r.nodes if n.op == "all_gather"]
    assert {n.attrs.axis for n in gathers if isinstance(n.attrs, CollectiveAttrs)} == {"dp"}


@pytest.mark.parametrize("name", ["gpt2", "gpt3-175b"])
@pytest.mark.parametrize("phase", ["train", "prefill", "decode"])
def test_experts_of_a_dense_model_are_refused_in_every_phase(name: str, phase: str) -> None:
    family = Family(workload=Workload(phase), ep=True)
    graph = sharded(load(name, phase), ep=True)
    sizes = {"seq_len": 1, "kv_len": 64} if phase == "decode" else {"seq_len": 64}
    with pytest.raises(PlanError, match="has no experts to deal out"):
        check_divisibility(graph, make_plan(num_gpus=8, ep=2, family=family, global_batch=8, **sizes))


@pytest.mark.parametrize("phase", [Workload.DECODE, *(pytest.param(w, marks=pytest.mark.deep) for w in Workload)])
def test_a_plan_is_searched_for_a_graph_with_any_open_length(phase: Workload) -> None:
    """An encoder reads `src` tokens until a plan says how many."""
    sizes = {"d_model": 64, "d_kv": 16, "num_heads": 4, "d_ff": 128, "num_layers": 1, "num_decoder_layers": 1}
    graph = load_config(config_of("t5", {"model_type": "t5", "vocab_size": 128, **sizes}), phase)
    for plan in ("auto", "megatron"):
        assert sharded(graph, tp_plan=plan).axes
