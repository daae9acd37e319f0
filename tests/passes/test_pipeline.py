"""What pipeline stages exchange: sizes under every kind of sharding."""

from dataclasses import replace

import pytest

from slipstick.driver import lower, pipeline_for
from slipstick.ir.errors import UsageError
from slipstick.ir.expr import Expr, as_expr, symbol
from slipstick.ir.graph import Graph, Port, Region, Role, Run
from slipstick.ir.ops import call_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.plan import Family
from slipstick.ir.stages import BOUNDARY
from slipstick.passes.manager import parse_pipeline

MBS, SEQ, TP, CP = (symbol(s) for s in ("mbs", "seq", "tp", "cp"))
HIDDEN = MBS * SEQ * (64 * 2)  # bf16, hidden 64


def sent(region: Region) -> dict[str, list[Expr]]:
    found: dict[str, list[Expr]] = {}
    for node in region.nodes:
        if node.op == "send":
            found.setdefault(str(node.phase), []).append(message_bytes(call_of(region, node)))
    return found


@pytest.mark.parametrize(
    ("family", "size"),
    [
        (Family(pp=True), HIDDEN),
        (Family(pp=True, sp=True), HIDDEN / TP),
        (Family(pp=True, cp="allgather"), HIDDEN / CP),
        (Family(pp=True, sp=True, cp="ring"), HIDDEN / CP / TP),
        (Family(pp=True, zero=3, recompute="full"), HIDDEN),
    ],
)
def test_activations_go_on_and_their_gradients_back(tiny_llama: Graph, family: Family, size: Expr) -> None:
    assert sent(lower(tiny_llama, family).graph.region(BOUNDARY)) == {"forward": [size], "backward": [size]}


def test_pieces_go_on_where_all_ranks_have_the_same(tiny_llama: Graph) -> None:
    region = lower(tiny_llama, Family(pp=True, scatter_p2p=True)).graph.region(BOUNDARY)
    assert sent(region) == {"forward": [HIDDEN / TP], "backward": [HIDDEN / TP]}
    gathers = [n for n in region.nodes if n.op == "all_gather"]
    assert [message_bytes(call_of(region, n)) for n in gathers] == [HIDDEN, HIDDEN]
    # Under sequence parallelism every rank has a shard of its own.
    shards = lower(tiny_llama, Family(pp=True, sp=True, scatter_p2p=True)).graph.region(BOUNDARY)
    assert [n.op for n in shards.nodes] == ["send", "recv"] * 2


def test_a_tied_matrix_is_kept_equal_on_both_ends(tiny_gpt2: Graph) -> None:
    found = sent(lower(tiny_gpt2, Family(pp=True)).graph.region(BOUNDARY))
    # 160 words of 64, summed in fp32, split over the vocabulary.
    assert found["reduce"] == [as_expr(160 * 64 * 4) / TP]


def test_each_message_is_sent_and_received(tiny_mixtral: Graph) -> None:
    region = lower(tiny_mixtral, Family(pp=True)).graph.region(BOUNDARY)
    assert [n.op for n in region.nodes] == ["send", "recv"] * 2


def test_a_message_arrives_in_a_tensor_of_its_own_and_says_what_it_is(tiny_gpt2: Graph) -> None:
    region = lower(tiny_gpt2, Family(pp=True)).graph.region(BOUNDARY)
    # Activations, their gradients and those of the table that both ends share.
    assert sorted(v.id for v in region.values) == list(range(9))
    assert sorted(region.by_id[n.key].storage for n in region.nodes if n.op == "recv") == [2, 5, 8]
    assert all(region.by_id[n.key].storage == n.inputs[0] for n in region.nodes if n.op == "send")
    why = [n.attrs.why for n in region.nodes if isinstance(n.attrs, CollectiveAttrs)]
    assert why[::2] == why[1::2]
    assert [word.endswith("between stages") for word in why[::2]] == [True, True, False]
    assert "which first and last stage share" in why[-1]


def test_what_later_layers_read_crosses_every_stage_between(tiny_gemma3n: Graph) -> None:
    """Four streams of the hidden state, and keys and values [b, 2, s, 16] of a sliding and of a full layer."""
    family = Family(pp=True)
    found = sent(lower(tiny_gemma3n, family, pipeline_for(family, divided=False)).graph.region(BOUNDARY))
    streams, heads = HIDDEN * 4, MBS * SEQ * (2 * 16 * 2)
    # The rule of sharding keeps one copy a data-parallel rank.
    sizes = sorted(float(e.evaluate({"mbs": 2, "seq": 8, "tp": 1, "dp": 1, "ceil_2_tp": 2})) for e in found["forward"])
    one, four = (float(e.evaluate({"mbs": 2, "seq": 8})) for e in (heads, streams))
    assert sizes == [one] * 4 + [four]


def test_one_stage_is_no_pipeline(tiny_llama: Graph) -> None:
    graph = lower(tiny_llama, Family()).graph
    assert BOUNDARY not in graph.by_name
    assert lower(tiny_llama, Family(pp=True)).graph.counts == {**graph.counts, BOUNDARY: 0}


@pytest.mark.parametrize(
    ("text", "why"), [("pipeline,shard", "belongs behind 'shard'"), ("shard,pipeline,pipeline", "its stages already")]
)
def test_stages_are_made_once_and_behind_shard(tiny_llama: Graph, text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_pipeline(text).run(tiny_llama)


def renamed(region: Region, name: str, read: dict[str, str], made: dict[str, str]) -> Region:
    """The region under another name, with other names for ports that it reads and for those that it makes."""
    values = tuple(replace(v, name=read.get(v.name, v.name)) if v.role is Role.PORT else v for v in region.values)
    outputs = tuple(Port(made.get(p.name, p.name), p.value) for p in region.outputs)
    return replace(region, name=name, values=values, outputs=outputs)


def test_a_last_layer_of_a_kind_of_its_own_sends_its_gradient_back(tiny_llama: Graph) -> None:
    # prologue, block0, block0, last, epilogue: what the last layer reads in the backward phase no layer makes; what it
    # makes there block0 reads, so that a cut in front of it is crossed both ways.
    prologue, block, epilogue = tiny_llama.regions
    state = next(p.name for p in block.outputs if p.name.startswith("x"))
    grad = next(p.name for p in block.outputs if p.name.startswith("d"))
    last = renamed(block, "last", {grad: "d_last"}, {state: "x_last"})
    end = renamed(epilogue, "epilogue", {state: "x_last"}, {grad: "d_last"})
    schedule = (Run(("prologue",)), Run(("block0",), 2), Run(("last",)), Run(("epilogue",)))
    graph = replace(tiny_llama, regions=(prologue, block, last, end), schedule=schedule)
    found = sent(lower(graph, Family(pp=True)).graph.region(BOUNDARY))
    assert found == {"forward": [HIDDEN], "backward": [HIDDEN]}
