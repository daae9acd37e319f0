"""Families lowered with what others have left: the same graphs, tables and layouts as lowered alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import estimate_many, lower, pipeline_for
from slipstick.explore.plans.lowerings import Lowerings
from slipstick.ir.errors import PlanError, UnknownNameError
from slipstick.ir.graph import Graph, Run
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.text.printer import print_graph
from slipstick.passes.manager import Prefixes

Traced = Callable[[str], Graph]
START = Family(sp=True, pp=True, zero=1)
# Each differs from the first in something that a pipeline, a table or a layout shows.
FAMILIES = [
    START,
    replace(START, recompute="full"),
    replace(START, schedule="zb-h1"),
    replace(START, zero=3, cp="ring"),
    replace(START, recompute="full", recompute_layers=1),
    replace(START, precision="fp8-delayed"),
    replace(START, pp_layout="balanced"),
    replace(START, pp_layout="1,3"),
    replace(START, order="tp-pp-cp-ep-dp"),
    replace(START, recompute="full", schedule="gpipe"),
    START,
]


@pytest.fixture
def four(traced: Traced) -> Graph:
    """The small Llama with four layers."""
    graph = traced("tiny-llama.train")
    return replace(graph, schedule=tuple(Run(r.regions, 4 if r.count > 1 else 1) for r in graph.schedule))


@pytest.mark.parametrize(("families", "graphs", "step"), [(24, 64, 1), (1, 1, 4)])
def test_a_family_is_what_it_is_when_lowered_alone(four: Graph, families: int, graphs: int, step: int) -> None:
    system, lowerings = load_system("dgx-h100"), Lowerings(four, families, graphs)
    for family in FAMILIES[::step]:
        found, alone = lowerings.of(family), lower(four, family)
        assert print_graph(found.graph) == print_graph(alone.graph)
        assert [t.name for t in found.pass_times] == [t.name for t in alone.pass_times]
        plan = make_plan(num_gpus=8, tp=2, pp=2, seq_len=64, global_batch=32, family=family)
        one, other = (estimate_many(x, system, [plan]) for x in (found, alone))
        assert {k: v[0] for k, v in one.metrics.items()} == {k: v[0] for k, v in other.metrics.items()}
        assert one.staging.layouts == other.staging.layouts


def test_what_no_graph_shows_is_lowered_once(traced: Traced) -> None:
    lowerings = Lowerings(traced("tiny-llama.train"))
    first = lowerings.of(START)
    assert lowerings.of(replace(START, schedule="dualpipe")) is first
    other = lowerings.of(replace(START, pp_layout="even"))
    assert (other.program, other.memory) == (first.program, first.memory)
    assert other.stages.policy == "even"
    assert lowerings.of(replace(START, order="pp-tp-cp-ep-dp")).program is not first.program


def test_passes_with_which_pipelines_begin_are_run_once(traced: Traced) -> None:
    graph = traced("tiny-llama.train")
    prefixes = Prefixes(graph)
    plain, selective = pipeline_for(START), pipeline_for(replace(START, recompute="selective"))
    one, times = prefixes.run(plain)
    other, again = prefixes.run(selective)
    begin = [p for p, q in zip(plain.passes, selective.passes, strict=False) if p == q]
    assert [p.name for p in begin] == ["accumulate", "shard"]
    assert all(a is b for a, b in zip(times[:2], again[:2], strict=True))
    assert prefixes.run(plain)[0] is one
    assert print_graph(other) == print_graph(selective.run(graph)[0])


def test_a_family_that_cannot_be_lowered_is_refused_every_time(traced: Traced) -> None:
    lowerings = Lowerings(traced("tiny-llama.train"))
    for _ in range(2):
        with pytest.raises(UnknownNameError, match="selektiv"):
            lowerings.of(replace(START, recompute="selektiv"))
        lowerings.of(START)


def test_layouts_that_do_not_fit_are_refused_as_ever(four: Graph) -> None:
    family = replace(START, pp_layout="1,1")
    found = Lowerings(four).of(family)
    plan = make_plan(num_gpus=8, tp=2, pp=2, seq_len=64, global_batch=32, family=family)
    with pytest.raises(PlanError, match="layout 1,1"):
        estimate_many(found, load_system("dgx-h100"), [plan])
