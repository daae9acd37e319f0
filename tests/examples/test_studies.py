"""What the studies say, on their reduced grids: files, and facts that hold whatever the constants are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from .conftest import EXAMPLES, Row, Study


def by(rows: object, *names: str) -> dict[tuple[str, ...], Row]:
    """Return rows by what stands in some of their columns."""
    assert isinstance(rows, list)
    return {tuple(row[name] for name in names): row for row in rows}


def test_a_study_writes_its_table_and_its_picture(script: str, written: Callable[[str], Path]) -> None:
    folder = written(script)
    title = (EXAMPLES / f"{script}.py").read_text(encoding="utf-8").splitlines()[0].strip('"')
    assert (folder / f"{script}.md").read_text(encoding="utf-8").startswith(f"# {title}\n")
    assert len((folder / f"{script}.csv").read_text(encoding="utf-8").splitlines()) > 2
    assert ElementTree.parse(folder / f"{script}.svg").getroot().tag.endswith("svg")


def test_training_steps_are_within_a_tenth_of_the_published(study: Study) -> None:
    errors = [abs(float(row["error (%)"])) for row in study("ex01_train_validation")]
    assert max(errors) < 10
    assert sum(errors) / len(errors) < 5


def test_recomputation_saves_memory(study: Study) -> None:
    found = by(study("ex02_memory_footprint"), "model", "recompute")
    for model in {model for model, _ in found}:
        full, selective, none = (float(found[model, r]["all (GiB)"]) for r in ("full", "selective", "none"))
        assert full < selective < none
        assert found[model, "none"]["fits 80 GB"] == "no"
        assert found[model, "selective"]["fits 80 GB"] == "yes"


def test_activations_are_those_of_the_paper_and_what_lies_behind_the_embedding(study: Study) -> None:
    for row in study("ex02_memory_footprint"):
        if row["published activations (GiB)"]:
            published = float(row["published activations (GiB)"])
            assert published < float(row["activations (GiB)"]) < 1.05 * published


def test_decode_is_bound_by_memory_and_large_prefill_by_compute(study: Study) -> None:
    rows = study("ex07_bound_types")
    assert {row["bound"] for row in rows if row["phase"] == "decode" and row["batch"] == "1"} == {"memory"}
    layers = [row for row in rows if row["phase"] == "prefill" and row["batch"] == "16" and row["product"] != "lm_head"]
    assert {row["bound"] for row in layers} == {"compute"}


def test_the_intensity_of_a_product_is_that_of_its_sizes(study: Study) -> None:
    found = by(study("ex07_bound_types"), "system", "phase", "batch", "product")
    # Llama 2 13B: 200 rows of 5120 in bf16 times 5120 x 5120.
    m, h = 200, 5120
    expected = 2 * m * h * h / (2 * (2 * m * h + h * h))
    row = found["dgx-h100", "prefill", "1", "q_proj"]
    assert float(row["intensity (FLOP/B)"]) == pytest.approx(expected)
