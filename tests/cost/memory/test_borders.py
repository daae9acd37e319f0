"""How often stages wait for one another's messages, layout by layout, and what they keep of what passes through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slipstick.cost.memory.peak import Holding, MemoryProgram
from slipstick.driver.estimate import Lowered, lower
from slipstick.frontend import load
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family, PlanTable, make_plan
from slipstick.ir.plan.layout.stages import between_stages, lay_stages
from slipstick.ir.sizes.points import Points

STACKS = Path(__file__).parents[2] / "data" / "stacks.py"
MBS, SEQ = 2, 64
# bf16, 32 wide
STATE = MBS * SEQ * 32 * 2


def stack(name: str) -> Lowered:
    return lower(load(f"{STACKS}:{name}"), Family(pp=True))


def messages(graph: Graph, policy: str, pp: int, vpp: int = 1, schedule: str = "1f1b") -> list[dict[str, float]]:
    """Region by region how often each stage waits for messages."""
    layout = lay_stages(graph, policy, pp, vpp, schedule=schedule)
    names = [r.name for r in graph.regions]
    found = [dict(zip(names, layout.classes[cls].messages, strict=True)) for cls in layout.stages]
    return [{name: times for name, times in stage.items() if times} for stage in found]


def test_a_stage_waits_for_the_border_before_it_and_the_first_one_for_its_own() -> None:
    """Four layers, then five that read the last of these: what stands in front of a layer of the second tower."""
    graph = stack("Towers").graph
    plain, in_front, inside, head = (f"boundary{k or ''}" for k in range(4))
    assert messages(graph, "3,3,3", 3) == [{plain: 1.0}, {plain: 1.0}, {inside: 1.0}]
    assert messages(graph, "4,5", 2) == [{in_front: 1.0}] * 2
    assert messages(graph, "9,0", 2) == [{head: 1.0}] * 2
    assert messages(graph, "2,2,3,2", 2, vpp=2) == [{plain: 1.0, in_front: 1.0}, {plain: 1.0, inside: 1.0}]
    assert messages(graph, "even", 1) == [{}]


@pytest.mark.parametrize(("pp", "times"), [(1, 0.0), (2, 1.0), (4, 1.5), (8, 1.75)])
def test_gradients_of_a_weight_go_round_all_stages_that_hold_it(pp: int, times: float) -> None:
    """An all-reduce over g stages as a ring: each sends 2 (g - 1)/g of the gradient; two swap it once."""
    found = messages(stack("OneLayer").graph, "even", pp)
    assert [stage.get("shared", 0.0) for stage in found] == [times] * pp


def test_both_ends_on_one_stage_have_nothing_to_exchange(traced: Callable[[str], Graph]) -> None:
    graph = lower(traced("tiny-gpt2.train"), Family(pp=True)).graph
    plain = messages(graph, "even", 2)
    assert [stage["shared"] for stage in plain] == [1.0, 1.0]
    assert all("shared" not in stage for stage in messages(graph, "1,1,0,0", 2, 2, "zb-v"))


def last_stage(lowered: Lowered, graph: Graph, pp: int) -> dict[str, float]:
    """Bytes of the last stage by part."""
    plan = make_plan(num_gpus=pp, seq_len=SEQ, micro_batch=MBS, global_batch=8 * MBS, pp=pp, family=Family(pp=True))
    plans = PlanTable.of([plan])
    points = Points(plans)
    staging = lowered.stages.evaluate(plans, points)
    found = MemoryProgram.of(graph).evaluate(points, 0.0, plans, staging, Holding(last=True))
    return {part: float(np.ravel(size)[0]) for part, size in found.items()}


def test_a_stage_keeps_what_passes_through_it_with_each_micro_batch() -> None:
    """The last stage of three reads in all its layers what the first tower made, and has one micro-batch in flight."""
    lowered = stack("Towers")
    forgetful = lowered.graph.with_regions(
        tuple(
            replace(r, values=tuple(replace(v, saved=False) for v in r.values)) if between_stages(r.name) else r
            for r in lowered.graph.regions
        )
    )
    kept, bare = (last_stage(lowered, graph, 3)["activations"] for graph in (lowered.graph, forgetful))
    assert kept - bare == STATE


def test_a_stage_has_one_copy_of_a_weight_that_its_layers_share() -> None:
    """In bf16: the layer, 2 x 32 of the norm, 32 x 64 and 64 and the way back; the last stage has the head, too."""
    lowered = stack("OneLayer")
    layer, head = 2 * 32 + 32 * 64 + 64 + 64 * 32 + 32, 32 * 80 + 80
    for pp in (2, 4):
        assert last_stage(lowered, lowered.graph, pp)["weights"] == 2 * (layer + head)
