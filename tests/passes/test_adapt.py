"""Low-rank adapters: work, states and messages against counts by hand and against PyTorch; what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.cost.run.training_run import checkpoint_bytes
from slipstick.driver.estimate import estimate, lower
from slipstick.frontend.loading import load_model
from slipstick.frontend.runs.options import TraceOptions
from slipstick.ir.errors import PlanError, UnknownNameError
from slipstick.ir.graph import Graph, Phase, Role
from slipstick.ir.ops import OpClass, has, work_of
from slipstick.ir.ops.collectives import CollectiveAttrs
from slipstick.ir.plan import Family, check_family, make_plan
from slipstick.ir.plan.structure import Defaults
from slipstick.passes.adapters.adapt import Adapt

RANK, TOKENS = 8, 2 * 64
# The tiny Llama: inputs and outputs of the linear layers of a layer, and of the head.
SIZES = {"q_proj": (64, 64), "k_proj": (64, 32), "v_proj": (64, 32), "o_proj": (64, 64),
         "gate_proj": (64, 96), "up_proj": (64, 96), "down_proj": (96, 64)}  # fmt: skip
HEAD, LAYERS = (64, 160), 2
NETS = Path(__file__).parent / "nets_adapted.py"


def product_flops(graph: Graph, phase: Phase) -> float:
    """FLOPs of all matrix products of a phase, attention left out."""
    found = 0.0
    for region in graph.regions:
        for node in region.nodes:
            if node.phase is phase and has(node, OpClass.MATMUL):
                flops = work_of(region, node).tensor_flops.evaluate({"batch": 2, "seq": 64})
                found += float(flops) * graph.counts[region.name]
    return found


def adapted(graph: Graph, *modules: str, **words: object) -> Graph:
    return Adapt(RANK, modules, **words).apply(graph).graph  # type: ignore[arg-type]


@pytest.mark.parametrize("modules", [(), ("q_proj", "v_proj"), ("down_proj",)])
def test_frozen_weights_have_no_gradients_and_adapters_do(tiny_llama: Graph, modules: tuple[str, ...]) -> None:
    """2 FLOPs a weight and token, forward; backward once for the input, once for the matrices of adapters."""
    chosen = modules or tuple(SIZES)
    narrow = 2 * TOKENS * LAYERS * sum(RANK * sum(SIZES[name]) for name in chosen)
    frozen = 2 * TOKENS * (LAYERS * sum(a * b for a, b in SIZES.values()) + HEAD[0] * HEAD[1])
    graph = adapted(tiny_llama, *modules)
    assert product_flops(tiny_llama, Phase.BACKWARD) == 2 * frozen
    assert product_flops(graph, Phase.FORWARD) == frozen + narrow
    assert product_flops(graph, Phase.BACKWARD) == frozen + 2 * narrow


def test_only_adapters_have_states(tiny_llama: Graph) -> None:
    graph = adapted(tiny_llama, "q_proj", "o_proj")
    trained = {r.by_id[p].name: r.by_id[p].type for r in graph.regions for p, _ in r.grads}
    assert {name.split(".", 3)[3] for name in trained} == {
        f"self_attn.{layer}.{part}.weight" for layer in ("q_proj", "o_proj") for part in ("lora_A", "lora_B")
    }
    # Two bytes a frozen weight; fourteen one that is trained, of which there are 8 x (64 + 64) twice a layer.
    count = LAYERS * 2 * RANK * 128
    frozen = float(tiny_llama.num_parameters.evaluate({}))
    assert checkpoint_bytes(graph) == 2 * frozen + 14 * count


def test_activations_that_only_frozen_weights_need_are_not_kept(tiny_llama: Graph) -> None:
    """Without an adapter on it, the down projection needs its input for no gradient; what makes it needs its own."""
    sizes = {"batch": 2, "seq": 64}
    whole, some = (float(g.saved_bytes.evaluate(sizes)) for g in (tiny_llama, adapted(tiny_llama, "o_proj")))
    # The product of gate and up (2 x 64 x 96), two norms' results, in 2 bytes; o_proj keeps its narrow result.
    assert whole - some >= LAYERS * 2 * (2 * 64 * 96) - LAYERS * 2 * TOKENS * RANK


def test_dropout_adds_a_mask_and_two_kernels_a_layer(tiny_llama: Graph) -> None:
    plain, dropped = adapted(tiny_llama, "v_proj"), adapted(tiny_llama, "v_proj", dropout=True)
    more = [sum(len(r.nodes) for r in g.regions) for g in (plain, dropped)]
    assert more[1] - more[0] == 2
    kept = [float(g.saved_bytes.evaluate({"batch": 2, "seq": 64})) for g in (plain, dropped)]
    # The copy that lost elements is kept in place of the input, which nothing else needs.
    assert kept[1] - kept[0] == LAYERS * TOKENS * 64


@pytest.mark.parametrize("base", ["nf4", "int8"])
def test_frozen_layers_rest_in_few_bits_and_are_widened_for_each_product(tiny_llama: Graph, base: str) -> None:
    narrow = {"nf4": 0.5 + 2 / 128, "int8": 1.0}[base]
    graph = adapted(tiny_llama, base=base)
    saved = float(adapted(tiny_llama).parameter_bytes.evaluate({}) - graph.parameter_bytes.evaluate({}))
    assert saved == LAYERS * sum(a * b for a, b in SIZES.values()) * (2 - narrow)
    # Once forward and once backward; the kernel reads the few bits and writes two bytes.
    casts = [(r, n) for r in graph.regions for n in r.nodes if n.scope.endswith("gate_proj") and n.op == "cast"]
    assert [n.phase for _, n in casts] == [Phase.FORWARD, Phase.BACKWARD]
    for region, node in casts:
        work = work_of(region, node)
        assert float(work.read_bytes.evaluate({})) == 64 * 96 * narrow
        assert float(work.write_bytes.evaluate({})) == 64 * 96 * 2


@pytest.mark.parametrize("words", [{}, {"lora_base": "nf4"}, {"lora_dropout": 0.1}])
@pytest.mark.parametrize("tp_plan", ["megatron", "hf"])
def test_adapters_add_no_wide_message(tiny_llama: Graph, words: dict[str, object], tp_plan: str) -> None:
    """Each rank has its part of a layer's adapter: what they send is as narrow as their rank."""

    def wide(family: Family) -> Counter[str]:
        graph = lower(tiny_llama, family).graph
        return Counter(
            n.op
            for r in graph.regions
            for n in r.nodes
            if isinstance(n.attrs, CollectiveAttrs) and n.phase in (Phase.FORWARD, Phase.BACKWARD)
            and r.by_id[n.outputs[0]].type.dims[-1:] != (RANK,)
        )  # fmt: skip

    base = wide(Family(sp=True, tp_plan=tp_plan))
    assert not wide(Family(sp=True, tp_plan=tp_plan, lora_rank=RANK, **words)) - base  # type: ignore[arg-type]


def test_a_frozen_bank_of_experts_has_half_the_products(tiny_mixtral: Graph) -> None:
    graph = adapted(tiny_mixtral, "q_proj")
    for region in (r for r in graph.regions if any(n.op == "experts_bwd" for n in r.nodes)):
        (node,) = (n for n in region.nodes if n.op == "experts_bwd")
        (forward,) = (n for n in region.nodes if n.op == "experts")
        sizes = {"batch": 2, "seq": 64}
        flops = [float(work_of(region, n).tensor_flops.evaluate(sizes)) for n in (forward, node)]
        assert flops[0] == flops[1]
        assert not any("experts" in region.by_id[p].name for p, _ in region.grads)


@pytest.mark.parametrize(
    ("name", "degrees"),
    [("tiny_gpt2", {"tp": 2}), ("tiny_mixtral", {"dp": 2}), ("tiny_llama", {"pp": 2}), ("tiny_llama", {"cp": 2})],
)
def test_states_are_those_of_adapters_on_every_axis(
    name: str, degrees: dict[str, int], request: pytest.FixtureRequest
) -> None:
    graph, system = request.getfixturevalue(name), load_system("dgx-h100")
    answers = []
    for rank in (0, RANK):
        defaults = Defaults(system.stack, Family(zero=1 if "dp" in degrees else 0, lora_rank=rank))
        plan = make_plan(num_gpus=2, seq_len=64, global_batch=4, family=defaults, **degrees)
        answers.append(estimate(graph, system, plan))
    full, lora = answers
    assert lora.memory_bytes["optimizer"] < 0.5 * full.memory_bytes["optimizer"]
    assert lora.memory_bytes["gradients"] < 0.5 * full.memory_bytes["gradients"]
    assert lora.memory_bytes["weights"] > full.memory_bytes["weights"]


@pytest.mark.oracle
def test_the_products_are_those_that_pytorch_runs() -> None:
    """A module of frozen linear layers with adapters, recorded, has the products that the pass makes of one without."""
    pytest.importorskip("torch", reason="records modules; install slipstick[torch]")
    plain, given = (
        load_model(f"{NETS}:{name}", "train", options=TraceOptions(inputs=("x[batch,seq,48]",)))
        for name in ("plain", "with_adapters")
    )
    made = adapted(plain, "first", "second")

    def products(graph: Graph) -> Counter[tuple[str, str]]:
        nodes = [(r, n) for r in graph.regions for n in r.nodes if has(n, OpClass.MATMUL)]
        return Counter((str(n.phase), str(work_of(r, n).tensor_flops)) for r, n in nodes)

    assert products(made) == products(given)
    assert sum(v.role is Role.PARAM for r in made.regions for v in r.values) == 2 + 4


@pytest.mark.parametrize(
    ("family", "error", "said"),
    [
        (Family(lora_modules=("q_proj",)), PlanError, "lora-modules: of adapters, and lora-rank=0"),
        (Family(lora_base="nf4"), PlanError, "lora-base"),
        (Family(lora_dropout=0.1), PlanError, "lora-dropout"),
        (Family(lora_rank=8, lora_dropout=1.0), PlanError, "a share from 0 to below 1"),
        (Family(lora_rank=8, lora_base="nf5"), UnknownNameError, "did you mean 'nf4'?"),
    ],
)
def test_words_that_mean_nothing_are_refused(family: Family, error: type[PlanError], said: str) -> None:
    with pytest.raises(error) as caught:
        check_family(family)
    assert said in str(caught.value)


def test_a_name_of_no_linear_layer_is_refused_with_those_there_are(tiny_llama: Graph) -> None:
    with pytest.raises(PlanError, match=r"lora-modules=proj: no linear layer .* has down_proj, gate_proj"):
        adapted(tiny_llama, "proj")
