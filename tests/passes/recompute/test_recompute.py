"""Recomputation: what a layer keeps against closed forms, and what running it again costs.

Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), give the bytes that a layer
of a GPT keeps, with s the sequence, b the micro-batch, h the hidden size, a the heads, t the tensor-parallel group:

    nothing recomputed, tensor parallel           s b h (10 + 24/t + 5 a s / (h t))
    the same with sequence parallelism            s b h / t (34 + 5 a s / h)
    attention core recomputed                     the same without 5 a s / h
    all recomputed                                2 s b h, or 2 s b h / t in shards of the sequence

Ours are these, term by term, but for two:

- 5 a s / h: scores, softmax and its dropout. Fused attention keeps the log-sum-exp of a row instead, 4 bytes a head and
  token; with attention spelt out in the model, the term is there to the byte.
- Mean and reciprocal deviation of each of two norms, 8 bytes a token: the paper leaves them out as small.

Its sequence parallelism gathers the inputs of a layer again in the backward phase; here that is `regather`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.system import System
from slipstick.cost.memory.liveness import live_bytes
from slipstick.driver.estimate import estimate, lower
from slipstick.frontend import load
from slipstick.ir.errors import PlanError, UnknownNameError
from slipstick.ir.graph import Graph, Phase, Region, Role, Workload
from slipstick.ir.ops import call_of, work_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.sizes.expr import Expr, as_expr, symbol, total
from slipstick.passes.manager import parse_pipeline

DATA = Path(__file__).parents[2] / "data"
PLAIN, MIXTRAL = DATA / "plain_attention.py", str(DATA / "configs" / "tiny-mixtral.json")
MBS, SEQ, TP = symbol("mbs"), symbol("seq"), symbol("tp")
TOKENS = MBS * SEQ
NORM_BYTES = 2 * 2 * 2  # two statistics of two norms; a CPU kernel keeps them in bf16
LOG_SUM_EXP_BYTES = 4  # fp32, a head and token
GIB = 2**30
FORWARD, BACKWARD, RECOMPUTE = Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE

Lowering = Callable[..., Graph]


@dataclass(frozen=True, slots=True)
class Gpt:
    """A model of the paper, figure 1: sizes, and the bytes of its first pipeline stage."""

    name: str
    hidden: int
    heads: int
    num_layers: int
    batch: int
    in_flight: float
    kept_gib: float
    least_gib: float

    @property
    def scores_bytes(self) -> float:
        """The term 5 a s^2 b of one layer."""
        return 5 * self.heads * 2048**2 * self.batch


# Layers of a stage in flight: with p stages in v chunks, L (1 + (p - 1) / (p v)), and L where v = 1.
GPTS = (
    Gpt("megatron-22b", 6144, 64, 48, 4, 48, 59.25, 9.5625),
    Gpt("megatron-175b", 12288, 96, 96, 1, 96 * (1 + 7 / 24), 66.84375, 12.3515625),
    Gpt("megatron-530b", 20480, 128, 105, 1, 105 * (1 + 34 / 105), 114.0234375, 23.0761719),
    Gpt("megatron-1t", 25600, 160, 128, 1, 128, 131.25, 26.5625),
)


@pytest.fixture(scope="module")
def model(llama_8b: Graph) -> Callable[[str], Graph]:
    """Trace a model once."""

    @cache
    def traced(name: str) -> Graph:
        return llama_8b if name == "llama-3.1-8b" else load(name)

    return traced


@pytest.fixture(scope="module")
def lowered(model: Callable[[str], Graph]) -> Lowering:
    """A model through `shard` and `recompute`, each combination made once."""

    @cache
    def make(name: str, options: str = "", policy: str = "none", early_stop: bool = True) -> Graph:
        again = f'policy="{policy}", early_stop={str(early_stop).lower()}'
        return parse_pipeline(f"shard{{{options}}},recompute{{{again}}}").run(model(name))[0]

    return make


@pytest.fixture(scope="module", params=GPTS, ids=lambda gpt: gpt.name)
def gpt(request: pytest.FixtureRequest) -> Gpt:
    assert isinstance(request.param, Gpt)
    return request.param


def at(e: Expr, **sizes: float) -> float:
    return float(e.evaluate({"mbs": 1.0, "seq": 2048.0, "tp": 8.0, "dp": 1.0, "batch": 1.0, **sizes}))


def product_flops(region: Region, phase: Phase) -> Expr:
    return total(work_of(region, n).tensor_flops for n in region.nodes if n.phase is phase)


# What a layer keeps.


def test_tensor_parallel_layers_keep_ten_whole_and_twenty_four_in_shards(lowered: Lowering, gpt: Gpt) -> None:
    h, statistics = gpt.hidden, gpt.heads * LOG_SUM_EXP_BYTES
    kept = lowered(gpt.name).region("block0").saved_bytes
    assert kept == TOKENS * (10 * h + NORM_BYTES) + TOKENS * (24 * h + statistics) / TP
    selective = lowered(gpt.name, policy="selective").region("block0").saved_bytes
    assert selective == TOKENS * (10 * h + NORM_BYTES) + TOKENS * (24 * h) / TP


def test_sequence_parallel_layers_keep_thirty_four_in_shards(lowered: Lowering, gpt: Gpt) -> None:
    h, statistics = gpt.hidden, gpt.heads * LOG_SUM_EXP_BYTES
    options = "sp=true, regather=true"
    kept = lowered(gpt.name, options).region("block0").saved_bytes
    assert kept == TOKENS * (34 * h + NORM_BYTES + statistics) / TP
    selective = lowered(gpt.name, options, "selective").region("block0").saved_bytes
    assert selective == TOKENS * (34 * h + NORM_BYTES) / TP


def test_without_gathering_again_the_inputs_of_attention_and_mlp_are_kept_whole(lowered: Lowering, gpt: Gpt) -> None:
    h, statistics = gpt.hidden, gpt.heads * LOG_SUM_EXP_BYTES
    kept = lowered(gpt.name, "sp=true").region("block0").saved_bytes
    assert kept == TOKENS * (4 * h) + TOKENS * (30 * h + NORM_BYTES + statistics) / TP


def test_recomputed_layers_keep_their_input(lowered: Lowering, gpt: Gpt) -> None:
    whole = TOKENS * (2 * gpt.hidden)
    assert lowered(gpt.name, policy="full").region("block0").saved_bytes == whole
    assert lowered(gpt.name, "sp=true", "full").region("block0").saved_bytes == whole / TP


def test_bytes_of_the_papers_models(lowered: Lowering, gpt: Gpt) -> None:
    per_token = gpt.batch * 2048
    kept = at(lowered(gpt.name).region("block0").saved_bytes, mbs=gpt.batch)
    kept -= per_token * (NORM_BYTES + gpt.heads * LOG_SUM_EXP_BYTES / 8)
    assert (kept + gpt.scores_bytes / 8) * gpt.in_flight / GIB == pytest.approx(gpt.kept_gib, rel=1e-7)
    options = "sp=true, regather=true"
    least = at(lowered(gpt.name, options, "selective").region("block0").saved_bytes, mbs=gpt.batch)
    least -= per_token * NORM_BYTES / 8
    assert least * gpt.in_flight / GIB == pytest.approx(gpt.least_gib, rel=1e-7)


def test_a_whole_model_keeps_the_papers_extras_at_both_ends(lowered: Lowering) -> None:
    # Dropout behind the table: s b h / t; behind the layers the norm's input, the head's, and fp32 logits:
    # 4 s b h / t (1 + V / h). Besides: ids and labels, positions, statistics of a last norm, and of the loss.
    gpt = GPTS[0]
    h, vocabulary = gpt.hidden, 51200
    whole = lowered(gpt.name, "sp=true, regather=true").saved_bytes
    layers = TOKENS * ((34 * h + NORM_BYTES + gpt.heads * LOG_SUM_EXP_BYTES) * gpt.num_layers) / TP
    ends = TOKENS * (h + 4 * h + 4 * vocabulary) / TP
    small = TOKENS * (8 + 8 + 12) + SEQ * 8 + TOKENS * (NORM_BYTES // 2) / TP
    assert whole == layers + ends + small


def test_attention_spelt_out_keeps_five_bytes_a_score(lowered: Lowering) -> None:
    h, heads, name = 64, 4, f"{PLAIN}:gpt"
    rest = TOKENS * (34 * h + NORM_BYTES)
    alone = {"tp": 1, "ceil_256_tp": 4 * h}  # one rank has all that the plan splits

    def saved_bytes(policy: str) -> Expr:
        return as_expr(lowered(name, policy=policy).region("block0").saved_bytes.substitute(alone))

    assert saved_bytes("none") == rest + TOKENS * SEQ * (5 * heads)
    assert saved_bytes("selective") == rest
    assert saved_bytes("full") == TOKENS * (2 * h)


# What running again costs.


def test_a_recomputed_layer_runs_its_forward_products_again(lowered: Lowering, gpt: Gpt) -> None:
    # 24 s b h^2 in the four layers and 4 s^2 b h in the attention. The last dropout's mask needs the last product.
    h = gpt.hidden
    layer = lowered(gpt.name, policy="full").region("block0")
    assert product_flops(layer, RECOMPUTE) == product_flops(layer, FORWARD)
    assert product_flops(layer, RECOMPUTE) == TOKENS * (24 * h * h) / TP + TOKENS * SEQ * (4 * h) / TP


def test_recomputing_stops_where_nothing_is_needed(lowered: Lowering) -> None:
    # Without dropout nothing needs the result of the last product, hidden 4096 times 14336.
    name = "llama-3.1-8b"
    stopped, all_of_it = (lowered(name, policy="full", early_stop=s).region("block0") for s in (True, False))
    last = TOKENS * (2 * 14336 * 4096) / TP
    assert product_flops(all_of_it, RECOMPUTE) == product_flops(all_of_it, FORWARD)
    assert product_flops(stopped, RECOMPUTE) == product_flops(stopped, FORWARD) - last
    assert stopped.saved_bytes == all_of_it.saved_bytes


@pytest.mark.parametrize(("early_stop", "scores"), [(True, 2), (False, 4)])
def test_an_attention_core_is_two_products(lowered: Lowering, early_stop: bool, scores: int) -> None:
    # Of attention spelt out only the scores are needed again, 2 s^2 b h; fused attention has one kernel for both.
    plain = lowered(f"{PLAIN}:gpt", "", "selective", early_stop).region("block0")
    assert product_flops(plain, RECOMPUTE) == TOKENS * SEQ * (scores * 64) / TP
    fused = lowered("megatron-22b", "", "selective", early_stop).region("block0")
    assert product_flops(fused, RECOMPUTE) == TOKENS * SEQ * (4 * 6144) / TP


def test_what_is_recomputed_is_attention_only(lowered: Lowering) -> None:
    # A router has a softmax too; it stands between no two products of activations.
    for name in ("megatron-22b", MIXTRAL):
        again = [n for n in lowered(name, policy="selective").region("block0").nodes if n.phase is RECOMPUTE]
        assert [n.op for n in again] == ["attention"]
    plain = lowered(f"{PLAIN}:gpt", policy="selective").region("block0")
    work = [n.op for n in plain.nodes if n.phase is RECOMPUTE and n.op != "reshape"]
    assert work == ["matmul", "elementwise", "elementwise", "softmax", "elementwise"]


def test_the_attention_core_runs_again_where_its_gradients_begin(lowered: Lowering) -> None:
    # Not before the MLP's backward, through which its results would have to be kept.
    layer = lowered(f"{PLAIN}:gpt", policy="selective").region("block0")
    later = [n for n in layer.nodes if n.phase in (RECOMPUTE, BACKWARD)]
    first = next(k for k, n in enumerate(later) if n.phase is RECOMPUTE)
    assert any(n.scope.startswith("h.*.mlp") for n in later[:first])
    assert not any(n.scope.startswith("h.*.mlp") for n in later[first:])


def test_a_recomputed_layer_is_alive_as_a_whole(lowered: Lowering) -> None:
    # Its working set is what it would have kept, but for its input, which it keeps.
    name = "megatron-22b"
    kept, again = (lowered(name, policy=p).region("block0") for p in ("none", "full"))
    assert max(at(e) for e in live_bytes(again)) >= at(kept.saved_bytes) - at(again.saved_bytes)


@pytest.mark.parametrize(
    ("options", "early_stop", "collectives"),
    [
        ("", True, {"all_reduce": 1}),
        ("", False, {"all_reduce": 2}),
        ("sp=true", True, {"all_gather": 2, "reduce_scatter": 1}),
        ("sp=true", False, {"all_gather": 2, "reduce_scatter": 2}),
    ],
)
def test_the_communication_of_the_forward_phase_runs_again(
    lowered: Lowering, options: str, early_stop: bool, collectives: dict[str, int]
) -> None:
    layer = lowered("llama-3.1-8b", options, "full", early_stop).region("block0")
    again = [n for n in layer.nodes if n.phase is RECOMPUTE and isinstance(n.attrs, CollectiveAttrs)]
    assert Counter(n.op for n in again) == collectives
    assert {str(message_bytes(call_of(layer, n))) for n in again} == {str(TOKENS * (4096 * 2))}


@pytest.mark.parametrize("policy", ["none", "selective", "full"])
def test_hardware_utilisation_counts_what_runs_again(
    made_up: System, model: Callable[[str], Graph], policy: str
) -> None:
    family = Family(recompute=policy, sp=True)
    plan = make_plan(num_gpus=32, tp=8, seq_len=2048, family=family, micro_batch=2, global_batch=16)
    answer = estimate(model("megatron-22b"), made_up, plan).metrics
    tokens, h = 16 * 2048, 6144
    layers = {"none": 0, "selective": 4 * h * 2048, "full": 24 * h * h + 4 * h * 2048}
    again = 48 * tokens * layers[policy]
    assert answer["hfu"] / answer["mfu"] - 1 == pytest.approx(again / answer["model_flops"], rel=1e-12)
    assert answer["model_flops"] == pytest.approx(3 * tokens * (48 * layers["full"] + 2 * h * 51200), rel=1e-12)


def test_running_all_of_every_layer_again_is_a_third_more(made_up: System, llama_8b: Graph) -> None:
    # Forward once more on top of forward and twice that backward; the head runs once.
    family = Family(recompute="full")
    plan = make_plan(num_gpus=8, tp=8, seq_len=2048, family=family)
    whole = parse_pipeline("accumulate,shard,recompute{early_stop=false},bucket,optimizer")
    answer = estimate(llama_8b, made_up, plan, lowered=lower(llama_8b, family, whole)).metrics
    head = 3 * 2048 * 2 * 4096 * 128256
    assert answer["hfu"] / answer["mfu"] == pytest.approx(1 + (1 - head / answer["model_flops"]) / 3, rel=1e-12)


# What stays as it is.


@pytest.mark.parametrize("policy", ["selective", "full"])
@pytest.mark.parametrize("options", ["", "sp=true, zero=3"])
def test_forward_and_gradients_stay(tiny: Graph, policy: str, options: str) -> None:
    before = parse_pipeline(f"shard{{{options}}}").run(tiny)[0]
    after = parse_pipeline(f'recompute{{policy="{policy}"}}').run(before)[0]
    ends = {before.sequence_once()[0], before.sequence_once()[-1]}
    for old, new in zip(before.regions, after.regions, strict=True):
        if old.name in ends:
            assert new.nodes == old.nodes
        assert [n for n in new.nodes if n.phase is FORWARD] == [n for n in old.nodes if n.phase is FORWARD]
        assert (new.grads, new.outputs) == (old.grads, old.outputs)
        ours = [(n.op, n.outputs) for n in old.nodes if n.phase is BACKWARD and not gathers(old, n.outputs)]
        assert [(n.op, n.outputs) for n in new.nodes if n.phase is BACKWARD and not gathers(new, n.outputs)] == ours


def gathers(region: Region, outputs: tuple[int, ...]) -> bool:
    return region.producer[outputs[0]].op == "all_gather"


def test_every_node_that_runs_again_is_a_copy_of_a_forward_node(tiny: Graph) -> None:
    for region in parse_pipeline("shard{sp=true, zero=3},recompute").run(tiny)[0].regions:
        for node in (n for n in region.nodes if n.phase is RECOMPUTE):
            assert node.forward is not None
            source = region.producer[node.forward]
            assert source.phase is FORWARD
            assert (node.op, node.attrs, node.scope) == (source.op, source.attrs, source.scope)
            assert region.types(node.outputs) == region.types(source.outputs)
            assert region.types(node.inputs) == region.types(source.inputs)


def test_a_recomputed_layer_reads_nothing_that_it_made_forward(tiny: Graph) -> None:
    for region in parse_pipeline("shard{sp=true},recompute").run(tiny)[0].regions[1:-1]:
        late = {i for n in region.nodes if n.phase is not FORWARD for i in n.inputs}
        made = {o for n in region.nodes if n.phase is FORWARD for o in n.outputs}
        assert not late & made


def test_keeping_everything_changes_nothing(tiny: Graph) -> None:
    sharded = parse_pipeline("shard").run(tiny)[0]
    after, (time,) = parse_pipeline('recompute{policy="none"}').run(sharded)
    assert after is sharded
    assert not time.changed


def test_a_policy_by_which_nothing_runs_again_is_refused(tiny_llama: Graph) -> None:
    """A word of a plan is never without effect: no layers, or layers that have nothing of what is asked for."""
    piece = parse_pipeline("shard").run(load(f"{DATA / 'nets.py'}:in_place"))[0]
    with pytest.raises(PlanError, match="recompute=full changes nothing in in_place: it is one piece"):
        parse_pipeline("recompute").run(piece)
    sharded = parse_pipeline("shard").run(load(str(DATA / "configs" / "tiny-mamba2.json")))[0]
    with pytest.raises(PlanError, match=r"selective of core_attn changes nothing .* 2 layers have nothing"):
        parse_pipeline('recompute{policy="selective"}').run(sharded)
    # A checkpoint of a product alone keeps what enters and what leaves it, which is all there was.
    with pytest.raises(PlanError, match=r"of mlp\.act_fn changes nothing .* 2 layers have nothing"):
        parse_pipeline('shard,recompute{policy="selective", modules=["mlp.act_fn"]}').run(tiny_llama)


def test_layers_that_do_not_fold_are_recomputed_one_by_one(tiny_gemma3n: Graph) -> None:
    """Each of the six layers is a region of its own; what a layer makes and no other reads, it makes again."""
    sharded = parse_pipeline("shard{tp=false}").run(tiny_gemma3n)[0]
    after = parse_pipeline("recompute").run(sharded)[0]
    layers = after.regions[1:-1]
    assert len(layers) == 6
    for region in layers:
        handed_on = {p.value for p in region.outputs}
        kept = {v.storage for v in region.values if v.saved and v.role is Role.RESULT}
        assert kept <= {region.by_id[i].storage for i in handed_on}
        assert any(n.phase is Phase.RECOMPUTE for n in region.nodes)


def test_inference_stays_as_it_is() -> None:
    graph = load("gpt2", Workload.PREFILL)
    assert parse_pipeline("recompute").run(graph)[0] is graph


def test_an_unknown_policy_is_refused(tiny_llama: Graph) -> None:
    with pytest.raises(UnknownNameError, match=r"selektive.*selective"):
        parse_pipeline('recompute{policy="selektive"}').run(tiny_llama)


@given(
    name=st.sampled_from(["llama-3.1-8b", "megatron-22b", MIXTRAL, f"{PLAIN}:gpt"]),
    options=st.sampled_from(["", "sp=true, regather=true", "zero=3"]),
    chain=st.sampled_from([("none", "selective", "full"), ("none", "ops", "full")]),
    early_stop=st.booleans(),
    tp=st.sampled_from([1, 4]),
    seq=st.sampled_from([128, 8192]),
)
def test_keeping_less_never_keeps_more_and_never_computes_less(
    lowered: Lowering, name: str, options: str, chain: tuple[str, ...], early_stop: bool, tp: int, seq: int
) -> None:
    graphs = [lowered(name, options, policy, early_stop) for policy in chain]
    kept = [at(g.saved_bytes, tp=tp, seq=seq) for g in graphs]
    again = [at(product_flops(g.region("block0"), RECOMPUTE), tp=tp, seq=seq) for g in graphs]
    forward = at(product_flops(graphs[0].region("block0"), FORWARD), tp=tp, seq=seq)
    assert kept == sorted(kept, reverse=True)
    assert again == sorted(again)
    assert again[-1] <= forward
    assert np.isclose(forward, again[-1]) or early_stop


def test_parameters_are_the_only_thing_gathered_for_a_selective_core() -> None:
    # Attention with learned sinks reads a parameter, of which nothing whole may be kept for running it again.
    graph = parse_pipeline('shard{zero=3},recompute{policy="selective"}').run(load("gpt-oss-20b"))[0]
    for region in graph.regions[1:-1]:
        again = [n for n in region.nodes if n.phase is RECOMPUTE]
        assert [n.op for n in again] == ["all_gather", "attention"]
        assert region.by_id[again[0].inputs[0]].role is Role.PARAM
        assert again[0].outputs[0] in again[1].inputs
