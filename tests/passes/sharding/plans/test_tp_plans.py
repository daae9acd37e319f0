"""Tensor-parallel plans from the model, from files and from a search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slipstick.frontend import load
from slipstick.ir.errors import ParseError, PlanError, SlipstickError, UnknownNameError, UsageError
from slipstick.ir.graph import Graph, Hint, Region, Role
from slipstick.ir.placement import EP, TP
from slipstick.ir.plan import Family
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.text.printer import print_graph
from slipstick.passes.families import pipeline_for
from slipstick.passes.manager import parse_pipeline
from slipstick.passes.sharding.plans.auto import degree_of
from slipstick.passes.sharding.plans.choose import ENOUGH_NAMED, named_share, plan_for, styles_in
from slipstick.passes.sharding.plans.plan_files import plan_text, read_plan
from slipstick.passes.sharding.plans.plans import MADE_PLANS, STYLES, TP_PLANS, Style, style_of, tp_plan
from slipstick.passes.sharding.shard import shard_by

NETS = Path(__file__).parents[3] / "data" / "nets.py"


def shard(graph: Graph, plan: str) -> Graph:
    return parse_pipeline(f'accumulate,shard{{tp_plan="{plan}"}}').run(graph)[0]


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


# The model's own.


def test_the_own_plan_is_part_of_the_saved_graph(tiny_mixtral: Graph) -> None:
    assert Hint(TP, "model.layers.*.mlp.experts.down_proj", "rowwise") in tiny_mixtral.hints
    assert Hint(EP, "model.layers.*.mlp.experts.down_proj", "grouped_gemm") in tiny_mixtral.hints
    assert parse_graph(print_graph(tiny_mixtral)) == tiny_mixtral


def test_every_word_of_transformers_has_a_meaning() -> None:
    pytest.importorskip("transformers", reason="names the styles; install slipstick[hf]")
    import transformers.distributed.expert_parallel
    from transformers.distributed.parallel_utils import ALL_PARALLEL_STYLES

    # Importing this module adds the words of expert parallelism, and through it those of tensor parallelism.
    assert transformers.distributed.expert_parallel
    assert {"colwise", "grouped_gemm"} <= set(ALL_PARALLEL_STYLES) <= set(STYLES)


@pytest.mark.parametrize(
    ("parameter", "style"),
    [("transformer.h.*.self_attention.query_key_value.weight", Style.COLWISE),
     ("model.layers.*.self_attn.indexer.wk.weight", Style.REPLICATE),
     ("transformer.blocks.*.ffn.experts.mlp.ws", Style.PACKED_COLWISE)],
)  # fmt: skip
def test_fused_projections_are_cut_by_heads_and_indexers_stay_whole(parameter: str, style: Style) -> None:
    assert tp_plan("megatron").style(parameter) is style


def test_a_style_that_is_not_known_is_named(tiny_llama: Graph) -> None:
    odd = replace(tiny_llama, hints=(Hint(TP, "lm_head", "colwize"),))
    with pytest.raises(UnknownNameError, match="unknown tensor-parallel style 'colwize'; did you mean 'colwise'"):
        shard(odd, "hf")


def test_a_model_without_a_plan_says_so(tiny_gpt2: Graph) -> None:
    with pytest.raises(PlanError, match="gpt2 brings no tensor-parallel plan of its own; legal: auto, dtensor"):
        shard(tiny_gpt2, "hf")


def test_styles_by_rows_of_packed_matrices_and_by_columns_of_tables(tiny_llama: Graph) -> None:
    hints = (
        Hint(TP, "model.embed_tokens", "embedding_colwise"),
        Hint(TP, "model.layers.*.mlp.down_proj", "packed_rowwise"),
    )
    lowered = shard(replace(tiny_llama, hints=hints), "hf")
    placed = {v.name: dict(v.placements)[TP] for r in lowered.regions for v in r.of_role(Role.PARAM)}
    assert str(placed["model.embed_tokens.weight"]) == "S(1)"
    assert str(placed["model.layers.*.mlp.down_proj.weight"]) == "S(1p)"
    # The table's columns are gathered, as transformers does, so that the layers see whole activations.
    assert [n.op for n in lowered.region("prologue").nodes if "all_gather" in n.op] == ["all_gather"]


# Files.

ENTRIES = {"model.layers.*.mlp.gate_proj": "colwise", "model.layers.*.mlp.up_proj.weight": "colwise"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.yaml", "# two\nmodel.layers.*.mlp.gate_proj: colwise\nmodel.layers.*.mlp.up_proj.weight: colwise\n"),
        ("p.json", '{"model.layers.*.mlp.gate_proj": "colwise",\n "model.layers.*.mlp.up_proj.weight": "colwise"}'),
        ("p.toml", '"model.layers.*.mlp.gate_proj" = "colwise"\n"model.layers.*.mlp.up_proj.weight" = "colwise"\n'),
    ],
)
def test_a_file_names_parameters_or_modules(name: str, text: str, tiny_llama: Graph, tmp_path: Path) -> None:
    path = write(tmp_path, name, text)
    plan = read_plan(path)
    assert dict(plan.entries) == dict.fromkeys(ENTRIES, Style.COLWISE)
    split = [n for n, s in styles_in(plan, tiny_llama).items() if s is Style.COLWISE]
    assert split == ["model.layers.*.mlp.gate_proj.weight", "model.layers.*.mlp.up_proj.weight"]
    assert shard(tiny_llama, path).axes == ("dp", "tp")


def test_the_parameter_counts_before_its_module(tmp_path: Path) -> None:
    plan = read_plan(write(tmp_path, "p.yaml", '"*.fc": colwise\n"*.fc.bias": replicate\n'))
    assert plan.style("h.*.fc.weight") is Style.COLWISE
    assert plan.style("h.*.fc.bias") is Style.REPLICATE


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.yaml", "a.b: colwise\nc: rowise\n", r"p\.yaml, line 2: 'c': unknown .* 'rowise'; did you mean 'rowwise'"),
        ("p.yaml", "a: colwise\na: rowwise\n", r"p.yaml:2: key given twice: a"),
        ("p.yaml", "a: [colwise]\n", r"line 1: an entry is a pattern and one word"),
        ("p.yaml", "- colwise\n", r"holds no mapping"),
        ("p.yaml", "a: [\n", r"is not YAML"),
        ("p.yaml", "eager_grads: maybe\n", r"line 1: eager_grads is 'maybe'; allowed: true, false"),
        ("p.yaml", "eager_grads: true\n", r"names no layer"),
        ("p.json", '{"a":\n "colwis"}', r"p\.json, line 1: 'a': unknown"),
        ("p.toml", "a.b = 'colwise'\n", r"key 'a': a pattern with dots is written in quotes"),
        ("p.toml", "a = \n", r"is not TOML"),
        ("p.toml", "a = 'colwis'\n", r"key 'a': 'a': unknown tensor-parallel style 'colwis'; did you mean 'colwise'"),
    ],
)
def test_what_is_wrong_in_a_file_is_shown_with_its_place(name: str, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises((UsageError, ParseError), match=message):
        read_plan(write(tmp_path, name, text))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read tensor-parallel plan .*No such file"):
        read_plan(str(tmp_path / "none.yaml"))


def test_a_pattern_without_a_parameter(tiny_llama: Graph, tmp_path: Path) -> None:
    path = write(tmp_path, "p.yaml", "model.layers.*.mlp.gate_prj: colwise\n")
    with pytest.raises(PlanError, match=r"'model\.layers\.\*\.mlp\.gate_prj' matches no .* nearest: model\.layers"):
        shard(tiny_llama, path)


@pytest.mark.parametrize("name", ["megatron", "dtensor-naive", "hf", "auto"])
def test_a_plan_written_to_a_file_does_the_same(name: str, tiny_llama: Graph, tmp_path: Path) -> None:
    plan = plan_for(name, tiny_llama, shard_by)
    path = write(tmp_path, "p.yaml", plan_text(plan, styles_in(plan, tiny_llama)))
    assert shard(tiny_llama, path) == shard(tiny_llama, name)


# The search.


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-8b", "megatron-22b"])
def test_the_search_finds_the_plan_of_megatron(model: str) -> None:
    graph = load(model)
    assert shard(graph, "auto") == shard(graph, "megatron")


def test_an_odd_vocabulary_is_split_unevenly() -> None:
    """GPT-2 has 50257 words: layers and table are Megatron's."""
    graph = load("gpt2")
    plan = plan_for("auto", graph, shard_by)
    assert plan.style("transformer.wte.weight") is Style.EMBEDDING
    assert shard(graph, "auto").region("block0") == shard(graph, "megatron").region("block0")


def test_heads_must_divide() -> None:
    """The 25 heads of GPT-2 XL can be dealt to five ranks, not to two."""
    graph = load("gpt2-xl")
    by_degree = {d: plan_for(f"auto:{d}", graph, shard_by) for d in (2, 5)}
    weight = "transformer.h.*.attn.c_attn.weight"
    assert by_degree[5].style(weight) is Style.PACKED_COLWISE
    assert by_degree[2].style(weight) is not Style.PACKED_COLWISE
    for degree, plan in by_degree.items():
        sizes = [c.dim for c in shard_by(graph, plan).constraints if c.axis == "tp" and isinstance(c.dim, int)]
        assert sizes
        assert all(size % degree == 0 for size in sizes)


def test_a_module_whose_names_nobody_knows() -> None:
    """`mlp.0` and `mlp.2` match no wildcard: Megatron's plan leaves them whole, the search pairs them."""
    graph = load(f"{NETS}:gpt")
    assert tp_plan("megatron").style("h.*.mlp.0.weight") is Style.REPLICATE
    plan = plan_for("auto", graph, shard_by)
    assert [plan.style(f"h.*.{n}.weight") for n in ("mlp.0", "mlp.2", "attn.c_attn", "attn.c_proj")] == [
        Style.COLWISE, Style.ROWWISE, Style.PACKED_COLWISE, Style.ROWWISE,
    ]  # fmt: skip
    region = shard_by(graph, plan).region("block0")
    assert _collectives(region) == ["all_reduce"] * 4  # two a phase


def test_names_that_are_not_known_are_searched_and_it_is_said(tiny_llama: Graph) -> None:
    graph = load(f"{NETS}:gpt")
    found, searched = plan_for("megatron", graph, shard_by), plan_for("auto", graph, shard_by)
    assert named_share(tp_plan("megatron"), graph) < ENOUGH_NAMED
    assert styles_in(found, graph) == styles_in(searched, graph)
    assert found.note in shard(graph, "megatron").notes
    # What is asked for layer by layer stays; and so does what is known.
    assert plan_for("dtensor-naive", graph, shard_by) is tp_plan("dtensor-naive")
    assert named_share(tp_plan("megatron"), tiny_llama) == 1
    assert plan_for("megatron", tiny_llama, shard_by) is tp_plan("megatron")


STACKED = """
import torch
from torch import nn

class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.o = nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, 4, 16).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.o(y.transpose(1, 2).reshape(b, t, d))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.head = nn.Embedding(160, 64), nn.Linear(64, 160, bias=False)
        self.layers = nn.ModuleList(Mixer() for _ in range(2))

    def forward(self, ids):
        x = self.e(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

def net():
    return Net()
"""


def test_the_search_finds_heads_behind_stacked_projections(tmp_path: Path) -> None:
    """Seen as [3, heads, dim], a projection is three side by side: columns are cut inside each of them."""
    graph = load(f"{write(tmp_path, 'net.py', STACKED)}:net")
    plan = plan_for("auto", graph, shard_by)
    assert plan.style("layers.*.qkv.weight") is Style.PACKED_COLWISE
    assert plan.style("layers.*.o.weight") is Style.ROWWISE
    assert _collectives(shard_by(graph, plan).region("block0")) == ["all_reduce"] * 2  # one a phase


def _collectives(region: Region) -> list[str]:
    return [n.op for n in region.nodes if n.op in ("all_reduce", "all_gather", "all_to_all") and n.phase != "reduce"
            and getattr(n.attrs, "axis", "") == "tp"]  # fmt: skip


def test_experts_are_split_inside(tiny_mixtral: Graph) -> None:
    plan = plan_for("auto", tiny_mixtral, shard_by)
    assert plan.style("model.layers.*.mlp.experts.gate_up_proj") is Style.PACKED_COLWISE
    assert plan.style("model.layers.*.mlp.experts.down_proj") is Style.ROWWISE


def test_the_degree_behind_auto() -> None:
    assert [degree_of(n) for n in ("auto", "auto:1", "auto:8")] == [2, 2, 8]
    with pytest.raises(PlanError, match="'auto:x': behind auto: stands the tensor-parallel degree"):
        degree_of("auto:x")


def test_styles_have_synonyms() -> None:
    assert style_of("rowwise_rep") is Style.ROWWISE_SPLIT
    assert style_of("moe_tp_experts") is Style.REPLICATE


def test_all_plans_are_one_where_nothing_is_divided() -> None:
    """At tp=1 a rank has the whole model under every plan: one pipeline, whatever plan or sp is named."""
    names = (*TP_PLANS, *MADE_PLANS, "auto:8")
    pipelines = {pipeline_for(Family(tp=False, tp_plan=name, sp=sp)) for name in names for sp in (False, True)}
    assert [str(pipeline) for pipeline in pipelines] == ["accumulate,shard{tp=false},bucket,optimizer,fuse"]


@pytest.mark.parametrize(
    ("name", "message"), [("megatrn", "did you mean 'megatron'"), ("auto:x", "a number"), ("no.yaml", "cannot read")]
)
def test_a_plan_that_is_none_is_refused_where_nothing_is_divided_too(name: str, message: str) -> None:
    with pytest.raises(SlipstickError, match=message):
        pipeline_for(Family(tp=False, tp_plan=name))


def test_a_search_that_takes_too_long_leaves_whole_what_it_has_not_come_to(
    tiny_llama: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstick.passes.sharding.plans.auto.MOST_NODES", 0)
    plan = plan_for("auto", tiny_llama, shard_by)
    assert "matrices it did not come to are whole on each rank" in plan.note
    styles = {style for name, style in styles_in(plan, tiny_llama).items() if name.startswith("lm_head")}
    assert styles == {Style.REPLICATE}
