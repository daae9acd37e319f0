"""Recipes by module path: which weights patterns name, what they weigh with their scales, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.driver.estimate import lower, pipeline_for
from slipstick.frontend import load
from slipstick.ir.errors import NotBuiltError, ParseError, PlanError, SlipstickError, UnknownNameError, UsageError
from slipstick.ir.graph import Graph, Region, Role, Workload
from slipstick.ir.plan import Family, check_family
from slipstick.ir.plan.precision import check_units
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.text.printer import print_graph
from slipstick.ir.types import DType
from slipstick.passes.manager import parse_pipeline
from slipstick.passes.precision.low_patterns import matches

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
# The layer of tiny-llama: hidden 64, 2 of 4 heads of 16 for keys, inner size 96; 160 words.
ATTENTION, MLP, TABLE = 2 * 64 * 64 + 2 * 32 * 64, 3 * 96 * 64, 160 * 64
PATTERNS = ("*", "*.mlp", "*.q_proj", "lm_head", "model.layers.0", "re:.*up")
NAMES = ("none", "fp8", "fp8-block", "w4a16", "mxfp8")
Pairs = tuple[tuple[str, str], ...]


@pytest.fixture(scope="module")
def llama() -> Graph:
    return load(str(CONFIGS / "tiny-llama.json"), "decode")


@pytest.fixture(scope="module")
def mixtral() -> Graph:
    return load(str(CONFIGS / "tiny-mixtral.json"), "decode")


def low(graph: Graph, *pairs: str, precision: str = "none", published: Pairs = (), kernels: str = "eager") -> Graph:
    of = tuple((p.rpartition("=")[0], p.rpartition("=")[2]) for p in pairs)
    family = Family(
        workload=graph.workload, precision=precision, precision_of=of, published_of=published, kernels=kernels
    )
    return lower(graph, family).graph


def types(region: Region) -> dict[str, str]:
    found = (v for v in region.of_role(Role.PARAM) if v.type.rank > 1)
    return {v.name.removesuffix(".weight").rpartition(".")[2]: str(v.type.dtype) for v in found}


def num_bytes(region: Region) -> float:
    found = (v.type.num_bytes for v in region.of_role(Role.PARAM) if v.type.rank > 1)
    return sum(float(b.evaluate({"tp": 1, "ep": 1})) for b in found)


def casts(region: Region) -> list[str]:
    return sorted(str(region.by_id[n.key].type.dtype) for n in region.nodes if n.op == "quantise")


# Bytes of weights and of their scales, counted by hand.


@pytest.mark.parametrize(
    ("recipe", "weights", "scales"),
    [
        # A scale for a whole tensor, or for each of its channels, is left out: 4 bytes for 64 weights or more.
        ("fp8", ATTENTION + MLP, 0),
        # 4 bytes for 128 x 128.
        ("fp8-block", ATTENTION + MLP, (ATTENTION + MLP) * 4 / 16384),
        # A byte for 32.
        ("mxfp8", ATTENTION + MLP, (ATTENTION + MLP) / 32),
        # Half a byte, and a byte for 16.
        ("nvfp4", (ATTENTION + MLP) / 2, (ATTENTION + MLP) / 16),
        # Half a byte, and 2 for groups of 128.
        ("w4a16", (ATTENTION + MLP) / 2, (ATTENTION + MLP) * 2 / 128),
    ],
)
def test_a_layer_weighs_its_weights_and_scales(llama: Graph, recipe: str, weights: float, scales: float) -> None:
    assert num_bytes(low(llama, precision=recipe).region("block0")) == weights + scales
    assert num_bytes(low(llama, f"model.layers.*={recipe}").region("block0")) == weights + scales


def test_experts_weigh_half_a_byte_and_a_byte_for_32(mixtral: Graph) -> None:
    region, plain = low(mixtral, "*experts*=mxfp4").region("block0"), low(mixtral, "lm_head=fp8").region("block0")
    bank = [v for v in region.of_role(Role.PARAM) if "experts" in v.name]
    elements = sum(float(v.type.numel.evaluate({"tp": 1, "ep": 1})) for v in bank)
    assert num_bytes(plain) - num_bytes(region) == elements * 2 - (elements / 2 + elements / 32)


def test_several_recipes_in_one_layer_add_up(llama: Graph) -> None:
    region = low(llama, "*.mlp=nvfp4", "*.o_proj=none", precision="fp8-block").region("block0")
    qkv = 64 * 64 + 2 * 32 * 64
    assert num_bytes(region) == qkv * (1 + 4 / 16384) + 2 * 64 * 64 + MLP * 0.5625
    # What queries, keys and values read, and what the two halves of the feed-forward network do.
    assert casts(region) == ["fp8_block", "nvfp4", "nvfp4"]


# What patterns name.


def test_what_two_types_read_is_cast_for_each(llama: Graph) -> None:
    region = low(llama, "*.up_proj=nvfp4", precision="fp8-block").region("block0")
    casts_of = {region.by_id[n.key].type.dtype: n.inputs[0] for n in region.nodes if n.op == "quantise"}
    (up,) = (n for n in region.nodes if n.scope.endswith("up_proj") and n.op == "matmul")
    (gate,) = (n for n in region.nodes if n.scope.endswith("gate_proj") and n.op == "matmul")
    assert [region.by_id[n.inputs[0]].type.dtype for n in (up, gate)] == [DType.NVFP4, DType.FP8_BLOCK]
    assert casts_of[DType.NVFP4] == region.producer[gate.inputs[0]].inputs[0]


def test_one_type_for_two_recipes_is_cast_once(mixtral: Graph) -> None:
    region = low(mixtral, "*experts*=mxfp4-mxfp8", precision="mxfp8").region("block0")
    assert types(region)["gate_up_proj"] == "mxfp4"
    assert types(region)["q_proj"] == "mxfp8"
    assert types(region)["gate"] == "bf16"
    assert casts(region) == ["mxfp8", "mxfp8"]


def test_head_and_embedding_follow_patterns_that_name_them(llama: Graph) -> None:
    graph = low(llama, "lm_head=fp8-block", "model.embed_tokens=w8a16", precision="fp8")
    assert num_bytes(graph.region("prologue")) == TABLE
    assert num_bytes(graph.region("epilogue")) == TABLE * (1 + 4 / 16384)
    assert casts(graph.region("epilogue")) == ["fp8_block"]
    (found,) = (n for n in graph.region("prologue").nodes if n.op == "embedding")
    assert graph.region("prologue").by_id[found.key].type.dtype is DType.BF16


def test_later_patterns_hold_over_earlier_ones(llama: Graph) -> None:
    assert types(low(llama, "*.mlp=fp8", "*.up_proj=none").region("block0"))["up_proj"] == "bf16"
    assert types(low(llama, "*.up_proj=none", "*.mlp=fp8").region("block0"))["up_proj"] == "fp8"


@pytest.mark.parametrize(
    "pattern", ["model.layers.1.mlp", "model.layers.1.mlp.*", r"re:model\.layers\.1\.mlp", "*.1.mlp.*_proj"]
)
@pytest.mark.parametrize("kernels", ["eager", "fused"])
def test_a_number_names_one_layer(llama: Graph, pattern: str, kernels: str) -> None:
    graph = low(llama, f"{pattern}=none", precision="fp8-block", kernels=kernels)
    first, second = (graph.region(name) for name in graph.sequence() if name.startswith("block"))
    assert num_bytes(first) == (ATTENTION + MLP) * (1 + 4 / 16384)
    assert num_bytes(second) == ATTENTION * (1 + 4 / 16384) + 2 * MLP


def test_layers_that_do_not_differ_stay_folded(llama: Graph) -> None:
    graph = low(llama, "model.layers.[01].mlp=fp8")
    assert [run.count for run in graph.schedule] == [1, 2, 1]


def test_joined_products_are_named_by_their_parts(llama: Graph) -> None:
    region = low(llama, "*.mlp=nvfp4", precision="fp8-block", kernels="fused").region("block0")
    found = {
        "q_proj+k_proj+v_proj": "fp8_tile",
        "o_proj": "fp8_tile",
        "gate_proj+up_proj": "nvfp4",
        "down_proj": "nvfp4",
    }
    assert types(region) == found


def test_patterns_of_a_checkpoint_may_name_nothing(llama: Graph) -> None:
    graph = low(llama, precision="fp8", published=(("visual", "none"), ("*.mlp", "none")))
    assert types(graph.region("block0"))["up_proj"] == "bf16"
    assert types(graph.region("block0"))["q_proj"] == "fp8"


def test_a_tied_table_is_one_tensor() -> None:
    graph = load(str(CONFIGS / "tiny-gpt2.json"), "decode")
    name = next(v.name for v in graph.region("prologue").of_role(Role.PARAM) if v.name.endswith("wte.weight"))
    made = low(graph, f"{name}=w8a16")
    kinds = {str(v.type.dtype) for r in made.regions for v in r.of_role(Role.PARAM) if v.name == name}
    assert len(kinds) == 1


@given(st.lists(st.tuples(st.sampled_from(PATTERNS), st.sampled_from(NAMES)), min_size=1, max_size=3))
@settings(max_examples=6, deadline=None)
def test_any_patterns_make_graphs_that_print_and_parse(llama: Graph, pairs: list[tuple[str, str]]) -> None:
    family = Family(workload=Workload.DECODE, precision="fp8", precision_of=tuple(pairs))
    pipeline = pipeline_for(family)
    assert parse_pipeline(str(pipeline)) == pipeline
    graph = lower(llama, family).graph
    assert parse_graph(print_graph(graph)) == graph
    assert sum(run.count * len(run.regions) for run in graph.schedule) == 4


# What is refused.


@pytest.mark.parametrize(
    ("pairs", "error", "words"),
    [
        (("model.layer.*.mlp=fp8",), UsageError, "did you mean 'model.layers.*.mlp'"),
        (("model.layers.7.mlp=fp8",), UsageError, "no weight of tiny-mixtral has such a path"),
        (("*.gate=fp8",), PlanError, "gate.weight stay in the model's type: routers"),
        (("*.q_proj=mxfp4",), PlanError, "of banks of experts alone"),
        (("*.gate_up_proj=fp8",), PlanError, "weights of one kernel differ"),
        (("*=fp9",), UnknownNameError, "did you mean 'fp8'"),
        (("lm_head=none",), PlanError, "leave it out"),
    ],
)
def test_what_cannot_be_followed_is_said(
    mixtral: Graph, pairs: tuple[str, ...], error: type[SlipstickError], words: str
) -> None:
    of = tuple((p.partition("=")[0], p.partition("=")[2]) for p in pairs)
    family = Family(workload=Workload.DECODE, precision_of=of)

    def run() -> None:
        check_family(family)
        lower(mixtral, family)

    with pytest.raises(error, match=words):
        run()


def test_engines_that_join_products_need_one_recipe(llama: Graph) -> None:
    with pytest.raises(PlanError, match="use --kernels eager"):
        low(llama, "*.up_proj=nvfp4", precision="fp8", kernels="fused")


def test_training_has_none_yet() -> None:
    with pytest.raises(NotBuiltError, match="of inference only in this version"):
        check_family(Family(precision_of=(("lm_head", "fp8"),)))


def test_a_chip_needs_the_units_of_every_recipe() -> None:
    family = Family(workload=Workload.DECODE, precision="fp8", precision_of=(("*.mlp", "nvfp4"),))
    with pytest.raises(PlanError, match="precision=nvfp4 runs on fp4 matrix units, and H100 has"):
        check_units(family, "H100", ("bf16", "fp8"))


@pytest.mark.parametrize(
    "pattern",
    [
        "(((",
        "(a+)+b",
        "(.*.*)*",
        "(a|a)*b",
        ".*.*.*.*.*x",
        "a{1,60000}{1,60000}",
        "(?P<x>",
        "x" * 1001,
        "[z-a]",
        r"(\w+\.?)+!",
        ".?" * 30 + "!",
        "(.|.)" * 30 + "!",
        "(?:.|(?:.|.))" * 20 + "!",
        ".*.*.*.*" + "(.|.)" * 5,
    ],
)
def test_an_expression_that_is_none_or_has_no_end_is_refused(pattern: str) -> None:
    with pytest.raises(ParseError, match="'re:"):
        matches("model.layers.*.self_attn.q_proj", f"re:{pattern}")


@pytest.mark.parametrize(
    "pattern",
    [
        r"model\.layers\.[0-9]+\.mlp",
        ".*mlp.experts.*.(gate|up)_proj.*",
        "(?:a|b)?model",
        "[*+{]?m",
        rf"model\.layers\.({'|'.join(map(str, range(60)))})\..*up_proj$",
    ],
)
def test_expressions_of_checkpoints_are_read(pattern: str) -> None:
    assert matches("model.layers.*.mlp.experts.*.up_proj", f"re:{pattern}")
