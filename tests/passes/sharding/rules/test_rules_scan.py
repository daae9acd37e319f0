"""Scans and convolutions over mesh axes: heads and channels over tp, batch over dp, heads for positions over cp."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.ir.graph import Graph, Node, Phase, Region
from slipstick.ir.ops import op_def, work_of
from slipstick.ir.ops.base import OpCall, OpClass
from slipstick.ir.ops.collectives import CollectiveAttrs
from slipstick.ir.ops.tensors.conv import ConvAttrs
from slipstick.ir.placement import CP, DP, PARTIAL, REPLICATE, TP, Shard
from slipstick.ir.sizes.expr import Expr
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.types import DType, TensorType
from slipstick.passes.manager import parse_pipeline
from slipstick.passes.sharding.annotate import source_placements
from slipstick.passes.sharding.ask import Ask, Placement
from slipstick.passes.sharding.plans.plans import tp_plan
from slipstick.tests.passes.sharding.rules.answers import answer_for

DEGREES = st.sampled_from([1, 2, 4, 8])
BLOCK = "block0"


def shard(graph: Graph, options: str) -> Graph:
    return parse_pipeline(f"shard{{{options}}}").run(graph)[0]


@pytest.fixture(scope="module")
def mamba(traced: Callable[[str], Graph]) -> Graph:
    """Two layers, hidden 64, 8 heads of 16, states of 32, 2 groups of B and C."""
    return traced("tiny-mamba2.train")


@pytest.fixture(scope="module")
def sharded(mamba: Graph) -> Graph:
    return shard(mamba, "")


def nodes(graph: Graph, op: str) -> list[tuple[Region, Node]]:
    region = graph.region(BLOCK)
    return [(region, n) for n in region.nodes if n.op == op]


def flops(graph: Graph, kind: OpClass, **sizes: int) -> float:
    env = {"dp": 1.0, "tp": 1.0, "mbs": 2.0, "seq": 256.0, **{k: float(v) for k, v in sizes.items()}}
    env["batch"] = env["mbs"] * env["dp"]

    def at(e: Expr) -> float:
        return float(e.evaluate(env))

    found = [(r, n) for r in graph.regions for n in r.nodes if op_def(n.op).kind is kind]
    works = [(graph.counts[r.name], work_of(r, n)) for r, n in found]
    return sum(count * (at(w.tensor_flops) + at(w.vector_flops)) for count, w in works)


@given(tp=st.sampled_from([1, 2]), dp=DEGREES)
def test_ranks_scan_together_what_the_model_scans(mamba: Graph, sharded: Graph, tp: int, dp: int) -> None:
    """Up to as many ranks as groups, which score once each: nothing is lost and nothing repeated."""
    whole = flops(mamba, OpClass.SCAN, dp=dp)
    assert flops(sharded, OpClass.SCAN, tp=tp, dp=dp) * tp * dp == pytest.approx(whole, rel=1e-12)


@given(tp=DEGREES, dp=DEGREES)
def test_ranks_convolve_together_what_the_model_convolves(mamba: Graph, sharded: Graph, tp: int, dp: int) -> None:
    whole = flops(mamba, OpClass.CONV, dp=dp)
    assert flops(sharded, OpClass.CONV, tp=tp, dp=dp) * tp * dp == pytest.approx(whole, rel=1e-12)


def test_heads_and_channels_lie_over_tp(sharded: Graph) -> None:
    region, node = nodes(sharded, "scan")[0]
    assert [region.by_id[i].placement(TP) for i in node.inputs] == [*[Shard(2)] * 4, *[Shard(0)] * 3]
    assert [region.by_id[o].placement(TP) for o in node.outputs] == [Shard(2), Shard(1)]
    region, node = nodes(sharded, "conv")[0]
    assert [region.by_id[i].placement(TP) for i in node.inputs] == [Shard(1, True), Shard(0, True), Shard(0, True)]


def test_a_layer_has_one_sum_over_tp_each_way(sharded: Graph) -> None:
    """Projections by columns and rows; the norm before the last runs over groups, which ranks have whole."""
    found = [n for _, n in nodes(sharded, "all_reduce") if isinstance(n.attrs, CollectiveAttrs)]
    layer = [n for n in found if n.attrs.axis == "tp" and n.phase in (Phase.FORWARD, Phase.BACKWARD)]  # type: ignore[attr-defined]
    assert [n.phase for n in layer] == [Phase.FORWARD, Phase.BACKWARD]


def test_gradients_of_what_all_tokens_share_are_partial_over_dp(sharded: Graph) -> None:
    region, node = nodes(sharded, "scan_bwd")[0]
    placements = [region.by_id[o].placement(DP) for o in node.outputs]
    assert placements == [*[Shard(0)] * 4, *[PARTIAL] * 3]


def test_one_group_of_b_and_c_is_whole_on_each_rank(traced: Callable[[str], Graph]) -> None:
    graph = shard(traced("tiny-bamba.decode"), "")
    region, node = next((r, n) for r in graph.regions for n in r.nodes if n.op == "scan")
    assert [region.by_id[i].placement(TP) for i in node.inputs[:3]] == [Shard(2), REPLICATE, REPLICATE]
    states = [v for v in region.values if v.name == "cache.*.state"]
    assert [v.placement(TP) for v in states] == [Shard(1)]


def test_context_parallelism_exchanges_positions_for_heads(mamba: Graph) -> None:
    """The sequence of a scan is whole: an all-to-all there and one back, as Megatron-LM's Mamba does."""
    graph = shard(mamba, 'cp="ring"')
    region, node = nodes(graph, "scan")[0]
    assert region.by_id[node.inputs[0]].placement(CP) == Shard(2)
    assert region.by_id[node.inputs[0]].type.dims[1] == mamba.region(BLOCK).by_id[node.inputs[0]].type.dims[1]
    exchanged = [n for _, n in nodes(graph, "all_to_all")]
    there_and_back = 2 * (4 + 1)  # values, B, C and steps; the result: forward, and as many gradients backward
    assert len(exchanged) == there_and_back


@pytest.mark.parametrize("reads_bias", [False, True])
def test_gradients_of_weight_and_bias_add_up_over_the_batch_without_one_of_the_data(reads_bias: bool) -> None:
    """The first convolution of a spectrogram: its input needs no gradient, and torch does not hand the bias back."""
    x, weight, y, bias = (TensorType(d, DType.BF16) for d in ((4, 80, 30), (64, 80, 3), (4, 64, 30), (64,)))
    inputs = (y, x, weight, *([bias] if reads_bias else []))
    call = OpCall("conv_bwd", ConvAttrs((1,), (1,), (1,)), inputs, (weight, bias))
    given: tuple[Placement, ...] = (Shard(0), Shard(0), *(REPLICATE for _ in inputs[2:]))
    answer = answer_for(
        "conv_bwd", Ask("dp", call, given, (False,) * len(given), (REPLICATE,) * len(given), Phase.BACKWARD)
    )
    assert answer.inputs == given
    assert answer.outputs == (PARTIAL, PARTIAL)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("weight", [REPLICATE, Shard(0), Shard(0, packed=True)])
def test_a_rank_has_the_taps_of_its_own_channels(packed: bool, weight: Placement) -> None:
    """Rows of the weight are channels: packed as the input is, however the weight lies at rest."""
    x, taps = TensorType((4, 64, 30), DType.BF16), TensorType((64, 1, 3), DType.BF16)
    call = OpCall("conv", ConvAttrs((1,), (1,), (1,)), (x, taps), (x,))
    answer = answer_for(
        "conv", Ask("tp", call, (Shard(1, packed), weight), (False, True), (REPLICATE,) * 2, Phase.FORWARD)
    )
    assert answer.inputs == (Shard(1, packed), Shard(0, packed))
    assert answer.outputs == (Shard(1, packed),)


CHANNELS = """slipstick.graph 1
graph "convolved" prefill bf16
schedule layer
region layer
  %0 = input "x" : bf16[4, 96, 30]
  %1 = param "layers.*.mixer.conv1d.weight" : bf16[96, 1, 3]
  %2 = conv(%0, %1) {stride=[1], padding=[1], dilation=[1]} : bf16[4, 96, 30]
  %3 = elementwise(%2) {fns=["silu"]} : bf16[4, 96, 30]
  %4 = permute(%3) {dims=[0, 2, 1]} : bf16[4, 30, 96] ~3
  %5 = LAST
  out "result0" = %5
end
"""


@pytest.mark.parametrize(
    ("last", "packed"),
    [
        ("slice(%4) {dim=2, start=0} : bf16[4, 30, 64] ~3", True),  # Mamba-2: x, B and C side by side
        ('elementwise(%4) {fns=["exp"]} : bf16[4, 30, 96]', False),  # Mamba-1 convolves x alone
    ],
)
def test_channels_of_a_convolution_are_packed_where_they_are_several_tensors(last: str, packed: bool) -> None:
    (region,) = parse_graph(CHANNELS.replace("LAST", last)).regions
    assert source_placements(region, tp_plan("megatron"))[1][TP] == Shard(0, packed)
