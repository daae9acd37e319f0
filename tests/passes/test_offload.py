"""What moves to host memory: the bytes that go down and up, what is left on the device, and that nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.driver.estimate import Lowered, estimate, lower, pipeline_for, screen
from slipstick.frontend import load
from slipstick.ir.errors import NotBuiltError, PlanError, UnknownNameError, UsageError
from slipstick.ir.graph import Graph, Phase, Region, Role, Workload
from slipstick.ir.ops import call_of, work_of
from slipstick.ir.ops.host import DOWN, UP, UPDATE
from slipstick.ir.plan import Family, Plan, make_plan
from slipstick.ir.plan.layout.stages import BOUNDARY
from slipstick.ir.sizes.expr import Expr, as_expr, symbol, total
from slipstick.passes.manager import parse_pipeline

TOKENS, DP, ONE = symbol("mbs") * symbol("seq"), symbol("dp"), as_expr(1)
# tiny-llama: hidden 64, two layers, keys and values 32 wide, MLP 96, vocabulary 160, head untied.
HIDDEN, KV, MLP, VOCAB, LAYERS = 64, 32, 96, 160, 2
NUM_PARAMETERS = 2 * VOCAB * HIDDEN + LAYERS * (2 * HIDDEN * HIDDEN + 2 * KV * HIDDEN + 3 * MLP * HIDDEN)
NUM_PARAMETERS += (2 * LAYERS + 1) * HIDDEN


def moved(region: Region, op: str, phase: Phase) -> Expr:
    """Bytes that copies of one direction move in a phase of a region."""
    nodes = [n for n in region.nodes if n.op == op and n.phase is phase]
    return total(t.num_bytes for n in nodes for t in call_of(region, n).inputs)


def in_all(graph: Graph, op: str, phase: Phase) -> Expr:
    return total(moved(r, op, phase) * graph.counts[r.name] for r in graph.regions)


def run(graph: Graph, text: str) -> Graph:
    return parse_pipeline(text).run(graph)[0]


# Activations.


@pytest.mark.parametrize("kernels", ["eager", "torch", "fused"])
@pytest.mark.parametrize("reshard", ["microbatch", "step"])
def test_parameters_that_stay_gathered_stay_on_the_device(tiny: Graph, kernels: str, reshard: str) -> None:
    def parts(family: Family) -> dict[str, float]:
        found = estimate(tiny, load_system("dgx-h100"), make_plan(num_gpus=4, seq_len=64, family=family))
        return {**found.memory_bytes, "host": found.metrics["host_mem_bytes"]}

    freed = Family(zero=3, kernels=kernels, offload=("activations",))
    before, after = parts(freed), parts(replace(freed, reshard=reshard))
    assert after["host"] == before["host"]
    # A quarter in shards, and all of them whole, a tied table once for each end.
    first, last = ({v.name: v.type.num_bytes for v in tiny.regions[k].of_role(Role.PARAM)} for k in (0, -1))
    tied = sum(float(size.evaluate({})) for name, size in first.items() if name in last)
    assert after["weights"] == before["weights"] * 5 + tied


def test_what_a_layer_keeps_goes_down_once_and_comes_up_once(tiny: Graph) -> None:
    before = run(tiny, "shard")
    after = run(before, 'offload{what=["activations"]}')
    down, up = in_all(after, DOWN, Phase.FORWARD), in_all(after, UP, Phase.BACKWARD)
    # The last layer's result is what the head reads; the embedding's result is what the first layer reads.
    assert down == up
    assert after.saved_bytes == before.saved_bytes
    for name in before.sequence_once()[1:-1]:
        assert moved(after.region(name), DOWN, Phase.FORWARD) == before.region(name).saved_bytes


def test_a_layer_reads_nothing_that_stayed_on_the_device(tiny: Graph) -> None:
    after = run(tiny, 'shard,offload{what=["activations"]}')
    for region in after.regions[1:-1]:
        copies = {o for n in region.nodes if n.op == DOWN for o in n.outputs}
        made = {o for n in region.nodes if n.phase is Phase.FORWARD for o in n.outputs} - copies
        here = {i for i in made if region.by_id[region.by_id[i].storage].role is Role.RESULT}
        late = {i for n in region.nodes if n.phase is not Phase.FORWARD for i in n.inputs}
        assert not late & here


def test_copies_follow_the_last_forward_node_also_behind_gathers_of_the_step(tiny_mixtral: Graph) -> None:
    # Parameters gathered once a step stand in front of the forward phase.
    family = Family(zero=3, reshard="step", recompute="ops", offload=("activations",), sp=True)
    layer = lower(tiny_mixtral, family).graph.region("block0")
    phases = [n.phase for n in layer.nodes]
    assert phases[0] is Phase.PREPARE
    (down,) = (k for k, n in enumerate(layer.nodes) if n.op == DOWN)
    assert down == max(k for k, phase in enumerate(phases) if phase is Phase.FORWARD)


def test_shared_tables_stay_on_the_device(tiny_llama: Graph) -> None:
    # Sines and cosines of positions are kept once for all layers; only what layers make moves.
    after = run(tiny_llama, 'shard,offload{what=["activations"]}')
    layer = after.region("block0")
    kept = {v.name for v in layer.of_role(Role.PORT) if v.saved}
    assert kept == {"x0.host", "x1", "x2"}


def test_of_recomputed_layers_the_inputs_move(tiny_llama: Graph) -> None:
    after = run(tiny_llama, 'shard,recompute,offload{what=["activations"]}')
    assert moved(after.region("block0"), DOWN, Phase.FORWARD) == TOKENS * (2 * HIDDEN)
    assert moved(after.region("block0"), UP, Phase.BACKWARD) == TOKENS * (2 * HIDDEN)


def test_of_groups_only_the_last_layer_s_result_moves(llama_8b: Graph) -> None:
    after = run(llama_8b, 'shard,recompute{every=4},offload{what=["activations"]}')
    sent = {r.name: moved(r, DOWN, Phase.FORWARD) for r in after.regions}
    one = TOKENS * (2 * 4096)
    assert sent == {"prologue": one, "block0_first": 0, "block0_middle": 0, "block0_last": one, "epilogue": 0}
    assert moved(after.region("block0_first"), UP, Phase.BACKWARD) == one
    assert moved(after.region("block0_middle"), UP, Phase.BACKWARD) == 0


# States.


@pytest.mark.parametrize(("zero", "shards"), [(0, 1), (1, DP), (2, DP), (3, DP)])
def test_two_bytes_a_parameter_go_down_and_two_come_up(tiny_llama: Graph, zero: int, shards: Expr | int) -> None:
    # ZeRO-Offload, arXiv 2101.06840: gradients and weights travel in two bytes, whatever type sums have.
    after = lower(tiny_llama, Family(zero=zero, offload=("optimizer",))).graph
    for op in (DOWN, UP):
        found = in_all(after, op, Phase.OPTIMIZER).substitute({"tp": 1})
        assert found * shards == 2 * NUM_PARAMETERS


def test_the_host_updates_what_the_device_updated(tiny: Graph) -> None:
    here, there = (lower(tiny, Family(zero=1, offload=o)).graph for o in ((), ("optimizer",)))
    for old, new in zip(here.regions, there.regions, strict=True):
        (step,) = (n for n in old.nodes if n.op == "optimizer_step")
        (update,) = (n for n in new.nodes if n.op == UPDATE)
        assert update.inputs[: len(step.outputs)] == step.inputs[: len(step.outputs)]
        assert not any(n.op == "optimizer_step" for n in new.nodes)
        # fp32 gradients travel as bf16: two bytes a parameter less to read.
        grads = total(new.by_id[i].type.numel for i in update.inputs[len(step.outputs) :])
        assert work_of(new, update).num_bytes == work_of(old, step).num_bytes - grads * 2


def test_weights_come_up_before_each_phase_and_stay_on_the_host(tiny_llama: Graph) -> None:
    after = lower(tiny_llama, Family(zero=3, offload=("optimizer", "params"))).graph
    held = {"tp": 1}
    assert in_all(after, UP, Phase.FORWARD).substitute(held) == ONE / DP * (2 * NUM_PARAMETERS)
    # The table itself is not read by its gradient.
    assert in_all(after, UP, Phase.BACKWARD).substitute(held) == ONE / DP * (2 * (NUM_PARAMETERS - VOCAB * HIDDEN))
    assert in_all(after, UP, Phase.OPTIMIZER) == 0
    for region in after.regions:
        weights = {v.id for v in region.of_role(Role.PARAM)}
        readers = {n.op for n in region.nodes if weights & {*n.inputs}}
        assert readers <= {UP, UPDATE}


# Accounts.

POLICIES = (
    Family(), Family(sp=True), Family(zero=3), Family(zero=1, recompute="full"),
    Family(recompute="full", recompute_every=2), Family(sp=True, recompute="selective", recompute_modules=("mlp*",)),
)  # fmt: skip
MODELS = ("tiny_llama", "tiny_gpt2", "tiny_mixtral")


@pytest.fixture(scope="module")
def lowered(request: pytest.FixtureRequest) -> Callable[[str, Family], Lowered]:
    """A small model lowered for a family, each made once."""

    @cache
    def make(name: str, family: Family) -> Lowered:
        graph = request.getfixturevalue(name)
        assert isinstance(graph, Graph)
        return lower(graph, family)

    return make


def plan_of(family: Family, what: tuple[str, ...], tp: int, seq: int, mbs: int) -> Plan:
    family = replace(family, offload=what)
    return make_plan(num_gpus=4 * tp, tp=tp, seq_len=seq, micro_batch=mbs, global_batch=8 * mbs, family=family)


@given(
    name=st.sampled_from(MODELS), family=st.sampled_from(POLICIES), tp=st.sampled_from([1, 2]),
    what=st.sampled_from([("optimizer",), ("activations",), ("optimizer", "activations")]),
    seq=st.sampled_from([64, 512]), mbs=st.sampled_from([1, 4]),
)  # fmt: skip
def test_bytes_are_conserved_and_time_is_never_less(
    lowered: Callable[[str, Family], Lowered], name: str, family: Family, what: tuple[str, ...], tp: int, seq: int,
    mbs: int,
) -> None:  # fmt: skip
    system = load_system("dgx-h100")
    here, there = (
        estimate((low := lowered(name, plan.family)).source, system, plan, lowered=low)
        for plan in (plan_of(family, w, tp, seq, mbs) for w in ((), what))
    )
    states = ("weights", "gradients", "optimizer", "activations")
    before = sum(here.memory_bytes[part] for part in states)
    host = there.metrics["host_mem_bytes"]
    assert host > 0
    assert sum(there.memory_bytes[part] for part in states) + host == pytest.approx(before, rel=1e-12)
    assert there.metrics["peak_mem_bytes"] == pytest.approx(sum(there.memory_bytes.values()), rel=1e-12)
    if "optimizer" in what:
        assert there.memory_bytes["optimizer"] == 0
    assert there.metrics["step_time_s"] >= here.metrics["step_time_s"]
    assert "host_mem_bytes" not in here.metrics


def test_with_everything_away_the_device_keeps_gradients_and_both_ends(tiny_llama: Graph) -> None:
    system = load_system("dgx-h100")
    family = Family(zero=3, offload=("optimizer", "activations", "params"))
    answer = estimate(tiny_llama, system, make_plan(num_gpus=4, seq_len=64, family=family))
    assert answer.memory_bytes["weights"] == answer.memory_bytes["optimizer"] == 0
    assert answer.memory_bytes["gradients"] == 4 * NUM_PARAMETERS / 4
    layers = answer.table.lowered.graph.region("block0")
    assert answer.memory_bytes["activations"] < float(layers.saved_bytes.evaluate({"mbs": 1, "seq": 64, "tp": 1}))


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_stages_send_what_they_sent(tiny_llama: Graph, recompute: str) -> None:
    here, there = (
        lower(tiny_llama, Family(pp=True, recompute=recompute, offload=o)).graph for o in ((), ("activations",))
    )
    assert there.region(BOUNDARY) == here.region(BOUNDARY)


def test_stages_keep_every_micro_batch_under_way_on_the_host(tiny_llama: Graph) -> None:
    # Two stages of one layer; the first has two micro-batches in flight, of each its layer's and the embedding's part.
    family = Family(pp=True, offload=("activations",))
    plan = make_plan(num_gpus=2, pp=2, seq_len=64, family=family, global_batch=8)
    answer = estimate(tiny_llama, load_system("dgx-h100"), plan)
    graph = answer.table.lowered.graph
    sizes = {"mbs": 1, "seq": 64, "tp": 1, "dp": 1}
    sent = {r.name: float(moved(r, DOWN, Phase.FORWARD).evaluate(sizes)) for r in graph.regions}
    stages = {"first": 2 * (sent["prologue"] + sent["block0"]), "last": sent["block0"]}
    assert answer.metrics["host_mem_bytes"] in stages.values()


# What is refused, and what does nothing.


def test_the_family_says_what_moves() -> None:
    assert 'optimizer,offload{what=["optimizer", "activations"]},fuse' in str(
        pipeline_for(Family(offload=("optimizer", "activations")))
    )
    assert "offload" not in str(pipeline_for(Family()))


@pytest.mark.parametrize(
    ("family", "kind", "message"),
    [
        (Family(offload=("optimiser",)), UnknownNameError, "did you mean 'optimizer'"),
        (Family(offload=("gradients",)), NotBuiltError, "sums of gradients stay"),
        (Family(zero=3, offload=("params",)), PlanError, "goes with that of the optimizer"),
        (Family(zero=1, offload=("optimizer", "params")), PlanError, "goes with zero=3"),
        (Family(workload=Workload.PREFILL, offload=("optimizer",)), PlanError, "offload=optimizer: of training only"),
    ],
)
def test_what_cannot_move_is_refused(family: Family, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make_plan(num_gpus=1, seq_len=64, family=family)


def test_a_system_that_says_nothing_of_its_host_is_refused(tiny_llama: Graph, made_up: System) -> None:
    for what, section in (("activations", "chip.host_link"), ("optimizer", "host")):
        plan = make_plan(num_gpus=1, seq_len=64, family=Family(offload=(what,)))
        with pytest.raises(UsageError, match=section):
            estimate(tiny_llama, made_up, plan)


@pytest.mark.parametrize("num_gpus", [1, 2, 16])
def test_what_is_beyond_the_memory_of_a_nodes_host_does_not_fit(tiny_llama: Graph, num_gpus: int) -> None:
    """The devices of a node share its host: a plan on fewer than a node has shares it among fewer."""
    plan = make_plan(num_gpus=num_gpus, seq_len=64, family=Family(offload=("optimizer",)))
    kept = estimate(tiny_llama, load_system("dgx-h100"), plan).metrics["host_mem_bytes"] * min(num_gpus, 8)
    for share, fits in ((1.001, True), (0.999, False)):
        system = load_system("dgx-h100", [f"node.host_memory.capacity={share * kept:.0f}B"])
        answer = estimate(tiny_llama, system, plan)
        assert answer.fits is fits
        assert list(screen(answer.table.lowered, system, answer.table.plans).fits) == [fits]
        assert answer.metrics["peak_mem_bytes"] < system.chip.hbm_bytes


def test_inference_stays_as_it_is() -> None:
    graph = run(load("gpt2", Workload.PREFILL), "shard")
    assert run(graph, "offload") is graph
