"""Architectures held against their papers: here the quick ones, all by `python -m benchmarks.architectures`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="builds some of the models; install slipstick[hf]")

from slipstick import Family, load_system, make_plan
from slipstick.benchmarks.architectures import cases
from slipstick.benchmarks.architectures.facts import FACTS
from slipstick.driver.estimate import estimate
from slipstick.ir.graph import Role, Workload
from slipstick.ir.placement import TP, Shard

PAGE = Path(__file__).parents[2] / "docs" / "architectures.md"


@pytest.mark.parametrize("name", ["masked", "MoBA", "ranking"])
def test_an_answer_is_what_the_paper_says(name: str) -> None:
    fact = FACTS[name]()
    assert fact.ours == pytest.approx(fact.theirs, rel=1e-3)
    assert f"{fact.ours:,.5g} | {100 * fact.error:+.2f} %" in PAGE.read_text()


def test_a_small_goose_has_the_parameters_of_its_formula() -> None:
    """Appendix of arXiv 2503.14456; `test_an_answer...` would record all 32 layers."""
    d, layers, vocab, (w, a, v, g) = 128, 2, 65536, (96, 96, 64, 320)
    graph = cases.of_module(partial(cases.goose, layers, d))(Workload.PREFILL)
    told = 2 * d * vocab + 4 * d + layers * d * (12 * d + 2 * (w + a + v + g) + 19) - (2 * d * v + d)
    assert int(str(graph.num_parameters)) == told


@pytest.mark.parametrize("workload", [Workload.PREFILL, Workload.TRAIN])
def test_a_searched_plan_of_a_ranking_model_is_legal_at_the_degree_asked_for(workload: Workload) -> None:
    """Its top MLP reads 479 numbers, which 8 does not divide."""
    graph = cases.of_module(partial(cases.dlrm, 1000), cases.RANKING_INPUTS, cases.RANKING_DIMS)(workload)
    family = Family(tp_plan="auto:8", workload=workload)
    plan = make_plan(num_gpus=8, tp=8, seq_len=26, micro_batch=64, global_batch=64, family=family)
    found = estimate(graph, load_system("dgx-h100"), plan)
    lies = {v.name: v.placement(TP) for r in found.table.lowered.graph.regions for v in r.of_role(Role.PARAM)}
    assert any(isinstance(place, Shard) for place in lies.values())
