"""What pipeline stages exchange: sizes under every kind of sharding."""

from dataclasses import replace
from pathlib import Path

import pytest

from slipstick.driver.estimate import lower
from slipstick.frontend import load
from slipstick.ir.errors import UsageError
from slipstick.ir.graph import Graph, Phase, Port, Region, Role, Run
from slipstick.ir.ops import call_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.plan import Family
from slipstick.ir.plan.layout.stages import BOUNDARY, SHARED
from slipstick.ir.sizes.expr import Expr, as_expr, symbol
from slipstick.passes.manager import parse_pipeline

STACKS = Path(__file__).parent.parent / "data" / "stacks.py"
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
    graph = lower(tiny_gpt2, Family(pp=True)).graph
    found = sent(graph.region(SHARED))
    assert graph.schedule[-1] == Run((SHARED, "prologue", "epilogue"), 0)
    # 160 words of 64, summed in fp32, split over the vocabulary.
    assert found["reduce"] == [as_expr(160 * 64 * 4) / TP]


def test_each_message_is_sent_and_received(tiny_mixtral: Graph) -> None:
    region = lower(tiny_mixtral, Family(pp=True)).graph.region(BOUNDARY)
    assert [n.op for n in region.nodes] == ["send", "recv"] * 2


def test_a_message_arrives_in_a_tensor_of_its_own_and_says_what_it_is(tiny_gpt2: Graph) -> None:
    graph = lower(tiny_gpt2, Family(pp=True)).graph
    # Activations and their gradients, and the gradient of the table that both ends share.
    for name, storages, end in (
        (BOUNDARY, [2, 5], "between stages"),
        (SHARED, [2], "of which several stages hold a copy"),
    ):
        region = graph.region(name)
        assert sorted(v.id for v in region.values) == list(range(3 * len(storages)))
        assert sorted(region.by_id[n.key].storage for n in region.nodes if n.op == "recv") == storages
        assert all(region.by_id[n.key].storage == n.inputs[0] for n in region.nodes if n.op == "send")
        why = [n.attrs.why for n in region.nodes if isinstance(n.attrs, CollectiveAttrs)]
        assert why[::2] == why[1::2]
        assert all(word.endswith(end) for word in why)


def elements(graph: Graph, phase: Phase, **sizes: float) -> list[float]:
    """What crosses each border, of one sequence of one token, in front of each layer and behind the last."""
    names = next(run.regions for run in graph.schedule if run.regions[0] == BOUNDARY)
    regions = [graph.region(name) for name in names]
    env = {"mbs": 1.0, "seq": 1.0, "tp": 1.0, **sizes}
    return [
        sum(float(r.by_id[n.key].type.numel.evaluate(env)) for n in r.nodes if n.op == "recv" and n.phase is phase)
        for r in regions
    ]


def test_what_later_layers_read_crosses_every_stage_between(tiny_gemma3n: Graph) -> None:
    """Of six layers the last two read keys and values [b, 2, s, 16] of layers 2 and 3, and each 16 of the embedding."""
    graph = lower(tiny_gemma3n, Family(tp=False, pp=True)).graph
    streams, keys_and_values = 4 * 64, 2 * 2 * 16
    wanted = [streams + 16 * (6 - k) + keys_and_values * ((2 < k <= 5) + (3 < k <= 4)) for k in range(7)]
    assert elements(graph, Phase.FORWARD) == wanted


def stack(name: str) -> Graph:
    return load(f"{STACKS}:{name}")


def test_what_goes_down_crosses_until_it_is_read_on_the_way_up() -> None:
    """Three layers down, five between and three up, 32 wide: behind the k-th way down there are k skips.

    The newest of them is what goes on as well. What is put together for a layer on the way up, twice as wide, is made
    behind the layer before.
    """
    graph = lower(stack("UNet"), Family(pp=True)).graph
    wanted = [32, 32, 64, 96, *[32 + 96] * 4, 64 + 64, 64 + 32, 64, 32]
    assert elements(graph, Phase.FORWARD) == wanted
    # The gradient of a skip comes back from where it is read, beside that of what goes on.
    assert elements(graph, Phase.BACKWARD)[3:9] == [96, *[32 + 96] * 4, 64 + 64]


def test_what_an_early_stack_made_goes_on_through_all_layers_that_read_it() -> None:
    """Five layers of the second tower each read what the four of the first one made in the end."""
    lowered = lower(stack("Towers"), Family(pp=True))
    assert elements(lowered.graph, Phase.FORWARD) == [32] * 5 + [64] * 5


def test_layers_that_share_weights_add_up_gradients_on_all_stages_that_hold_them() -> None:
    """Eight runs of one layer: a norm of 32, a matrix 32 to 64 and one back, with their biases, in fp32."""
    graph = lower(stack("OneLayer"), Family(pp=True)).graph
    found = sent(graph.region(SHARED))["reduce"]
    assert sum(float(e.evaluate({"tp": 1.0})) for e in found) == 4 * (2 * 32 + 32 * 64 + 64 + 64 * 32 + 32)
    assert graph.schedule[-1] == Run((SHARED, "block0", "block1", "block2"), 0)


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
