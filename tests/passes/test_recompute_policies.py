"""Recomputation by layers, by modules and by ops: bytes and products of a layer of Llama, derived by hand.

Llama-3.1-8B has 32 layers of hidden size h = 4096, keys and values of g = 1024, an MLP of f = 14336, 32 heads and no
dropout. A layer keeps for each token, in bf16 unless said otherwise:

    input 2h, normed 2h, its statistic 4 (fp32), queries 2h, keys and values 4g, attention 2h, a log-sum-exp of 4 bytes
    a head, residual 2h, normed 2h, its statistic 4, gate, its SiLU, up and their product 8f.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.system import System
from slipstick.cost.memory.liveness import live_bytes, received_gradients
from slipstick.cost.memory.moments import held_bytes, moments
from slipstick.driver.estimate import Lowered, estimate, lower, pipeline_for
from slipstick.frontend import load
from slipstick.ir.errors import NotBuiltError, PlanError, UnknownNameError
from slipstick.ir.graph import Graph, Phase, Region, Run
from slipstick.ir.ops import work_of
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.sizes.expr import Expr, symbol, total
from slipstick.ir.text.parse import parse_graph
from slipstick.passes.manager import parse_pipeline

TOKENS = symbol("mbs") * symbol("seq")
H, G, F, HEADS, LAYERS = 4096, 1024, 14336, 32, 32
ATTENTION = 2 * H + 4 * HEADS  # result and log-sum-exp
NORMED, STATISTIC = 2 * H, 4
MLP = 8 * F
ALL = 2 * (2 * H + NORMED + STATISTIC) + 2 * H + 4 * G + ATTENTION + MLP
QKV, PROJECTION, UP = 2 * H * (H + 2 * G), 2 * H * H, 2 * H * F  # FLOPs a token

Recomputed = Callable[..., Graph]


@pytest.fixture(scope="module")
def recomputed(llama_8b: Graph) -> Recomputed:
    """Llama through `shard` and `recompute` with options."""
    return lambda options: parse_pipeline(f"shard,recompute{{{options}}}").run(llama_8b)[0]


@pytest.fixture(scope="module")
def lowered(llama_8b: Graph) -> Callable[[Family], Lowered]:
    """Llama lowered for a family, each made once."""
    return cache(lambda family: lower(llama_8b, family))


def again(region: Region) -> Expr:
    """FLOPs of the products that run again."""
    return total(work_of(region, n).tensor_flops for n in region.nodes if n.phase is Phase.RECOMPUTE)


def at(e: Expr) -> float:
    return float(e.evaluate({"mbs": 1.0, "seq": 2048.0, "tp": 1.0, "dp": 1.0}))


# A token's share of a layer, with tp = 1.


def per_token(e: Expr) -> float:
    return at(e) / 2048


def test_a_layer_keeps_what_the_list_says(recomputed: Recomputed) -> None:
    assert per_token(recomputed('policy="none"').region("block0").saved_bytes) == ALL


def ends(recomputed: Recomputed) -> float:
    """What is kept before and behind the layers: the first one's input too, not the last one's result."""
    return per_token(recomputed('policy="none"').saved_bytes) - LAYERS * ALL


# By modules.


@pytest.mark.parametrize(
    ("modules", "forgotten", "products"),
    [
        ("core_attn", 4 * HEADS, 4 * 2048 * H),
        # Both normed inputs and their statistics are made again.
        ("layernorm", 2 * (NORMED + STATISTIC), 0),
        # The SiLU and the product with the up-projection: of the four of the MLP gate and up stay.
        ("mlp_act", 4 * F, 0),
        # The MLP keeps its input alone; its last product is not needed.
        ("mlp", MLP, 2 * UP),
        ("*.mlp*", MLP, 2 * UP),
        ("mlp, layernorm", MLP + 2 * (NORMED + STATISTIC), 2 * UP),
        # Queries, keys, values and the log-sum-exp; the result of attention is read by the projection, inside as well.
        ("self_attn", 2 * H + 4 * G + ATTENTION, QKV + 4 * 2048 * H),
    ],
)
def test_modules_forget_what_is_inside_them(
    recomputed: Recomputed, modules: str, forgotten: int, products: int
) -> None:
    names = ", ".join(f'"{m.strip()}"' for m in modules.split(","))
    layer = recomputed(f'policy="selective", modules=[{names}]').region("block0")
    assert per_token(layer.saved_bytes) == ALL - forgotten
    assert per_token(again(layer)) == products


def test_a_checkpointed_module_keeps_its_input(recomputed: Recomputed) -> None:
    layer = recomputed('policy="selective", modules=["mlp"]').region("block0")
    kept = {n.scope for n in layer.nodes if n.phase is Phase.FORWARD and layer.by_id[n.key].saved}
    assert "model.layers.*.post_attention_layernorm" in kept
    assert not any("mlp" in scope for scope in kept)


def test_what_discards_is_read_anew_by_checkpoints_too(recomputed: Recomputed) -> None:
    layer = recomputed('policy="selective", modules=["mlp", "layernorm"]').region("block0")
    normed = {o for n in layer.nodes if n.op == "norm" and n.phase is Phase.FORWARD for o in n.outputs}
    assert not any(normed & {*n.inputs} for n in layer.nodes if n.phase is not Phase.FORWARD)


def test_modules_of_experts() -> None:
    graph = parse_pipeline('shard,recompute{policy="selective", modules=["moe"]}').run(load("mixtral-8x7b"))[0]
    layer = graph.region("block0")
    inside = {n.op for n in layer.nodes if n.phase is Phase.RECOMPUTE}
    assert "experts" in inside
    assert "attention" not in inside
    assert not any(layer.by_id[o].saved for n in layer.nodes if n.op == "experts" for o in n.outputs)


def test_up_projections_of_latent_attention_are_made_again() -> None:
    # DeepSeek-V3: 128 heads; queries of 192 from 1536 and keys with values of 128 + 128 from 512.
    graph = parse_pipeline('shard,recompute{policy="selective", modules=["mla_up_proj"]}').run(load("deepseek-v3"))[0]
    for name in ("block0", "block1"):
        assert per_token(again(graph.region(name))) == 2 * 128 * (192 * 1536 + 256 * 512)


def test_an_unknown_module_is_refused_with_the_nearest(recomputed: Recomputed) -> None:
    with pytest.raises(UnknownNameError, match=r"'layernrom'.*did you mean 'layernorm'"):
        recomputed('policy="selective", modules=["layernrom"]')
    with pytest.raises(UnknownNameError, match=r"no layer has what Megatron-Core calls 'moe'; allowed: core_attn"):
        recomputed('policy="selective", modules=["moe"]')
    with pytest.raises(UnknownNameError, match=r"self_atn.*self_attn"):
        recomputed('policy="selective", modules=["self_atn"]')
    with pytest.raises(NotBuiltError, match="moe_act"):
        recomputed('policy="selective", modules=["moe_act"]')


# By ops.


def test_every_second_product_and_attention_are_kept(recomputed: Recomputed) -> None:
    # In order: queries, keys, values, projection, gate, up, down; kept are the odd ones, of which the last is not read.
    # What rotates the queries is read of what is kept, so nothing else remains of the layer but its input.
    layer = recomputed('policy="ops"').region("block0")
    assert per_token(layer.saved_bytes) == 2 * H + 2 * H + 2 * G + ATTENTION + 2 * F
    assert per_token(again(layer)) == 2 * H * G + PROJECTION + UP
    assert not any(n.op == "attention" for n in layer.nodes if n.phase is Phase.RECOMPUTE)


def test_reduce_scatters_are_kept_and_gathers_run_again(llama_8b: Graph) -> None:
    for policy, scatters in (("ops", 0), ("full", 1)):
        graph = parse_pipeline(f'shard{{sp=true}},recompute{{policy="{policy}"}}').run(llama_8b)[0]
        found = Counter(n.op for n in graph.region("block0").nodes if n.phase is Phase.RECOMPUTE)
        assert (found["reduce_scatter"], found["all_gather"]) == (scatters, 2)


# By layers.


def test_only_the_first_layers_are_recomputed(recomputed: Recomputed) -> None:
    graph = recomputed('policy="full", layers=8')
    assert graph.schedule[1:-1] == (Run(("block0_recomputed",), 8), Run(("block0",), 24))
    assert per_token(graph.saved_bytes) == ends(recomputed) + 8 * 2 * H + 24 * ALL
    assert [at(again(graph.region(n))) > 0 for n in ("block0_recomputed", "block0")] == [True, False]


# Korthikanti et al., arXiv 2205.05198: a layer of a GPT keeps s b h (10 + 24 / t) without its scores, and its input is
# 2 s b h of that. Ours adds two statistics of two norms in bf16, and the log-sum-exp of fused attention in fp32.
GPTS = (("megatron-22b", 6144, 64, 48), ("megatron-530b", 20480, 128, 105))


@pytest.mark.parametrize(("name", "hidden", "heads", "num_layers"), GPTS)
@pytest.mark.parametrize(
    ("options", "whole", "inputs"),
    [
        ("layers=1", lambda n: n - 1, lambda n: 1),
        ("layers=40", lambda n: n - 40, lambda n: 40),
        ("every=1", lambda n: 0, lambda n: n),
        ("every=4", lambda n: 0, lambda n: (n + 3) // 4),
        ("every=16", lambda n: 0, lambda n: (n + 15) // 16),
    ],
)
def test_layers_of_the_papers_models(
    name: str, hidden: int, heads: int, num_layers: int, options: str, whole: Callable[[int], int],
    inputs: Callable[[int], int],
) -> None:  # fmt: skip
    graph = parse_pipeline(f"shard,recompute{{{options}}}").run(load(name))[0]
    layers = total(r.saved_bytes * graph.counts[r.name] for r in graph.regions[1:-1])
    # What leaves the last layer of a group is the next one's input; the first input of all belongs to the embedding.
    tokens, tp = TOKENS, symbol("tp")
    kept = tokens * (10 * hidden + 8) + tokens * (24 * hidden + 4 * heads) / tp
    assert layers == kept * whole(num_layers) + tokens * (2 * hidden * inputs(num_layers))


@pytest.mark.parametrize("layers", [1, 5, 24])
def test_first_layers_of_kinds_that_alternate(layers: int) -> None:
    graph = load("gpt-oss-20b")
    sequence = list(graph.sequence())[1:-1]
    made = parse_pipeline(f"shard,recompute{{layers={layers}}}").run(graph)[0]
    wanted = [f"{name}_recomputed" if k < layers else name for k, name in enumerate(sequence)]
    assert list(made.sequence())[1:-1] == wanted


def test_groups_keep_the_input_of_their_first_layer(recomputed: Recomputed) -> None:
    graph = recomputed('policy="full", every=4')
    assert graph.schedule[1:-1] == (Run(("block0_first", "block0_middle", "block0_middle", "block0_last"), 8),)
    assert per_token(graph.saved_bytes) == ends(recomputed) + 8 * 2 * H


def test_the_last_group_takes_what_is_left(recomputed: Recomputed) -> None:
    graph = recomputed('policy="full", every=5')
    first, middle, last = (f"block0_{kind}" for kind in ("first", "middle", "last"))
    assert graph.schedule[1:-1] == (Run((first, middle, middle, middle, last), 6), Run((first, last), 1))
    assert per_token(graph.saved_bytes) == ends(recomputed) + 7 * 2 * H


def test_inside_a_group_the_last_product_is_needed_too(recomputed: Recomputed) -> None:
    # What leaves a layer enters the next one, recomputed; only the last layer of a group may stop before its end.
    graph = recomputed('policy="full", every=4')
    forward = QKV + 2 * PROJECTION - PROJECTION + 3 * UP + 4 * 2048 * H
    for kind, products in (("first", forward), ("middle", forward), ("last", forward - UP)):
        assert per_token(again(graph.region(f"block0_{kind}"))) == products


def test_the_layers_of_a_group_wait_recomputed(recomputed: Recomputed) -> None:
    # While the last of four layers goes backward, each of the three before it holds all that it would have kept. The
    # first one's input is kept; the others' inputs are handed on by the layer before.
    graph = recomputed('policy="full", every=8')
    first, middle, last = (graph.region(f"block0_{kind}") for kind in ("first", "middle", "last"))
    assert [per_token(held_bytes(r)) for r in (first, middle, last)] == [ALL, ALL, ALL - 2 * H]
    late = [n.phase is not Phase.FORWARD for n in last.nodes if n.phase is not Phase.REDUCE]
    live = live_bytes(last, received_gradients(graph))
    alone = max(at(e) for e, later in zip(live, late, strict=True) if later)
    assert max(at(e) for _, _, e in moments(graph)) == alone + 7 * 2048 * ALL


def test_one_layer_at_a_time_is_alive_where_each_is_recomputed_alone() -> None:
    # Kept is x, 1 byte an element. The backward phase makes a (100 B) and b (200 B) again, then the gradient of b
    # (200 B, while a and b are there: 500), of a (100 B more: 400 with b and its gradient gone, a still read).
    graph = parse_graph(LAYERS_BY_HAND)
    made = parse_pipeline("recompute").run(graph)[0]
    (layer,) = (r for r in made.regions if r.name == "layer")
    names = [n.key for n in layer.nodes]
    assert [n.phase for n in layer.nodes if n.key in names[3:5]] == [Phase.RECOMPUTE] * 2
    assert live_bytes(layer)[3:] == [100, 300, 500, 400, 200]
    pair = parse_pipeline("recompute{every=2}").run(graph)[0]
    # The first of two holds a, b and its result, which the last one reads, while the last one runs: a gradient of
    # 100 B comes in, it makes a and b again, and then the gradient of b.
    held = held_bytes(pair.region("layer_first"))
    assert held == 100 + 200 + 100
    assert max(at(e) for _, _, e in moments(pair)) == 100 + 500 + 400


LAYERS_BY_HAND = """slipstick.graph 1
graph "by hand" train bf16
schedule begin | layer x4 | end_
region begin
  %0 = input "ids" : int8[100]
  %1 = port "d" : int8[100]
  %2 = cast(%0) : int8[100] saved
  %3 = cast(%1) : int8[100] backward of %2
  out "x" = %2
  out "done" = %3
end
region layer
  %0 = port "x" : int8[100] saved
  %1 = port "d" : int8[100]
  %2 = elementwise(%0) {fns=["exp"]} : int8[100] saved
  %3 = fill(%2) {kind="random"} : int8[200] saved
  %4 = fill(%3) {kind="random"} : int8[100] saved
  %5 = scatter(%3, %2, %1) : int8[200] backward of %4
  %6 = scatter(%2, %5, %0) : int8[100] backward of %3
  %7 = elementwise(%6) {fns=["exp"]} : int8[100] backward of %2
  out "x" = %4
  out "d" = %7
end
region end_
  %0 = port "x" : int8[100] saved
  %1 = elementwise(%0) {fns=["exp"]} : int8[100]
  %2 = elementwise(%1, %0) {fns=["mul"]} : int8[100] backward of %1
  out "d" = %2
end
"""


def test_groups_of_layers_that_alternate() -> None:
    # Two kinds of layers in turn, three at a time: what one kind makes the other reads.
    graph = parse_pipeline("shard,recompute{every=3}").run(load("gpt-oss-20b"))[0]
    inputs = {r.name: {v.name for v in r.values if v.saved and v.name.startswith("x")} for r in graph.regions}
    for name, saved in inputs.items():
        handed = {"x0", "x3"} & saved
        assert bool(handed) == (name.endswith("_first") or name == "epilogue")


def test_groups_of_one_are_plain_full_recomputation(recomputed: Recomputed) -> None:
    assert recomputed('policy="full", every=1') == recomputed('policy="full"')


def test_all_first_layers_are_all_layers(recomputed: Recomputed) -> None:
    some, every = recomputed(f'policy="full", layers={LAYERS}'), recomputed('policy="full"')
    assert some.saved_bytes == every.saved_bytes
    assert [r.nodes for r in some.regions] == [r.nodes for r in every.regions]


def test_states_do_not_depend_on_how_layers_are_split(llama_8b: Graph, made_up: System) -> None:
    plan = make_plan(num_gpus=4, dp=4, seq_len=2048, family=Family(zero=3, recompute="full"))
    full = Family(zero=3, recompute="full")
    found: list[list[float]] = []
    for family in (full, replace(full, recompute_every=5), replace(full, recompute_layers=7)):
        parts = estimate(llama_8b, made_up, plan.under(family)).memory_bytes
        found.append([parts[name] for name in ("weights", "gradients", "optimizer")])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("options", ['policy="full", layers=33', 'policy="full", every=40'])
def test_more_layers_than_there_are_are_refused(recomputed: Recomputed, options: str) -> None:
    with pytest.raises(PlanError, match="has 32; allowed: 1 to 32"):
        recomputed(options)


@pytest.mark.parametrize(
    ("family", "message"),
    [
        (Family(recompute="full", recompute_modules=("mlp",)), "go with the policy 'selective'"),
        (Family(recompute="selective", recompute_layers=2), "go with the policy 'full'"),
        (Family(recompute="none", recompute_every=2), "go with the policy 'full'"),
        (Family(recompute="full", recompute_every=2, recompute_layers=2), "not both"),
        (Family(recompute="full", recompute_every=0), "1 or more"),
    ],
)
def test_options_that_do_not_go_together_are_refused(family: Family, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make_plan(num_gpus=1, seq_len=128, family=family)


def test_groups_of_layers_inside_pipeline_stages_are_refused() -> None:
    family = Family(recompute="full", recompute_every=2, pp=True)
    with pytest.raises(NotBuiltError, match="with --pp"):
        make_plan(num_gpus=2, pp=2, seq_len=128, family=family)


# The family's pipeline, time and memory.


def test_a_family_says_what_it_recomputes() -> None:
    family = Family(recompute="selective", recompute_modules=("mlp", "*.self_attn*"), early_stop=False)
    text = 'recompute{policy="selective", modules=["mlp", "*.self_attn*"], early_stop=false}'
    assert text in str(pipeline_for(family))
    assert "recompute{every=4}" in str(pipeline_for(Family(recompute="full", recompute_every=4)))


CHAINS: tuple[tuple[Family, ...], ...] = (
    (
        Family(),
        Family(recompute="selective", recompute_modules=("mlp_act",)),
        Family(recompute="selective", recompute_modules=("mlp",)),
        Family(recompute="full"),
    ),
    (
        Family(),
        *(Family(recompute="full", recompute_layers=n) for n in (1, 20)),
        *(Family(recompute="full", recompute_every=n) for n in (1, 2, 8, 32)),
    ),
    (Family(), Family(recompute="ops"), Family(recompute="full")),
)


@given(st.sampled_from(CHAINS), st.sampled_from([1, 8]), st.sampled_from([1, 4]), st.sampled_from([2048, 8192]))
def test_recomputing_more_never_keeps_more_and_never_takes_less_time(
    llama_8b: Graph,
    made_up: System,
    lowered: Callable[[Family], Lowered],
    chain: tuple[Family, ...],
    tp: int,
    mbs: int,
    seq: int,
) -> None:
    plans = [make_plan(num_gpus=tp, tp=tp, seq_len=seq, micro_batch=mbs, family=family) for family in chain]
    answers = [estimate(llama_8b, made_up, plan, lowered=lowered(plan.family)) for plan in plans]
    kept = [a.memory_bytes["activations"] for a in answers]
    times = [a.metrics["step_time_s"] for a in answers]
    assert kept == sorted(kept, reverse=True)
    assert times == sorted(times)
    assert all(a.metrics["hfu"] >= a.metrics["mfu"] for a in answers)
