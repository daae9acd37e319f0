"""Low precision in inference: which weights rest in it, where casts stand, what keys and values are kept in."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstick.driver.estimate import lower, pipeline_for
from slipstick.frontend import load
from slipstick.ir.errors import PlanError, UnknownNameError, UsageError
from slipstick.ir.graph import Graph, Node, Region, Role, Workload
from slipstick.ir.ops import call_of, work_of
from slipstick.ir.ops.collectives import message_bytes
from slipstick.ir.ops.fused.experts import ExpertsAttrs
from slipstick.ir.plan import Family, check_family
from slipstick.ir.plan.low_inference import INFERENCE, KV_DTYPES
from slipstick.ir.sizes.expr import total
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.text.printer import print_graph
from slipstick.ir.types import DType
from slipstick.passes.manager import parse_pipeline

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

CONFIGS = Path(__file__).parents[2] / "data" / "configs"
GOLDEN = Path(__file__).parents[1] / "golden"
# The layer of tiny-llama: hidden 64, 4 heads of 16 and 2 of them for keys, inner size 96.
H, KV, F = 64, 32, 96
WEIGHTS = H * H + 2 * KV * H + H * H + 3 * F * H
DENSE = [name for name, recipe in INFERENCE.items() if not recipe.experts]
ALONE = [name for name in DENSE if INFERENCE[name].operands is None]
CAST = [name for name in DENSE if INFERENCE[name].operands is not None]
# Bytes of a weight, scales included, from what each recipe says of them.
BYTES = {
    "fp8": 1.0, "fp8-rowwise": 1.0, "fp8-block": 1 + 4 / 16384, "mxfp8": 1 + 1 / 32, "nvfp4": 0.5 + 1 / 16,
    "int8": 1.0, "w8a16": 1.0, "w4a16": 0.5 + 2 / 128, "mxfp4": 0.5 + 1 / 32, "mxfp4-mxfp8": 0.5 + 1 / 32,
}  # fmt: skip
TYPES = {"fp8": 1.0, "int8": 1.0, "fp4": 0.5625}


@pytest.fixture(scope="module")
def llama() -> Graph:
    return load(str(CONFIGS / "tiny-llama.json"), "decode")


@pytest.fixture(scope="module")
def prefill() -> Graph:
    return load(str(CONFIGS / "tiny-llama.json"), "prefill")


@pytest.fixture(scope="module")
def mixtral() -> Graph:
    return load(str(CONFIGS / "tiny-mixtral.json"), "decode")


@pytest.fixture(scope="module")
def deepseek() -> Graph:
    return load(str(CONFIGS / "tiny-deepseek.json"), "decode")


def layer(graph: Graph, name: str = "block0", **options: object) -> Region:
    family = Family(workload=graph.workload, **options)  # type: ignore[arg-type]
    return lower(graph, family).graph.region(name)


def fused(graph: Graph, recipe: str, **options: object) -> Region:
    """The same where kernels write their results cast."""
    return layer(graph, "block0", precision=recipe, kernels="fused", **options)


def casts(region: Region) -> list[Node]:
    return [n for n in region.nodes if n.op == "quantise"]


def weights(region: Region) -> dict[DType, float]:
    """Bytes of the matrices of a region by type; norms are not among them."""
    found: dict[DType, float] = {}
    for v in region.of_role(Role.PARAM):
        if v.type.rank > 1:
            found[v.type.dtype] = found.get(v.type.dtype, 0.0) + float(v.type.num_bytes.evaluate({"tp": 1, "ep": 1}))
    return found


def kinds(region: Region, op: str) -> list[tuple[DType, DType]]:
    """Types of the first two operands of each node of an op."""
    left_right = ([region.by_id[i].type.dtype for i in n.inputs[:2]] for n in region.nodes if n.op == op)
    return [(left, right) for left, right in left_right]


@pytest.mark.parametrize("name", DENSE)
def test_weights_of_layers_rest_in_the_recipe_s_type(llama: Graph, name: str) -> None:
    graph = lower(llama, Family(workload=Workload.DECODE, precision=name)).graph
    assert weights(graph.region("block0")) == {INFERENCE[name].weights: pytest.approx(WEIGHTS * BYTES[name])}
    for end in ("prologue", "epilogue"):
        assert {v.type.dtype for v in graph.region(end).of_role(Role.PARAM)} == {DType.BF16}
        assert not casts(graph.region(end))
    norms = [v for v in graph.region("block0").of_role(Role.PARAM) if v.type.rank == 1]
    assert {v.type.dtype for v in norms} == {DType.BF16}


@pytest.mark.parametrize("name", DENSE)
def test_products_read_weights_as_they_rest_and_write_the_model_s_type(llama: Graph, name: str) -> None:
    recipe, region = INFERENCE[name], layer(llama, precision=name)
    assert kinds(region, "matmul") == [(recipe.operands or DType.BF16, recipe.weights)] * 7
    assert {region.by_id[n.key].type.dtype for n in region.nodes if n.op == "matmul"} == {DType.BF16}
    assert kinds(region, "attention") == [(DType.BF16, DType.BF16)]


@pytest.mark.parametrize("name", ALONE)
def test_weights_alone_need_no_cast(llama: Graph, name: str) -> None:
    region, plain = layer(llama, precision=name), layer(llama)
    assert region.nodes == plain.nodes


def test_known_scales_cost_no_kernel(llama: Graph) -> None:
    region, plain = layer(llama, precision="fp8"), layer(llama)
    assert region.nodes == plain.nodes
    made = {n.op for n in region.nodes for o in n.outputs if region.by_id[o].type.dtype is DType.FP8}
    # Both norms, the activation, and attention with the view that its projection reads.
    assert made == {"norm", "elementwise", "attention", "reshape"}


@pytest.mark.parametrize("name", [name for name in CAST if name != "fp8"])
def test_other_scales_cost_a_small_kernel_a_tensor(llama: Graph, name: str) -> None:
    region = layer(llama, precision=name)
    env = {"batch": 4.0, "kv": 8.0, "tp": 1.0, "mbs": 4.0}
    works = [work_of(region, n) for n in casts(region)]
    read = float(total(w.read_bytes for w in works).evaluate(env))
    written = float(total(w.write_bytes for w in works).evaluate(env))
    # Two norms and the result of attention of 64 elements, the activation of 96, four sequences.
    assert len(works) == 4
    each = (INFERENCE[name].operands or DType.BF16).num_bytes
    assert read == 2 * 4 * (3 * H + F)
    assert written == pytest.approx(each * 4 * (3 * H + F))


@pytest.mark.parametrize("name", CAST)
def test_fused_kernels_write_their_results_cast(llama: Graph, name: str) -> None:
    # The result of attention where its kernel does not: no scale of a row of all heads, or of a block, is known in it.
    left = casts(fused(llama, name))
    assert [n.scope.rpartition(".")[2] for n in left] == ([] if name in ("fp8", "nvfp4") else ["o_proj"])


@pytest.mark.parametrize("name", CAST)
def test_the_norm_of_the_next_layer_writes_what_its_products_read(llama: Graph, name: str) -> None:
    graph = lower(llama, Family(workload=Workload.DECODE, kernels="fused", precision=name)).graph
    low = INFERENCE[name].operands
    for region in (graph.region("prologue"), graph.region("block0")):
        cast = next(p.value for p in region.outputs if p.name.endswith("_normed_cast"))
        assert (region.producer[cast].op, region.by_id[cast].type.dtype) == ("norm", low)
    # The head reads it as it is.
    assert DType.BF16 in {v.type.dtype for v in graph.region("epilogue").of_role(Role.PORT)}
    assert parse_graph(print_graph(graph)) == graph


def test_rows_of_all_heads_are_cast_and_views_share_what_is_made_cast(llama: Graph) -> None:
    for name, op in (("fp8-block", "quantise"), ("fp8", "attention")):
        region = layer(llama, precision=name)
        (product,) = (n for n in region.nodes if n.op == "matmul" and n.scope.endswith("o_proj"))
        seen = region.by_id[product.inputs[0]]
        assert seen.type.rank == 3
        assert region.producer[seen.storage].op == op


def test_sequence_parallel_ranks_gather_what_is_cast(prefill: Graph) -> None:
    env = {"mbs": 1.0, "batch": 1.0, "seq": 64.0, "tp": 2.0}

    def gathered(name: str) -> float:
        region = layer(prefill, precision=name, sp=True)
        found = [n for n in region.nodes if n.op == "all_gather"]
        return float(total(message_bytes(call_of(region, n)) for n in found).evaluate(env))

    assert gathered("none") == 2 * 2 * 64 * H
    assert gathered("fp8") == gathered("none") / 2
    assert gathered("fp8-block") == gathered("none") / 2 * (1 + 4 / 128)


def test_sums_of_tensor_parallelism_stay_in_the_model_s_type(llama: Graph) -> None:
    region = layer(llama, precision="nvfp4")
    sums = [n for n in region.nodes if n.op == "all_reduce"]
    assert sums
    assert {region.by_id[n.key].type.dtype for n in sums} == {DType.BF16}


def experts(region: Region) -> Node:
    return next(n for n in region.nodes if n.op in ("experts", "expert_bank"))


@pytest.mark.parametrize("name", INFERENCE)
def test_banks_of_experts_rest_low_and_cast_inside(mixtral: Graph, name: str) -> None:
    recipe, region = INFERENCE[name], layer(mixtral, precision=name)
    bank = experts(region)
    assert isinstance(bank.attrs, ExpertsAttrs)
    assert bank.attrs.products == (str(recipe.operands) if recipe.operands else "")
    assert {region.by_id[i].type.dtype for i in bank.inputs[3:5]} == {recipe.weights}
    assert region.by_id[bank.inputs[0]].type.dtype is DType.BF16
    router = next(n for n in region.nodes if n.op == "matmul" and n.scope.endswith("mlp.gate"))
    assert {region.by_id[i].type.dtype for i in router.inputs} == {DType.BF16}
    others = {left for left, _ in kinds(region, "matmul")}
    assert (others == {DType.BF16}) == (recipe.experts or recipe.operands is None)


def test_rows_that_are_dealt_out_are_cast_before_their_bank(mixtral: Graph) -> None:
    region = layer(mixtral, precision="fp8-block", ep=True)
    bank = experts(region)
    assert (bank.op, region.by_id[bank.inputs[0]].type.dtype) == ("expert_bank", DType.FP8_BLOCK)
    assert region.producer[bank.inputs[0]].op == "quantise"
    # Rows that travel in fp8 are cast before, by the kernel that sends them where kernels are fused.
    sent = fused(mixtral, "fp8-block", ep=True, dispatch_dtype="fp8")
    assert sent.producer[experts(sent).inputs[0]].op == "all_to_all"
    assert {n.scope.rpartition(".")[2] for n in casts(sent)} == {"o_proj"}


def test_the_matrix_that_latent_attention_takes_apart_stays(deepseek: Graph) -> None:
    region = layer(deepseek, "block1", precision="fp8-block")
    names = {v.name.rpartition("self_attn.")[2]: v.type.dtype for v in region.of_role(Role.PARAM)}
    assert names["kv_b_proj.weight"] is DType.BF16
    assert names["o_proj.weight"] is DType.FP8_TILE
    # 24 is no multiple of 16.
    assert names["q_a_proj.weight"] is DType.BF16


def test_first_and_last_layers_stay(llama: Graph) -> None:
    graph = lower(llama, Family(workload=Workload.DECODE, precision="w4a16", bf16_first=1)).graph
    low = [name for name in graph.sequence() if DType.INT4_GROUP in weights(graph.region(name))]
    assert len(low) == 1


# The KV cache.


@pytest.mark.parametrize("name", KV_DTYPES)
def test_a_decode_step_reads_and_writes_the_cache_as_it_is_kept(llama: Graph, name: str) -> None:
    region = layer(llama, kv_dtype=name)
    kept = KV_DTYPES[name]
    assert {v.type.dtype for v in region.of_role(Role.CACHE)} == {kept}
    (attention,) = (n for n in region.nodes if n.op == "attention")
    assert [region.by_id[i].type.dtype for i in attention.inputs] == [DType.BF16, kept, kept]
    env = {"mbs": 4.0, "batch": 4.0, "kv": 8.0, "tp": 1.0}
    works = [work_of(region, n) for n in region.nodes if n.op == "kv_append"]
    assert float(total(w.read_bytes for w in works).evaluate(env)) == 2 * 4 * 2 * KV
    assert float(total(w.write_bytes for w in works).evaluate(env)) == pytest.approx(2 * 4 * KV * TYPES[name])


def test_a_prompt_attends_to_what_it_made(prefill: Graph) -> None:
    region, plain = layer(prefill, kv_dtype="fp8"), layer(prefill)
    (attention,) = (n for n in region.nodes if n.op == "attention")
    assert {region.by_id[i].type.dtype for i in attention.inputs} == {DType.BF16}
    assert {region.by_id[n.key].type.dtype for n in region.nodes if n.op == "kv_append"} == {DType.FP8}
    assert [n.op for n in region.nodes] == [n.op for n in plain.nodes]


def test_what_makes_keys_of_latents_reads_them_cast_back(deepseek: Graph) -> None:
    region = layer(deepseek, kv_dtype="fp8", mla="expanded")
    back = [n for n in region.nodes if n.op == "cast" and region.by_id[n.inputs[0]].type.dtype is DType.FP8]
    assert [region.producer[n.inputs[0]].op for n in back] == ["kv_append", "kv_append"]
    assert {region.by_id[n.key].type.dtype for n in back} == {DType.BF16}
    # Over the latents nothing is cast: attention reads them as they are kept.
    latent = layer(deepseek, kv_dtype="fp8", mla="latent")
    (attention,) = (n for n in latent.nodes if n.op == "attention")
    assert [latent.by_id[i].type.dtype for i in attention.inputs[1:3]] == [DType.FP8, DType.FP8]


# What does nothing, what is refused, and text.


def test_without_a_recipe_there_are_no_such_passes(llama: Graph) -> None:
    assert "quantise" not in str(pipeline_for(Family(workload=llama.workload)))


@pytest.mark.parametrize("workload", [Workload.PREFILL, Workload.DECODE])
@pytest.mark.parametrize("name", INFERENCE)
def test_pipelines_print_and_parse(workload: Workload, name: str) -> None:
    pipeline = pipeline_for(Family(workload=workload, precision=name, kv_dtype="fp8", bf16_last=1))
    assert parse_pipeline(str(pipeline)) == pipeline


@pytest.mark.parametrize("options", [{"precision": "fp8", "kv_dtype": "fp8"}, {"precision": "mxfp4", "ep": True}])
def test_lowered_graphs_print_and_parse(mixtral: Graph, options: dict[str, object]) -> None:
    graph = lower(mixtral, Family(workload=Workload.DECODE, **options)).graph  # type: ignore[arg-type]
    assert parse_graph(print_graph(graph)) == graph


def test_a_decode_step_in_fp8_is_the_golden_one(llama: Graph, request: pytest.FixtureRequest) -> None:
    graph = lower(llama, Family(workload=Workload.DECODE, precision="fp8-block", kv_dtype="fp8")).graph
    file = GOLDEN / "tiny-llama.decode.fp8-block.graph"
    if request.config.getoption("--update-golden", default=False):
        file.write_text(print_graph(graph), encoding="utf-8")
    assert print_graph(graph) == file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("workload", "options", "error", "words"),
    [
        ("decode", {"precision": "fp8-delayed"}, PlanError, "of training only; decode has none, fp8"),
        ("train", {"precision": "w4a16"}, PlanError, "of inference only; train has none, fp8"),
        ("train", {"kv_dtype": "fp8"}, PlanError, "training keeps no KV cache"),
        ("prefill", {"precision": "w4a61"}, UnknownNameError, "did you mean 'w4a16'"),
        ("decode", {"kv_dtype": "fp9"}, UnknownNameError, "did you mean 'fp8'"),
        ("decode", {"precision": "fp8", "fp8_param_gather": True}, PlanError, "of training only"),
    ],
)
def test_what_does_not_go_together(
    workload: str, options: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        check_family(Family(workload=Workload(workload), **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ('quantise{recipe="fp8"}', UsageError, "belongs behind 'shard'"),
        ('shard,quantise{recipe="fp8-delayed"}', UnknownNameError, "precision of decode"),
        ('shard,quantise{recipe="fp8", gather=true}', PlanError, "of training only"),
        ('shard,quantise{recipe="mxfp4"}', PlanError, "of experts alone, and tiny-llama has none; legal: none, fp8"),
        ('shard,quantise_cache{dtype="fp9"}', UnknownNameError, "did you mean 'fp8'"),
        ("quantise_cache", UsageError, "belongs behind 'shard'"),
    ],
)
def test_passes_say_what_they_cannot_do(llama: Graph, text: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        parse_pipeline(text).run(llama)
