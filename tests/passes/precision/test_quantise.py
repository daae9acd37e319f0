"""Products of weights in low precision: which, with what casts, what is kept and what is sent; counts by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from slipstick.cost.memory.states import held_parameters
from slipstick.driver.estimate import lower, pipeline_for
from slipstick.frontend.huggingface.configs.models import config_of
from slipstick.frontend.loading import load_config
from slipstick.ir.errors import NotBuiltError, PlanError, UnknownNameError, UsageError
from slipstick.ir.graph import Graph, Node, Phase, Region, Role, Workload
from slipstick.ir.ops import call_of, work_of
from slipstick.ir.ops.collectives import message_bytes
from slipstick.ir.plan import Family, check_family
from slipstick.ir.plan.precision import RECIPES
from slipstick.ir.sizes.expr import total
from slipstick.ir.types import DType
from slipstick.passes.manager import parse_pipeline

# The layer of tiny-llama: hidden 64, 4 heads of 16 and 2 of them for keys, inner size 96.
H, KV, F = 64, 32, 96
WEIGHTS = H * H + 2 * KV * H + H * H + 3 * F * H
ONE = {"mbs": 1.0, "seq": 64.0, "tp": 1.0, "dp": 1.0}
TOKENS = 64
BYTES = {
    "fp8": 1.0,
    "fp8-delayed": 1.0,
    "fp8-rowwise": 1.0,
    "fp8-block": 1 + 4 / 128,
    "mxfp8": 1 + 1 / 32,
    "int8": 1.0,
    "int8-dgrad": 1.0,
    "nvfp4": 0.5625,
}
# Recipes of all three products.
WHOLE = [name for name, recipe in RECIPES.items() if recipe.of_weight_gradients]


def layer(graph: Graph, **options: object) -> Region:
    family = Family(**options)  # type: ignore[arg-type]
    return lower(graph, family).graph.region("block0")


def casts(region: Region, *phases: Phase) -> list[Node]:
    return [n for n in region.nodes if n.op == "quantise" and n.phase in phases]


def moved(region: Region, nodes: list[Node], env: Mapping[str, float] = ONE) -> tuple[float, float]:
    works = [work_of(region, n) for n in nodes]
    read, written = total(w.read_bytes for w in works), total(w.write_bytes for w in works)
    return float(read.evaluate(env)), float(written.evaluate(env))


@pytest.mark.parametrize("name", WHOLE)
def test_products_of_weights_read_the_recipe_s_type_and_write_the_model_s(tiny_llama: Graph, name: str) -> None:
    region = layer(tiny_llama, precision=name)
    products = [n for n in region.nodes if n.op == "matmul"]
    assert len(products) == 3 * 7
    for node in products:
        assert {region.by_id[i].type.dtype for i in node.inputs[:2]} == {RECIPES[name].dtype}
        assert region.by_id[node.key].type.dtype is DType.BF16


def test_gradients_of_weights_may_stay_in_the_model_s_type(tiny_llama: Graph) -> None:
    """AQT's `config_v3` has no bits for them: two products of three are low, operands are cast in rows alone."""
    region = layer(tiny_llama, precision="int8-dgrad", kernels="fused")
    types = [{region.by_id[i].type.dtype for i in n.inputs[:2]} for n in region.nodes if n.op == "matmul"]
    assert types.count({DType.INT8}) == 2 * 7
    assert types.count({DType.BF16}) == 7
    activations, grads = TOKENS * (3 * H + F), TOKENS * (H + 2 * KV + 2 * F + 2 * H)
    assert moved(region, casts(region, Phase.FORWARD)) == (2 * activations, activations)
    assert moved(region, casts(region, Phase.BACKWARD)) == (2 * grads, grads)
    assert saved(region) == saved(layer(tiny_llama, kernels="fused"))


def test_attention_cores_embedding_and_head_stay(tiny_llama: Graph) -> None:
    graph = lower(tiny_llama, Family(precision="fp8")).graph
    assert not any(n.op == "quantise" for name in ("prologue", "epilogue") for n in graph.region(name).nodes)
    region = graph.region("block0")
    core = [n for n in region.nodes if n.op.startswith("attention")]
    assert {region.by_id[i].type.dtype for n in core for i in n.inputs} == {DType.BF16, DType.FP32}


@pytest.mark.parametrize("kernels", ["eager", "torch", "fused"])
def test_without_a_recipe_there_is_no_such_pass(tiny: Graph, kernels: str) -> None:
    assert "quantise" not in str(pipeline_for(Family(kernels=kernels)))


def test_routers_stay_and_experts_do_not(tiny_mixtral: Graph) -> None:
    region = layer(tiny_mixtral, precision="mxfp8", ep=True)
    router = next(n for n in region.nodes if n.op == "matmul" and n.scope.endswith("mlp.gate"))
    assert region.by_id[router.inputs[0]].type.dtype is DType.BF16
    for bank in (n for n in region.nodes if n.op.startswith("expert_bank")):
        assert {region.by_id[i].type.dtype for i in bank.inputs[:3]} == {DType.MXFP8}
        assert region.by_id[bank.key].type.dtype is DType.BF16


def test_dims_that_are_no_multiple_of_16_stay(tiny_deepseek: Graph) -> None:
    # Latent queries of 24: both products beside them stay, the output projection does not.
    region = layer(tiny_deepseek, precision="fp8")
    of = {n.scope.rpartition(".")[2]: n for n in region.nodes if n.op == "matmul" and n.phase is Phase.FORWARD}
    assert region.by_id[of["q_a_proj"].inputs[0]].type.dtype is DType.BF16
    assert region.by_id[of["o_proj"].inputs[0]].type.dtype is DType.FP8


@pytest.mark.parametrize("name", RECIPES)
def test_kept_weights_are_cast_once_a_step_into_both_copies(tiny_llama: Graph, name: str) -> None:
    region = layer(tiny_llama, precision=name, kernels="fused")
    reads = {"fp8": 2, "fp8-rowwise": 3, "int8": 3, "int8-dgrad": 3, "nvfp4": 2}.get(name, 1)
    read, written = moved(region, casts(region, Phase.PREPARE))
    assert read == 2 * WEIGHTS * reads
    assert written == pytest.approx(2 * BYTES[name] * WEIGHTS)


@pytest.mark.parametrize("name", WHOLE)
def test_bytes_of_activations_and_gradients_where_copies_are_kept(tiny_llama: Graph, name: str) -> None:
    region = layer(tiny_llama, precision=name, kernels="fused")
    reads = {"fp8": 2, "fp8-rowwise": 3, "int8": 3, "nvfp4": 2}.get(name, 1)
    # Two norms, the result of attention, the activation: all in both copies, for this phase and the next.
    read, written = moved(region, casts(region, Phase.FORWARD))
    assert read == 2 * reads * TOKENS * (3 * H + F)
    assert written == pytest.approx(2 * BYTES[name] * TOKENS * (3 * H + F))
    # Gradients of q, k and v, of gate and up, and what comes into the two projections back.
    read, written = moved(region, casts(region, Phase.BACKWARD))
    assert read == 2 * reads * TOKENS * (H + 2 * KV + 2 * F + 2 * H)
    assert written == pytest.approx(2 * BYTES[name] * TOKENS * (H + 2 * KV + 2 * F + 2 * H))


def test_where_nothing_is_kept_each_use_casts_for_itself(tiny_llama: Graph) -> None:
    region = layer(tiny_llama, precision="fp8-delayed")
    assert not casts(region, Phase.PREPARE)
    read, written = moved(region, casts(region, Phase.FORWARD))
    assert (read, written) == (2 * (WEIGHTS + TOKENS * (3 * H + F)), WEIGHTS + TOKENS * (3 * H + F))
    # Once more in columns, and the gradients in both.
    grads = TOKENS * (H + 2 * KV + 2 * F + 2 * H)
    read, written = moved(region, casts(region, Phase.BACKWARD))
    assert read == 2 * (WEIGHTS + TOKENS * (3 * H + F) + grads)
    assert written == WEIGHTS + TOKENS * (3 * H + F) + 2 * grads


def test_a_compiler_takes_the_maximum_where_a_tensor_is_made(tiny_llama: Graph) -> None:
    region = layer(tiny_llama, precision="fp8", kernels="torch")
    # Norms and the activation are compiled; attention is not, and weights are made in no kernel of the phase.
    read, _ = moved(region, casts(region, Phase.FORWARD))
    assert read == 2 * (2 * WEIGHTS + TOKENS * (2 * H + F + 2 * H))


def saved(region: Region) -> float:
    return float(region.saved_bytes.evaluate(ONE))


@pytest.mark.parametrize("name", WHOLE)
def test_hand_fused_kernels_keep_activations_quantised(tiny_llama: Graph, name: str) -> None:
    plain, low = (layer(tiny_llama, precision=p, kernels="fused") for p in ("none", name))
    # Results of norms and activations give way to their copies; attention's result stays, its backward reads it.
    assert saved(plain) - saved(low) == pytest.approx(TOKENS * ((2 * H + F) * (2 - BYTES[name]) - H * BYTES[name]))


@pytest.mark.parametrize("name", RECIPES)
def test_torch_keeps_them_in_the_model_s_type(tiny_llama: Graph, name: str) -> None:
    # torchtitan logs 47.65 GiB in bf16 and 47.32 in fp8 tensor-wise: pytorch/torchtitan, commit 7a04053.
    plain, low = (layer(tiny_llama, precision=p, kernels="torch") for p in ("none", name))
    assert saved(plain) == saved(low)


def gathers(region: Region, phase: Phase, env: Mapping[str, float]) -> float:
    found = [n for n in region.nodes if n.op == "all_gather" and n.attrs.axis == "tp" and n.phase is phase]  # type: ignore[attr-defined]
    return float(total(message_bytes(call_of(region, n)) for n in found).evaluate(env))


@pytest.mark.parametrize(
    ("name", "forward", "backward"), [("fp8", 1, 1), ("mxfp8", 33 / 32, 33 / 32 * 1.5), ("fp8-rowwise", 2, 2)]
)
def test_tensor_parallelism_gathers_what_is_quantised(
    tiny_llama: Graph, name: str, forward: float, backward: float
) -> None:
    # Forward two inputs; backward the same two again and two gradients, of which block scales send both copies.
    region = layer(tiny_llama, precision=name, kernels="fused", sp=True)
    env = {**ONE, "tp": 2.0}
    assert gathers(region, Phase.FORWARD, env) == pytest.approx(forward * 2 * TOKENS * H)
    assert gathers(region, Phase.BACKWARD, env) == pytest.approx(backward * 4 * TOKENS * H)


def params(region: Region, phase: Phase) -> float:
    env = {**ONE, "dp": 4.0}
    found = [n for n in region.nodes if n.op == "all_gather" and n.attrs.axis == "dp" and n.phase is phase]  # type: ignore[attr-defined]
    return float(total(message_bytes(call_of(region, n)) for n in found).evaluate(env))


@pytest.mark.parametrize("reshard", ["layer", "microbatch", "step"])
def test_fp8_gathers_of_sharded_weights_move_half(tiny_llama: Graph, reshard: str) -> None:
    options = {"zero": 3, "reshard": reshard, "kernels": "torch", "precision": "fp8"}
    high, low = (layer(tiny_llama, fp8_param_gather=given, **options) for given in (False, True))
    phases = {"layer": (Phase.FORWARD, Phase.BACKWARD), "microbatch": (Phase.FORWARD,), "step": (Phase.PREPARE,)}[
        reshard
    ]
    for phase in Phase:
        norms = 2 * 2 * H
        assert params(high, phase) == (2 * WEIGHTS + norms if phase in phases else 0)
        assert params(low, phase) == (WEIGHTS + norms if phase in phases else 0)


def test_fp8_gathers_of_updated_weights_move_half_and_weights_rest_so(tiny_llama: Graph) -> None:
    high, low = (
        layer(tiny_llama, zero=1, kernels="fused", precision="fp8", fp8_param_gather=given) for given in (False, True)
    )
    assert (params(high, Phase.OPTIMIZER), params(low, Phase.OPTIMIZER)) == (2 * WEIGHTS + 4 * H, WEIGHTS + 4 * H)
    # Only the copy in columns is written at the start of a step, from the one in rows.
    first = [n for n in low.nodes if n.phase is Phase.PREPARE]
    assert {n.op for n in first} == {"copy"}
    assert moved(low, first) == (WEIGHTS, WEIGHTS)


def test_weights_of_mxfp8_rest_in_both_copies_and_are_gathered_in_16_bits(tiny_llama: Graph) -> None:
    """Scales of 32 along each dim: neither copy is made of the other; 33/32 bytes a weight each, and no 16-bit copy."""
    options = {"zero": 1, "kernels": "fused", "precision": "mxfp8"}
    regions = [layer(tiny_llama, fp8_param_gather=given, **options) for given in (False, True)]
    assert [params(r, Phase.OPTIMIZER) for r in regions] == [2 * WEIGHTS + 4 * H] * 2
    first = [[n for n in r.nodes if n.phase is Phase.PREPARE] for r in regions]
    assert [moved(r, nodes) for r, nodes in zip(regions, first, strict=True)] == [
        (2 * WEIGHTS, 2 * 33 / 32 * WEIGHTS)
    ] * 2
    held = [
        sum(h.states[0].evaluate({**ONE, "dp": 4.0}) for h in held_parameters(g) if h.each_layer)
        for g in (
            lower(tiny_llama, Family(fp8_param_gather=given, **options)).graph  # type: ignore[arg-type]
            for given in (False, True)
        )
    ]
    assert held == [2 * WEIGHTS + 4 * H, 4 * H]  # what casts make of them is counted where it is kept


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_shards_of_mxfp8_are_gathered_in_rows_forward_and_in_columns_backward(
    tiny_llama: Graph, recompute: str
) -> None:
    region = layer(tiny_llama, zero=3, kernels="fused", precision="mxfp8", fp8_param_gather=True, recompute=recompute)
    rows, norms = 33 / 32 * WEIGHTS, 4 * H
    assert params(region, Phase.FORWARD) == rows + norms
    again = params(region, Phase.BACKWARD) + params(region, Phase.RECOMPUTE)
    # Recomputation runs all products but the last one again.
    assert again == rows + norms + (33 / 32 * (WEIGHTS - F * H) if recompute == "full" else 0)


def test_recomputed_weights_are_gathered_and_cast_once_more(tiny_llama: Graph) -> None:
    region = layer(tiny_llama, zero=3, recompute="full", kernels="torch", precision="fp8", fp8_param_gather=True)
    found = Counter((n.op, n.phase) for n in region.nodes if n.op == "all_gather")
    assert found == {("all_gather", Phase.FORWARD): 1, ("all_gather", Phase.RECOMPUTE): 1}


def test_first_and_last_layers_stay(tiny_deepseek: Graph) -> None:
    graph = lower(tiny_deepseek, Family(precision="nvfp4", bf16_first=1, bf16_last=2)).graph
    low = {r.name for r in graph.regions if any(n.op == "quantise" for n in r.nodes)}
    order = list(graph.sequence())
    assert [name in low for name in order] == [False, False, *[True] * (len(order) - 5), False, False, False]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"precision": "fp9"}, UnknownNameError, "did you mean 'fp8'"),
        ({"fp8_param_gather": True}, PlanError, "use --precision"),
        ({"bf16_first": 1}, PlanError, "use --precision"),
        ({"precision": "fp8", "bf16_last": -1}, PlanError, "0 or more"),
        ({"precision": "fp8-rowwise", "fp8_param_gather": True}, NotBuiltError, "fp8, fp8-delayed, fp8-block, mxfp8"),
        (
            {"precision": "mxfp8", "fp8_param_gather": True, "zero": 3, "reshard": "step"},
            NotBuiltError,
            "--reshard layer",
        ),
        (
            {"precision": "fp8", "fp8_param_gather": True, "offload": ("optimizer",)},
            NotBuiltError,
            "offload optimizer",
        ),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(options: dict[str, object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        check_family(Family(**options))  # type: ignore[arg-type]


def test_more_layers_left_out_than_there_are_is_refused(tiny_llama: Graph) -> None:
    with pytest.raises(PlanError, match="has 2 layers"):
        lower(tiny_llama, Family(precision="fp8", bf16_first=1, bf16_last=1))


def test_the_pass_stands_behind_shard(tiny_llama: Graph) -> None:
    with pytest.raises(UsageError, match="behind 'shard'"):
        parse_pipeline("quantise").run(tiny_llama)


def test_a_tensor_read_as_it_is_and_gathered_is_quantised_once_in_front_of_both() -> None:
    """Falcon-7B's one norm feeds attention and MLP; over sequence parallelism one of them may read it ungathered."""
    fields = {
        "model_type": "falcon", "hidden_size": 192, "num_hidden_layers": 2, "num_attention_heads": 3,
        "vocab_size": 256, "multi_query": True, "parallel_attn": True, "new_decoder_architecture": False,
        "alibi": False, "bias": False,
    }  # fmt: skip
    graph = load_config(config_of("falcon", fields), Workload.TRAIN)
    region = layer(graph, precision="fp8", recompute="full", sp=True)
    products = [n for n in region.nodes if n.op == "matmul"]
    low = [n for n in products if {region.by_id[i].type.dtype for i in n.inputs[:2]} == {RECIPES["fp8"].dtype}]
    # four forward and two gradients of each; again only the two whose results the backward phase reads
    assert len(low) == len(products) == 4 + 4 * 2 + 2


def test_attention_in_fp8_reads_casts_that_the_backward_phase_keeps(tiny_llama: Graph) -> None:
    region = layer(tiny_llama, precision="fp8", fp8_attention=True)
    forward, backward = (next(n for n in region.nodes if n.op == name) for name in ("attention", "attention_bwd"))
    assert {region.by_id[i].type.dtype for i in (*forward.inputs, *backward.inputs[:4])} == {DType.FP8}
    assert backward.inputs[1:4] == forward.inputs
    assert region.by_id[forward.key].type.dtype is DType.BF16
    assert {region.by_id[o].type.dtype for o in backward.outputs} == {DType.BF16}
    # Queries and the gradient have 64 elements a token, keys and values 32; the maximum needs a pass of its own.
    ours = [
        n for n in casts(region, Phase.FORWARD, Phase.BACKWARD) if {*n.outputs} & {*forward.inputs, backward.inputs[0]}
    ]
    assert moved(region, ours) == (TOKENS * (2 * H + 2 * KV) * 2 * 2, TOKENS * (2 * H + 2 * KV))


@pytest.mark.parametrize("method", ["allgather", "ring", "ulysses"])
def test_messages_of_fp8_attention_carry_casts(tiny_llama: Graph, method: str) -> None:
    region = layer(tiny_llama, precision="fp8", fp8_attention=True, cp=method)
    made = {o: n for n in region.nodes for o in n.outputs}
    calls = [n for n in region.nodes if n.op.startswith("attention")]
    messages = {made[i].key: made[i] for n in calls for i in n.inputs[: 4 if n.op == "attention_bwd" else 3]}
    sent = [n for n in messages.values() if n.op != "quantise"]
    assert sent
    assert {region.by_id[i].type.dtype for n in sent for i in (*n.inputs, *n.outputs)} == {DType.FP8}


def test_fp8_attention_is_of_low_precision_training() -> None:
    with pytest.raises(PlanError, match="fp8-attention: of low-precision training"):
        check_family(Family(fp8_attention=True))


@pytest.mark.parametrize("mtp", [0, 1])
def test_the_head_is_multiplied_by_the_recipe_where_asked(tiny_llama: Graph, mtp: int) -> None:
    """Forward and two gradients of each head; the loss reads 16 bits, and what the optimizer updates is as it was."""
    family = Family(precision="mxfp8", fp8_output_proj=True, kernels="fused", mtp_num_layers=mtp)
    graph = lower(tiny_llama, family).graph
    for name in ("epilogue", *["mtp_head"] * mtp):
        region = graph.region(name)
        products = [n for n in region.nodes if n.op == "matmul"]
        assert len(products) == 3
        assert {region.by_id[i].type.dtype for n in products for i in n.inputs[:2]} == {DType.MXFP8}
        assert {region.by_id[n.key].type.dtype for n in products} == {DType.BF16}
    assert not casts(graph.region("prologue"), *Phase)


def test_the_head_goes_with_mxfp8_alone() -> None:
    with pytest.raises(PlanError, match=r"fp8-output-proj: precision=fp8 leaves the head as it is; legal: mxfp8"):
        check_family(Family(precision="fp8", fp8_output_proj=True))


def test_frozen_weights_that_rest_in_low_precision_are_cast_before_the_run(tiny_llama: Graph) -> None:
    """Beside adapters no step casts or turns them: they rest in rows, and in columns for the backward phase."""
    adapted = {"lora_rank": 4, "lora_modules": ("q_proj",), "precision": "fp8-delayed", "kernels": "fused"}
    once = lower(tiny_llama, Family(**adapted)).graph.region("block0")  # type: ignore[arg-type]
    rest = layer(tiny_llama, **adapted, fp8_param_gather=True)
    frozen = {v.name: v.type for v in rest.of_role(Role.PARAM) if "lora" not in v.name and v.type.dtype is DType.FP8}
    assert sum(not name.endswith(".columns") for name in frozen) == 7
    assert {f"{name}.columns" for name in frozen if not name.endswith(".columns")} >= {
        name for name in frozen if name.endswith(".columns")
    }
    prepared = [n for n in rest.nodes if n.phase is Phase.PREPARE]
    named = {v.id: v.name for v in rest.of_role(Role.PARAM)}
    assert all("lora" in named[n.inputs[0]] for n in prepared)
    assert len(prepared) < len([n for n in once.nodes if n.phase is Phase.PREPARE])


def test_frozen_weights_rest_in_any_recipe() -> None:
    check_family(Family(precision="fp8-rowwise", fp8_param_gather=True, lora_rank=8))
    with pytest.raises(NotBuiltError, match="travel in the model's type"):
        check_family(Family(precision="fp8-rowwise", fp8_param_gather=True))
