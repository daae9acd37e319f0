"""Every seeded fault in a sharded or lowered graph is found, and no graph without one is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from slipstick.ir.graph import Graph
from slipstick.passes.manager import parse_pipeline
from slipstick.verify.proof.certificate import Certificate, certify

from .mutate import MUTATORS, mutants

# A dense model with context parallelism, its packed kind with exchanged heads, and experts on ranks of their own.
PLANS = {
    "cp": ("tiny-llama.train", 'accumulate,shard{sp=true, regather=true, cp="allgather", zero=1},bucket,optimizer,'
           "pipeline,fuse"),
    "heads": ("tiny-gpt2.train", 'accumulate,shard{sp=true, cp="ulysses"},bucket,optimizer,pipeline,fuse'),
    "experts": ("tiny-mixtral.train", "accumulate,route,shard{sp=true, regather=true, ep=true},bucket,optimizer,"
                "pipeline,fuse"),
    "fsdp": ("tiny-llama.train", "accumulate,shard{zero=3},bucket,optimizer,fuse"),
}  # fmt: skip
Stages = tuple[Graph, Graph, Graph, list[str]]


@pytest.fixture(scope="module")
def lower(traced: Callable[[str], Graph]) -> Callable[[str], Stages]:
    """Lower the model of a plan; return the graph before `shard`, behind it and at the end, and the passes."""

    def run(plan: str) -> Stages:
        name, text = PLANS[plan]
        pipeline, seen = parse_pipeline(text), dict[str, Graph]()
        lowered, _ = pipeline.run(traced(name), None, lambda _, step, graph: seen.update({step.name: graph}))
        order = [p.name for p in pipeline.passes]
        return seen[order[order.index("shard") - 1]], seen["shard"], lowered, order

    return cache(run)


@pytest.mark.parametrize("plan", PLANS)
def test_what_the_passes_make_is_proven(lower: Callable[[str], Stages], plan: str) -> None:
    before, sharded, lowered, order = lower(plan)
    found = certify(before, sharded, lowered, order)
    assert found.holds, found.faults
    assert not found.anew
    # Each node of both graphs is proven: nothing is passed over.
    assert found.sharded == sum(len(r.nodes) for r in sharded.regions)
    assert found.lowered >= sum(len(r.nodes) for r in lowered.regions)


@pytest.mark.parametrize("plan", PLANS)
def test_a_hundred_mutants_are_caught(lower: Callable[[str], Stages], plan: str) -> None:
    """Twenty-five a plan: of the sharded graph against the model, of the lowered one against the sharded one."""
    before, sharded, lowered, order = lower(plan)
    early = order[: order.index("shard") + 1]
    seed = sorted(PLANS).index(plan)
    missed = [what for what, m in mutants(sharded, seed, 13) if certify(before, m, m, early).holds]
    missed += [what for what, m in mutants(lowered, seed + 100, 12) if certify(before, sharded, m, order).holds]
    assert missed == []


@pytest.mark.parametrize("kind", MUTATORS)
def test_each_kind_of_fault_is_named(lower: Callable[[str], Stages], kind: str) -> None:
    """The fault names the region that was changed; every kind has a place in one of the graphs."""
    tried = 0
    for plan in ("cp", "experts"):
        before, sharded, _, order = lower(plan)
        for region in sharded.regions:
            for what, mutant in list(MUTATORS[kind](region))[:1]:
                regions = tuple(mutant if r is region else r for r in sharded.regions)
                changed = sharded.with_regions(regions)
                found: Certificate = certify(before, changed, changed, order[: order.index("shard") + 1])
                assert any(f.region == region.name or "port" in f.where for f in found.faults), what
                tried += 1
    assert tried
