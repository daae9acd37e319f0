"""What is measured: every line of the tables counts, words choose lines, and what failed is kept."""

import csv
from collections import Counter
from pathlib import Path

from slipstick.driver.uncertainty.evidence import RUNS, backed
from slipstick.report.catalogue.support import support

TABLES = Path(__file__).parents[2] / "validation"


def test_every_run_of_the_table_is_there() -> None:
    with (TABLES / "runs.csv").open(encoding="utf-8") as file:
        rows = len(list(csv.DictReader(file)))
    assert sum(one.rows + one.failed for one in backed() if one.table == "runs") == rows


def test_fitted_rows_do_not_judge() -> None:
    found = Counter[str]()
    for one in backed():
        assert one.judged <= one.rows
        found[one.table] += one.rows - one.judged
    assert all(found[table] > 0 for table in ("gemm", "training", "inference"))


def test_words_choose_lines_and_failures_are_kept() -> None:
    found = support(("nanotron", "h100", "8.86B", "step"))
    assert {one.software for one in found.lines} == {"nanotron", "nanotron-per-rank"}
    assert all(one.table in RUNS for one in found.lines)
    assert any(one.failed and one.why for one in found.lines)
    assert "nanotron-llama-8.86B" in found.text(120)


def test_where_nothing_is_measured_it_says_what_stands_for_it() -> None:
    text = support(("H100-SXM5-80GB", "lmdeploy")).text(200)
    assert "no whole run is measured" in text
    assert "lmdeploy on H100-SXM5-80GB: this software elsewhere" in text
