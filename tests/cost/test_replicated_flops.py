"""FLOPs of all ranks are those of the unsharded graph, over all samples, and what ranks repeat: placements say what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

import pytest

from slipstick.cost.replicated import Replicated
from slipstick.driver.estimate import lower
from slipstick.ir.graph import Graph
from slipstick.ir.ops import work_of
from slipstick.ir.placement import Shard
from slipstick.ir.plan import Family

Traced = Callable[[str], Graph]
Degrees = Mapping[str, int]

LENGTHS = {"mbs": 3.0, "seq": 64.0, "kv": 64.0}
# Key-value heads of the small models: two, so tp=2 copies none.
CASES: tuple[tuple[str, Family, Degrees], ...] = (
    ("tiny-llama", Family(), {"dp": 4, "tp": 2}),
    ("tiny-llama", Family(sp=True), {"dp": 4, "tp": 2}),
    ("tiny-llama", Family(sp=True, zero=3), {"dp": 4, "tp": 2}),
    ("tiny-llama", Family(tp_plan="dtensor-naive"), {"dp": 2, "tp": 2}),
    ("tiny-llama", Family(sp=True, cp="ring"), {"dp": 2, "cp": 4, "tp": 2}),
    ("tiny-llama", Family(cp="allgather"), {"dp": 2, "cp": 4, "tp": 2}),
    ("tiny-llama", Family(cp="ulysses"), {"dp": 3, "cp": 2, "tp": 1}),
    ("tiny-gpt2", Family(sp=True, pp=True, zero=1), {"dp": 2, "tp": 4}),
    ("tiny-mixtral", Family(), {"dp": 4, "tp": 2}),
    ("tiny-mixtral", Family(ep=True), {"dp": 3, "ep": 4, "tp": 2}),
    ("tiny-mixtral", Family(sp=True, ep=True), {"dp": 3, "ep": 4, "tp": 2}),
    ("tiny-mixtral", Family(sp=True, ep=True, etp=False), {"dp": 3, "ep": 2, "tp": 2}),
    ("tiny-mixtral", Family(ep=True, exchange="allgather"), {"dp": 3, "ep": 4, "tp": 2}),
)


def replicated_flops(graph: Graph, sizes: Mapping[str, float]) -> float:
    """FLOPs of products and attention that ranks of a lowered graph repeat, in a micro-batch of all replicas.

    Along an axis where an operator has no sharded operand, each rank computes as much as one rank alone would. With
    f the FLOPs of one rank, (all ranks - ranks along sharded axes) f, summed over operators: the FLOPs of all ranks
    are those of the unsharded graph, over the samples of all replicas, and these. `sizes` holds degrees and lengths
    by symbol; degrees divide what they shard, pipeline stages are no repetition.
    """
    again = 0.0
    for region in graph.regions:
        for node in region.nodes:
            flops = work_of(region, node).tensor_flops
            if not flops.terms:
                continue
            placed = [region.by_id[i].placements for i in (*node.inputs, *node.outputs)]
            sharded = {axis for placements in placed for axis, p in placements if isinstance(p, Shard)}
            ranks = prod(sizes[axis] for axis, _ in placed[-1])
            own = prod(sizes[axis] for axis in sharded)
            again += graph.counts[region.name] * (ranks - own) * float(flops.evaluate(sizes))
    return again


LARGE: tuple[tuple[str, Family, Degrees], ...] = (
    ("llama-3.1-70b", Family(sp=True, cp="ring", zero=3), {"dp": 2, "cp": 2, "tp": 8}),
    ("mixtral-8x7b", Family(sp=True, ep=True), {"dp": 2, "ep": 8, "tp": 4}),
    ("deepseek-v3", Family(sp=True, ep=True, etp=False), {"dp": 2, "ep": 8, "tp": 4}),
    ("deepseek-v3", Family(sp=True, cp="allgather"), {"dp": 2, "cp": 2, "tp": 8}),
)
# Of tiny-llama and tiny-mixtral.
HIDDEN, VOCAB, LAYERS, EXPERTS = 64, 160, 2, 4


def flops(graph: Graph, sizes: Mapping[str, float]) -> float:
    """FLOPs of products and attention of one rank."""
    works = ((r, work_of(r, node).tensor_flops) for r in graph.regions for node in r.nodes)
    return sum(graph.counts[r.name] * float(work.evaluate(sizes)) for r, work in works)


def sizes_of(degrees: Degrees) -> dict[str, float]:
    return {**LENGTHS, "pp": 1.0, **{axis: float(n) for axis, n in degrees.items()}}


def beyond(graph: Graph, made: Graph, degrees: Degrees) -> float:
    """FLOPs of all ranks less those of the unsharded graph over the samples of all replicas."""
    samples = LENGTHS["mbs"] * degrees["dp"] * degrees.get("ep", 1)
    whole = flops(graph, {**LENGTHS, "batch": samples})
    return prod(degrees.values()) * flops(made, sizes_of(degrees)) - whole


def repeated(graph: Graph, family: Family, degrees: Degrees) -> float:
    """Check the law and return the FLOPs of a token that are repeated."""
    made = lower(graph, family).graph
    again, all_of_it = replicated_flops(made, sizes_of(degrees)), flops(made, sizes_of(degrees))
    assert beyond(graph, made, degrees) == pytest.approx(again, abs=1e-10 * all_of_it)
    return again / (LENGTHS["mbs"] * LENGTHS["seq"] * degrees["dp"] * degrees.get("ep", 1))


@pytest.mark.parametrize(("name", "family", "degrees"), CASES, ids=str)
def test_ranks_compute_the_whole_and_what_they_repeat(
    name: str, family: Family, degrees: Degrees, traced: Traced
) -> None:
    repeated(traced(f"{name}.train"), family, degrees)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "family", "degrees"), LARGE, ids=str)
def test_so_they_do_in_large_models(name: str, family: Family, degrees: Degrees) -> None:
    pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")
    from slipstick.frontend import load

    repeated(load(name), family, degrees)


def test_a_head_that_no_plan_splits_is_repeated(traced: Traced) -> None:
    """Three products of 2 x vocabulary x hidden, once more on the second rank."""
    again = repeated(traced("tiny-llama.train"), Family(tp_plan="dtensor-naive"), {"dp": 2, "tp": 2})
    assert again == pytest.approx(3 * 2 * VOCAB * HIDDEN, rel=1e-12)


@pytest.mark.parametrize("sp", [False, True])
def test_a_router_is_repeated_unless_tokens_are_sharded(sp: bool, traced: Traced) -> None:
    """Scores of a token for each expert: three products of 2 x hidden x experts a layer."""
    again = repeated(traced("tiny-mixtral.train"), Family(sp=sp, ep=True), {"dp": 3, "ep": 4, "tp": 2})
    assert again == pytest.approx(0 if sp else LAYERS * 3 * 2 * HIDDEN * EXPERTS, rel=1e-12)


@pytest.mark.slow
def test_compressions_of_latent_attention_are_repeated() -> None:
    """DeepSeek-V3: 7168 to 1536 and to 512 + 64 in 61 layers, and routers of 256 experts in 58, on 7 more ranks."""
    pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")
    from slipstick.frontend import load

    again = repeated(load("deepseek-v3"), Family(), {"dp": 2, "tp": 8})
    assert again == pytest.approx(7 * 3 * 2 * 7168 * (61 * (1536 + 512 + 64) + 58 * 256), rel=1e-12)


def test_the_share_over_tp_says_the_same(traced: Traced) -> None:
    """A share of 1 is a whole model on every further rank."""
    graph, degrees = traced("tiny-mixtral.train"), {"dp": 1, "tp": 2}
    share = Replicated.of(lower(graph, Family()).graph, sizes_of(degrees)).flops_share
    whole = flops(graph, {**LENGTHS, "batch": LENGTHS["mbs"]})
    again = replicated_flops(lower(graph, Family()).graph, sizes_of(degrees))
    assert 0 < share == pytest.approx(again / whole / (degrees["tp"] - 1), rel=1e-12)


def test_a_rank_that_computes_what_it_need_not_breaks_the_law(traced: Traced) -> None:
    """A product that placements call sharded, and that computes all columns, is no repetition that they know of."""
    graph, degrees = traced("tiny-llama.train"), {"dp": 2, "tp": 2}
    made = lower(graph, Family()).graph
    block = made.region("block0")
    node = next(n for n in block.nodes if n.op == "matmul" and n.scope.endswith("up_proj"))
    ids = (node.inputs[1], node.outputs[0])
    values = tuple(replace(v, type=v.type.substitute({"tp": 1})) if v.id in ids else v for v in block.values)
    wide = replace(block, values=values)
    broken = made.with_regions(tuple(wide if r is block else r for r in made.regions))
    assert beyond(graph, broken, degrees) > replicated_flops(broken, sizes_of(degrees)) + 1
