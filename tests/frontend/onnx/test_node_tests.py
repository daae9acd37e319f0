"""The node tests of the onnx package: a sample is read with the shapes and types of the run, as the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstick.benchmarks.onnx_coverage.measure import known, read

PAGE = Path(__file__).resolve().parents[3] / "docs" / "coverage_onnx.md"
# Every so many-th case: operators stand in the order of their names, so that all kinds come up.
STEP = 23
# What was asked of node tests of numbers.
LEAST = 0.85


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_a_sample_is_read_and_the_rest_is_on_the_page(page: str) -> None:
    names = [name for name, case in known().items() if case.family == "node"][::STEP]
    results = [read(name)[0] for name in names]
    numeric = [r for r in results if r.is_numeric]
    assert len(numeric) > 60
    assert sum(not r.why_not for r in numeric) >= LEAST * len(numeric)
    assert {r.model_type for r in results if r.why_not} == {n for n in names if f"`{n}`" in page}


def test_a_stored_model_has_the_shapes_of_its_run(page: str) -> None:
    for name in ("light/light_squeezenet", "pytorch-converted/Conv2d", "simple/sequence_model3"):
        case = known()[name]
        assert case.outputs is not None
        assert read(name)[0].why_not == ""
    assert "`pytorch-converted/Conv2d`" not in page
