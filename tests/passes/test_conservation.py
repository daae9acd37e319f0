"""What all ranks do together is what the model does: nothing is lost by sharding, and only what is said is repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.ir.graph import Graph, Node, Phase, Region, Role
from slipstick.ir.ops import op_def, work_of
from slipstick.ir.ops.base import OpClass
from slipstick.ir.placement import TP, Shard
from slipstick.ir.sizes.expr import Expr
from slipstick.passes.manager import parse_pipeline

PRODUCTS = (OpClass.MATMUL, OpClass.ATTENTION, OpClass.EXPERTS)
DEGREES = st.sampled_from([1, 2, 4, 8])
Sizes = Mapping[str, float]


def shard(graph: Graph, options: str) -> Graph:
    return parse_pipeline(f"shard{{{options}}}").run(graph)[0]


@dataclass(frozen=True, repr=False)
class Case:
    """A model before and after sharding. Without a long repr: hypothesis prints the arguments of a test."""

    model: Graph
    sharded: Graph
    sp: bool


@pytest.fixture(scope="module", params=["llama_8b", "tiny_gpt2", "tiny_mixtral"])
def model(request: pytest.FixtureRequest) -> Graph:
    graph = request.getfixturevalue(request.param)
    assert isinstance(graph, Graph)
    return graph


@pytest.fixture(scope="module", params=["", "sp=true"])
def case(model: Graph, request: pytest.FixtureRequest) -> Case:
    return Case(model, shard(model, request.param), bool(request.param))


def sizes(tp: int, dp: int, micro_batch: int, seq: int) -> Sizes:
    return {"tp": tp, "dp": dp, "mbs": micro_batch, "seq": seq, "batch": micro_batch * dp}


def value(e: Expr, at: Sizes) -> float:
    return float(e.evaluate({k: float(v) for k, v in at.items()}))


def router_copies(node: Node, case: Case, tp: int) -> int:
    """How many ranks of a group do the same for a router: it chooses experts for whole tokens.

    Under sequence parallelism the tokens are still sharded when it scores them; the scores' gradients are whole.
    """
    if not node.scope.endswith(".mlp.gate"):
        return 1
    return 1 if case.sp and node.phase is Phase.FORWARD else tp


def head_copies(name: str, case: Case, tp: int) -> int:
    """How many ranks of a group hold a copy of each key-value head: 8 heads of llama-3.1-8b, 2 of tiny-mixtral."""
    num_heads = {"llama-3.1-8b": 8, "tiny-mixtral": 2}.get(case.model.name, tp)
    return max(1, tp // num_heads) if ".k_proj" in name or ".v_proj" in name else 1


def product_flops(graph: Graph, at: Sizes, copies: Callable[[Node], int]) -> Counter[str]:
    """FLOPs on the tensor units by class of op, without copies."""
    found: Counter[str] = Counter()
    for region in graph.regions:
        for node in region.nodes:
            if (kind := op_def(node.op).kind) in PRODUCTS:
                flops = value(work_of(region, node).tensor_flops, at) * graph.counts[region.name]
                found[kind] += round(flops / copies(node))
    return found


@given(tp=DEGREES, dp=DEGREES, micro_batch=st.integers(1, 4), seq=st.sampled_from([64, 512, 8192]))
def test_all_ranks_together_multiply_as_much_as_the_model(
    case: Case, tp: int, dp: int, micro_batch: int, seq: int
) -> None:
    at = sizes(tp, dp, micro_batch, seq)
    local = product_flops(
        case.sharded, at, lambda node: router_copies(node, case, tp) * head_copies(node.scope, case, tp)
    )
    whole = product_flops(case.model, at, lambda _: 1)
    assert {kind: n * tp * dp for kind, n in local.items()} == pytest.approx(whole, rel=1e-9)


@given(tp=DEGREES, dp=DEGREES)
def test_all_ranks_together_hold_each_split_parameter_once(case: Case, tp: int, dp: int) -> None:
    at = sizes(tp, dp, 1, 64)
    for before, after in zip(case.model.regions, case.sharded.regions, strict=True):
        whole = {v.name: value(v.type.num_bytes, at) for v in before.of_role(Role.PARAM)}
        for v in after.of_role(Role.PARAM):
            copies = head_copies(v.name, case, tp) if isinstance(v.placement(TP), Shard) else tp
            assert value(v.type.num_bytes, at) * tp == whole[v.name] * copies


def test_what_is_whole_on_every_rank_are_norms_routers_positions_and_biases_of_rows(case: Case) -> None:
    params = [v for r in case.sharded.regions for v in r.of_role(Role.PARAM)]
    whole = {v.name for v in params if not isinstance(v.placement(TP), Shard)}
    tails = ("norm.weight", "ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias", "ln_f.weight", "ln_f.bias",
             "mlp.gate.weight", "wpe.weight", "c_proj.bias")  # fmt: skip
    assert {name for name in whole if not name.endswith(tails)} == set()


def row_work(graph: Graph, at: Sizes) -> float:
    """Bytes that norms move."""
    nodes = [(r, n) for r in graph.regions for n in r.nodes if op_def(n.op).kind is OpClass.NORM]
    return sum(value(work_of(r, n).num_bytes, at) * graph.counts[r.name] for r, n in nodes)


def test_norms_are_repeated_on_every_rank_and_under_sequence_parallelism_shared(llama_8b: Graph) -> None:
    at = sizes(8, 1, 1, 8192)
    whole, repeated, shared = (row_work(g, at) for g in (llama_8b, shard(llama_8b, ""), shard(llama_8b, "sp=true")))
    assert repeated == whole
    # The weights are whole on every rank, and small beside 8192 rows.
    assert shared == pytest.approx(whole / 8, rel=1e-3)


@given(dp=DEGREES, micro_batch=st.integers(1, 4))
def test_a_replica_keeps_its_part_of_the_batch(case: Case, dp: int, micro_batch: int) -> None:
    at = sizes(1, dp, micro_batch, 64)
    # What does not depend on the batch, the rotary table for one, is the same for any.
    fixed = value(case.model.saved_bytes, {**at, "batch": 0.0})
    whole = value(case.model.saved_bytes, at) - fixed
    assert (value(case.sharded.saved_bytes, at) - fixed) * dp == pytest.approx(whole)


def test_activations_between_split_layers_shrink_with_the_group_only_under_sequence_parallelism(
    llama_8b: Graph,
) -> None:
    def stream(graph: Graph) -> float:
        layer: Region = graph.region("block0")
        return value(next(v for v in layer.values if v.name == "x0").type.num_bytes, sizes(8, 1, 1, 8192))

    assert stream(shard(llama_8b, "sp=true")) * 8 == stream(shard(llama_8b, "")) == 8192 * 4096 * 2
