"""The picture of predicted over measured: the same numbers as the tables, few points, the same bytes twice."""

from dataclasses import replace
from pathlib import Path

import pytest

from slipstick.cli import run
from slipstick.report.charts.chart import drawable
from slipstick.validation.results.outcomes import Outcome, Part
from slipstick.validation.results.plot import BAND, DATASETS, OTHERS, POINTS, chart
from slipstick.validation.rows.rows import Row

ROOT = Path(__file__).resolve().parents[3]


def outcome(name: str, predicted: float, measured: float, dataset: str = "lab") -> Outcome:
    row = Row({"id": name, "dataset": dataset})
    return Outcome(row=row, table="gemm", part=Part.JUDGED, predicted=predicted, measured=measured)


def test_a_point_is_a_quantity_and_the_text_has_the_error_of_the_tables() -> None:
    found = chart([outcome("a", 1.1, 1.0), outcome("b", 1.8, 2.0), outcome("c", 4.8, 4.0)])
    assert found is not None
    assert [(point["m"], point["p"], point["d"]) for point in found.data] == [
        (1.0, 1.1, "lab"), (2.0, 1.8, "lab"), (4.0, 4.8, "lab"),
    ]  # fmt: skip
    # Errors are 10, 10 and 20 %.
    assert "Median error of 3 that judge: 10.0%" in found.alt
    layers = found.spec["layer"]
    assert isinstance(layers, list)
    assert layers[0]["data"]["values"] == [
        {"m": m, "low": m * (1 - BAND), "high": m * (1 + BAND), "p": m} for m in (1.0, 4.0)
    ]


def test_what_has_no_prediction_or_another_unit_is_left_out() -> None:
    skipped = replace(outcome("d", float("nan"), 1.0), part=Part.SKIPPED)
    rate = replace(outcome("e", 5.0, 5.0), unit="/s")
    found = chart([outcome("a", 1.0, 1.0), outcome("b", 1.0, 2.0), skipped, rate])
    assert found is not None
    assert len(found.data) == 2
    assert chart([skipped]) is None


def test_of_many_rows_some_are_drawn_and_of_many_data_sets_the_large_ones_named() -> None:
    rows = [outcome(f"{k}", 1.0, 1.0 + k, f"set{k % (DATASETS + 2)}") for k in range(POINTS * 3 + 1)]
    found = chart(rows)
    assert found is not None
    assert POINTS / 2 < len(found.data) <= POINTS
    assert len({point["d"] for point in found.data}) == DATASETS + 1
    assert OTHERS in {point["d"] for point in found.data}


@pytest.mark.skipif(not drawable(), reason="drawing needs slipstick[report]")
def test_the_picture_is_the_same_twice_and_small() -> None:
    found = chart([outcome(f"{k}", 1.0 + k, 1.1 + k) for k in range(POINTS)])
    assert found is not None
    assert found.svg() == found.svg()
    assert len(found.svg()) < 80_000


@pytest.mark.skipif(not drawable(), reason="drawing needs slipstick[report]")
@pytest.mark.parametrize("table", ["elementwise", "collectives"])
def test_the_pictures_of_the_pages_are_of_these_tables(table: str, tmp_path: Path) -> None:
    out = tmp_path / "now.svg"
    assert run(["validate", "-q", str(ROOT / f"tests/validation/{table}.csv"), "-o", str(out)]) == 0
    assert out.read_text(encoding="utf-8") == (ROOT / f"docs/validation_{table}.svg").read_text(encoding="utf-8")
