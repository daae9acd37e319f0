"""Architectures held against their papers: here the quick ones, all by `python -m benchmarks.architectures`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="builds some of the models; install slipstick[hf]")

from slipstick.benchmarks.architectures import cases
from slipstick.benchmarks.architectures.facts import FACTS
from slipstick.ir.graph import Workload

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
