"""Tensor parallelism as Megatron does it: how many collectives a layer has, of what size, and what is kept.

Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022): tensor parallelism has two
all-reduces a layer and direction; sequence parallelism turns each into a reduce-scatter and an all-gather.
"""

from __future__ import annotations

from collections import Counter

import pytest

from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Graph, Phase, Region, Role
from slipstick.ir.ops import call_of, work_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.placement import DP, REPLICATE, Shard
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.plan.divisibility import check_divisibility
from slipstick.ir.sizes.expr import Expr, symbol
from slipstick.passes.manager import parse_pipeline

MBS, SEQ = symbol("mbs"), symbol("seq")
HIDDEN = MBS * SEQ * (4096 * 2)  # bytes of [mbs, seq, 4096] in bf16
FORWARD, BACKWARD = Phase.FORWARD, Phase.BACKWARD

Messages = Counter[tuple[Phase, str, Expr]]


def shard(graph: Graph, options: str = "") -> Graph:
    return parse_pipeline(f"shard{{{options}}}").run(graph)[0]


def messages(region: Region, axis: str = "tp") -> Messages:
    """Collectives over an axis, weight gradients left out."""
    return Counter(
        (n.phase, n.op, message_bytes(call_of(region, n)))
        for n in region.nodes
        if isinstance(n.attrs, CollectiveAttrs) and n.attrs.axis == axis and n.phase is not Phase.REDUCE
    )


def ring_bytes(found: Messages, n: int = 8) -> Expr:
    """What one rank sends in rings of n: 2 (n-1)/n of the message in an all-reduce, half of that in the others."""
    parts = (size * count * ((2 if op == "all_reduce" else 1) * (n - 1)) for (_, op, size), count in found.items())
    return sum(parts, start=MBS * 0) * (1 / n)


def test_a_layer_has_two_all_reduces_in_each_direction(llama_8b: Graph) -> None:
    layer = shard(llama_8b).region("block0")
    assert messages(layer) == {(FORWARD, "all_reduce", HIDDEN): 2, (BACKWARD, "all_reduce", HIDDEN): 2}


def test_sequence_parallelism_splits_each_into_two_halves(llama_8b: Graph) -> None:
    layer = shard(llama_8b, "sp=true").region("block0")
    assert messages(layer) == {
        (phase, op, HIDDEN): 2 for phase in (FORWARD, BACKWARD) for op in ("all_gather", "reduce_scatter")
    }


def test_sequence_parallelism_sends_the_same_bytes(llama_8b: Graph) -> None:
    plain, sequence = shard(llama_8b), shard(llama_8b, "sp=true")
    for name in ("prologue", "block0"):
        assert ring_bytes(messages(plain.region(name))) != 0
    assert ring_bytes(messages(plain.region("block0"))) == ring_bytes(messages(sequence.region("block0")))


def test_gathering_again_costs_two_gathers_and_keeps_two_inputs_less(llama_8b: Graph) -> None:
    kept, again = (shard(llama_8b, o).region("block0") for o in ("sp=true", "sp=true, regather=true"))
    assert messages(again) - messages(kept) == {(BACKWARD, "all_gather", HIDDEN): 2}
    assert messages(kept) - messages(again) == {}
    # The inputs of attention and MLP are kept in shards instead of whole.
    assert kept.saved_bytes - again.saved_bytes == HIDDEN * 2 - HIDDEN * 2 / symbol("tp")


def test_every_layer_of_megatron_alike(tiny_gpt2: Graph) -> None:
    # GPT-2 has a packed projection and biases: still two and two.
    layer = shard(tiny_gpt2, "sp=true").region("block0")
    assert Counter((p, op) for p, op, _ in messages(layer).elements()) == {
        (phase, op): 2 for phase in (FORWARD, BACKWARD) for op in ("all_gather", "reduce_scatter")
    }


def test_the_loss_reduces_twelve_bytes_a_token(llama_8b: Graph) -> None:
    # Maximum, sum and target logit of a row, in fp32; the logits themselves are never gathered.
    head = shard(llama_8b).region("epilogue")
    assert messages(head) == {(FORWARD, "all_reduce", MBS * SEQ * 12): 1, (BACKWARD, "all_reduce", HIDDEN): 1}


def test_the_table_reduces_what_it_looked_up(llama_8b: Graph) -> None:
    table = shard(llama_8b).region("prologue")
    assert messages(table) == {(FORWARD, "all_reduce", HIDDEN): 1}


def test_each_module_by_itself_reduces_five_gradients_a_layer(llama_8b: Graph) -> None:
    layer = shard(llama_8b, 'tp_plan="dtensor-naive"').region("block0")
    assert messages(layer) == {(FORWARD, "all_reduce", HIDDEN): 2, (BACKWARD, "all_reduce", HIDDEN): 5}


@pytest.mark.parametrize("options", ["", "sp=true", 'tp_plan="dtensor"', 'tp_plan="dtensor-naive"'])
def test_no_activation_crosses_replicas(tiny: Graph, options: str) -> None:
    for region in shard(tiny, options).regions:
        assert messages(region, axis="dp") == {}


@pytest.mark.parametrize("options", ["", "sp=true"])
def test_replicas_hold_parts_of_the_batch_and_whole_weights(tiny: Graph, options: str) -> None:
    for region in shard(tiny, options).regions:
        for v in region.values:
            if v.role is Role.PARAM:
                assert v.placement(DP) == REPLICATE
            if v.role is Role.INPUT:
                assert v.placement(DP) == Shard(0)
            # The symbol of the batch has gone into the micro-batch of one replica.
            assert not {"dp", "batch"} & {s for d in v.type.dims for s in getattr(d, "symbols", ())}


@pytest.mark.parametrize("options", ["", "sp=true", "sp=true, regather=true", 'tp_plan="dtensor", sp=true',
                                     'tp_plan="dtensor-naive"'])  # fmt: skip
def test_on_one_rank_nothing_changes(tiny: Graph, options: str) -> None:
    graph = shard(tiny, options)
    sizes = {"batch": 3.0, "mbs": 3.0, "seq": 16.0, "tp": 1.0, "dp": 1.0}
    for before, after in zip(tiny.regions, graph.regions, strict=True):
        for phase in (FORWARD, BACKWARD):
            assert _work(before, phase, sizes) == _work(after, phase, sizes)
        assert float(before.saved_bytes.evaluate(sizes)) == float(after.saved_bytes.evaluate(sizes))


def _work(region: Region, phase: Phase, sizes: dict[str, float]) -> tuple[float, float, float]:
    works = [work_of(region, n) for n in region.nodes if n.phase is phase]
    flops, vector, moved = (
        [w.tensor_flops for w in works],
        [w.vector_flops for w in works],
        [w.num_bytes for w in works],
    )
    tensor_flops, vector_flops, num_bytes = (
        sum(float(e.evaluate(sizes)) for e in part) for part in (flops, vector, moved)
    )
    return tensor_flops, vector_flops, num_bytes


def test_what_a_degree_must_divide_is_written_down(llama_8b: Graph) -> None:
    found = {(str(c.dim), c.axis) for c in shard(llama_8b, "sp=true").constraints}
    assert found == {(d, "tp") for d in ("128256", "seq", "14336", "32", "8")}


@pytest.mark.parametrize(
    ("tp", "said"),
    [
        (3, "tp=3 does not divide the 8 key-value heads"),
        (12, "tp=12 is no multiple of the 8 key-value heads"),
        (64, "tp=64 is more than the 32 heads"),
    ],
)
def test_a_degree_that_does_not_suit_the_heads_is_reported(llama_8b: Graph, tp: int, said: str) -> None:
    plan = make_plan(num_gpus=tp, tp=tp, seq_len=tp * 512, family=Family())
    with pytest.raises(PlanError) as caught:
        check_divisibility(shard(llama_8b), plan)
    assert str(caught.value) == f"{said} of model.layers.*.self_attn; legal tp: 1, 2, 4, 8, 16, 32"


def test_a_degree_that_divides_is_not_reported(llama_8b: Graph) -> None:
    graph = shard(llama_8b, "sp=true")
    for tp in (1, 2, 4, 8):
        check_divisibility(graph, make_plan(num_gpus=8, tp=tp, seq_len=2048, family=Family(sp=True)))
