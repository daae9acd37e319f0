"""The picture of a step shows the numbers of the answer."""

from __future__ import annotations

from pathlib import Path

import pytest

import slipstick
from slipstick.ir.errors import UsageError
from slipstick.report.costed import costed_rows
from slipstick.report.results.pictures import dots, figure, figure_svg
from slipstick.report.results.steps import StepResult

pytest.importorskip("matplotlib", reason="pictures need slipstick[plot]")


@pytest.fixture(scope="module")
def found() -> StepResult:
    graph = str(Path(__file__).parents[2] / "golden" / "tiny-llama.train.graph")
    return slipstick.estimate(graph, "dgx-h100", gpus=4, tp=2, seq=128)


def test_bars_are_the_parts_of_the_step(found: StepResult) -> None:
    axes = figure(found.answer).axes[0]
    widths = [bar.get_width() for bar in axes.patches]  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    assert sum(widths) == pytest.approx(found.metrics["step_time_s"], rel=1e-12)
    assert widths == sorted(widths)


def test_a_dot_is_an_operator_at_its_work_over_its_bytes_and_its_time(found: StepResult) -> None:
    row = max(costed_rows(found.answer), key=lambda row: row.tensor_flops)
    flops = row.tensor_flops + row.vector_flops
    dot = next(dot for dot in dots(found.answer) if dot.flop_per_s == flops / row.time_s)
    assert (dot.intensity, dot.bound) == (flops / row.num_bytes, row.bound)
    assert dot.time_s == row.time_s * row.count


def test_no_operator_computes_faster_than_the_chip(found: StepResult) -> None:
    peak = found.answer.table.system.chip.matmul_flop_per_s("bf16")
    assert all(dot.flop_per_s <= peak for dot in dots(found.answer))


def test_the_same_answer_makes_the_same_picture(found: StepResult) -> None:
    first = figure_svg(found.answer)
    assert first == figure_svg(found.answer)
    assert first.startswith("<svg")
    assert ">Operators under the roofline</text>" in first


def test_a_page_has_the_picture_and_says_what_it_shows(found: StepResult) -> None:
    page = found.html()
    assert '<figure role="img" aria-label="Where the time of the step goes' in page
    assert page.count("<svg") == 1
    assert len(page) < 500_000


def test_without_what_draws_a_page_has_no_picture(found: StepResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstick.report.results.pictures.find_spec", lambda name: None)
    assert "<svg" not in found.html()
    with pytest.raises(UsageError, match=r"pictures need slipstick\[plot\]"):
        found.plot()
