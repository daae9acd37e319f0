"""Pipelines of passes: their text, what they check, where they stop, and what they say when something is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.ir.errors import InternalError, UnknownNameError, UnsupportedOpError, UsageError, VerifyError
from slipstick.ir.graph import Graph, Node, Region
from slipstick.ir.verify import problems
from slipstick.passes.base import Pass, PassResult
from slipstick.passes.bucket import Bucket
from slipstick.passes.fusion.fuse import Fuse
from slipstick.passes.manager import PASSES, PassPipeline, parse_pipeline, pass_class
from slipstick.passes.optimizer import Accumulate, Optimizer
from slipstick.passes.sharding.plans.plans import TP_PLANS, Style, tp_plan
from slipstick.passes.sharding.rules import rule_for
from slipstick.passes.sharding.shard import ShardPass

SHARDS = st.builds(ShardPass, st.sampled_from(sorted(TP_PLANS)), st.booleans(), st.booleans())
SIMPLE = st.sampled_from([Bucket(), Fuse(), Optimizer(), Accumulate(), Accumulate("bf16")])


@given(st.lists(st.one_of(SHARDS, SIMPLE)))
def test_text_round_trip(passes: list[Pass]) -> None:
    pipeline = PassPipeline(tuple(passes))
    assert parse_pipeline(str(pipeline)) == pipeline


@pytest.mark.parametrize(
    "text", ["", "fuse", " shard { } , fuse ".replace(" { }", "{}"), 'shard{tp_plan="dtensor", sp=true},bucket,fuse']
)
def test_what_is_written_by_hand_is_read(text: str) -> None:
    pipeline = parse_pipeline(text)
    assert parse_pipeline(str(pipeline)) == pipeline


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("shrad,fuse", UnknownNameError, "unknown pass 'shrad'; did you mean 'shard'?"),
        ("shard{seq=true}", UsageError, "pass 'shard': .*seq=true"),
        ("shard{sp=yes}", UsageError, "pass 'shard': .*allowed: true, false"),
        ("shard{sp=true", UsageError, "cannot read 'shard{sp=true' as passes"),
        ("fuse;shard", UsageError, "cannot read 'fuse;shard' as passes"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        parse_pipeline(text)


def test_an_unknown_plan_is_named_with_the_nearest(tiny_llama: Graph) -> None:
    with pytest.raises(UnknownNameError, match="plan 'megatorn'; did you mean 'megatron'"):
        parse_pipeline('shard{tp_plan="megatorn"}').run(tiny_llama)


@pytest.mark.parametrize("name", sorted(PASSES))
def test_every_pass_has_the_name_it_is_listed_under(name: str) -> None:
    assert pass_class(name).name == name
    assert pass_class(name).__doc__


def test_it_stops_behind_the_pass_named(tiny_llama: Graph) -> None:
    pipeline = parse_pipeline("accumulate,shard,bucket,fuse")
    graph, times = pipeline.run(tiny_llama, stop_after="shard")
    assert [t.name for t in times] == ["accumulate", "shard"]
    assert graph == parse_pipeline("accumulate,shard").run(tiny_llama)[0]


def test_it_stops_nowhere_else(tiny_llama: Graph) -> None:
    with pytest.raises(UnknownNameError, match="unknown pass in the pipeline 'optimizer'"):
        parse_pipeline("shard,fuse").run(tiny_llama, stop_after="optimizer")


def test_every_result_is_handed_out(tiny_llama: Graph) -> None:
    seen: list[tuple[int, str, Graph]] = []
    graph, times = parse_pipeline("accumulate,shard,fuse").run(
        tiny_llama, dump=lambda number, step, after: seen.append((number, step.name, after))
    )
    assert [(number, name) for number, name, _ in seen] == [(0, "accumulate"), (1, "shard"), (2, "fuse")]
    assert seen[-1][2] is graph
    assert [t.name for t in times] == ["accumulate", "shard", "fuse"]
    assert all(t.changed and t.time_s >= 0 for t in times)


def test_no_passes_change_nothing(tiny_llama: Graph) -> None:
    assert parse_pipeline("").run(tiny_llama) == (tiny_llama, [])


def test_a_graph_is_sharded_once(tiny_llama: Graph) -> None:
    with pytest.raises(UsageError, match="sharded already"):
        parse_pipeline("shard,shard").run(tiny_llama)


class Breaks(Pass):
    """Drops the first node of every region."""

    __slots__ = ()
    name = "breaks"

    def apply(self, graph: Graph) -> PassResult:
        return PassResult(graph.with_regions(tuple(replace(r, nodes=r.nodes[1:]) for r in graph.regions)), changed=True)


class Lies(Pass):
    """Says that it changed nothing."""

    __slots__ = ()
    name = "lies"

    def apply(self, graph: Graph) -> PassResult:
        return PassResult(replace(graph, name="other"), changed=False)


class Refuses(Pass):
    """Promises what it does not keep."""

    __slots__ = ()
    name = "refuses"

    def apply(self, graph: Graph) -> PassResult:
        return PassResult(graph, changed=False)

    def ensures(self, graph: Graph) -> None:
        raise InternalError(f"graph '{graph.name}' is not as promised")


def test_a_broken_graph_names_the_pass_that_broke_it(tiny_llama: Graph) -> None:
    with pytest.raises(VerifyError, match=r"after pass 'breaks' breaks .* rule") as caught:
        PassPipeline((Fuse(), Breaks(), Fuse())).run(tiny_llama)
    assert "is made by no node" in str(caught.value)


def test_a_pass_that_lies_is_caught(tiny_llama: Graph) -> None:
    with pytest.raises(InternalError, match="pass 'lies' says it changed nothing"):
        PassPipeline((Lies(),)).run(tiny_llama)


def test_a_promise_is_checked(tiny_llama: Graph) -> None:
    with pytest.raises(InternalError, match="not as promised"):
        PassPipeline((Refuses(),)).run(tiny_llama)


def test_an_op_without_a_rule_is_refused_with_its_module() -> None:
    with pytest.raises(UnsupportedOpError, match=r"op 'quantise' at 'model\.stem' has no sharding rule"):
        rule_for("quantise", "model.stem")


@pytest.mark.parametrize(
    ("parameter", "style"),
    [
        ("model.layers.*.self_attn.q_proj.weight", Style.COLWISE),
        ("transformer.h.*.attn.c_attn.bias", Style.PACKED_COLWISE),
        ("model.layers.*.mlp.experts.gate_up_proj", Style.PACKED_COLWISE),
        ("model.layers.*.mlp.experts.down_proj", Style.ROWWISE),
        ("model.layers.*.self_attn.sinks", Style.PER_HEAD),
        ("model.embed_tokens.weight", Style.EMBEDDING),
        ("lm_head.weight", Style.COLWISE),
        ("model.norm.weight", Style.REPLICATE),
        ("model.layers.*.mlp.gate.weight", Style.REPLICATE),
    ],
)
def test_styles_of_megatron(parameter: str, style: Style) -> None:
    assert tp_plan("megatron").style(parameter) is style


@pytest.mark.parametrize("workload_graph", ["tiny_llama", "tiny_gpt2", "tiny_mixtral"])
@pytest.mark.parametrize("plan", sorted(TP_PLANS))
def test_every_plan_shards_every_model(workload_graph: str, plan: str, request: pytest.FixtureRequest) -> None:
    graph = request.getfixturevalue(workload_graph)
    assert isinstance(graph, Graph)
    for sp in ("false", "true"):
        pipeline = f'accumulate,shard{{tp_plan="{plan}", sp={sp}}},bucket,optimizer,fuse'
        after = parse_pipeline(pipeline).run(graph)[0]
        assert list(problems(after)) == []
        assert after.axes == ("dp", "tp")
        assert _belong(after.regions)


def _belong(regions: tuple[Region, ...]) -> bool:
    """Whether backward nodes still know their forward nodes."""
    links: list[tuple[Region, Node]] = [(r, n) for r in regions for n in r.nodes if n.forward is not None]
    return bool(links) and all(n.forward in r.producer for r, n in links)
