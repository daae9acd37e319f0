"""Some model types of every kind: traced, counted by PyTorch, and as the page says."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

from slipstick.benchmarks.coverage.case import measured, model_types
from slipstick.benchmarks.coverage.page import HEADING, cells
from slipstick.benchmarks.coverage.result import WORKLOADS

pytestmark = pytest.mark.oracle

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coverage.md"
# Learned positions and transposed weights, grouped queries, alternating windows, latents, experts of three kinds, one
# mixer in place of attention and both together, an encoder's layers, a decoder torn from its encoder.
SAMPLE = (
    "bart", "bert", "deepseek_v3", "gemma2", "gpt2", "llama", "mamba2", "mixtral", "phi", "qwen3_moe",
)  # fmt: skip


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Transformers says what a config leaves open; nobody is there to read it."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("model_type", SAMPLE)
def test_it_is_traced_agrees_with_torch_and_stands_in_the_page(model_type: str, page: str) -> None:
    result = measured(model_type)
    assert not result.why_not
    assert result.agrees, result
    found = dict(zip(HEADING, cells(result), strict=True))
    # What the page was written without is written with the next sweep.
    titles = next(line for line in page.splitlines() if line.startswith("| type |")).strip("| ").split(" | ")
    assert f"| {' | '.join(found[title] for title in titles)} |" in page.splitlines()


def test_the_page_has_a_row_for_every_type(page: str) -> None:
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ") and "`" in line]
    assert [row[0].removeprefix("| ") for row in rows] == list(model_types())
    # `-` stands where a workload could not be traced: columns 5, 7 and 8.
    for workload, column in zip(WORKLOADS, (4, 6, 7), strict=True):
        num = sum(row[column] != "-" for row in rows)
        assert f"{num} ({num / len(rows):.1%}) are traced for {workload}" in page.replace("\n", " ")
