"""A bad cell costs one row: it is listed with its reason, whatever its column, and the other rows are judged."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

from slipstick.frontend import GraphCache
from slipstick.validation.judge import judge_files
from slipstick.validation.kinds import JudgingSettings
from slipstick.validation.results.outcomes import Part
from slipstick.validation.rows.machine_room import MachineRoom
from slipstick.validation.rows.tables import NUMBERS

HERE = Path(__file__).parent
TABLES = (
    "attention", "collectives", "elementwise", "gemm", "moe", "memory", "layer_time", "runs", "training_step",
    "inference_latency",
)  # fmt: skip
BAD = ("many", "0", "-1", "nan", "1e300", "0.5", "=1+1", "\u202e")


def settings(cache: GraphCache | None) -> JudgingSettings:
    return JudgingSettings(MachineRoom(), cache, estimate=lambda arguments: {"step_time_s": 1.0})


def write(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_a_bad_cell_in_any_column_leaves_the_other_rows_judged(name: str, tmp_path: Path, graph_folder: Path) -> None:
    with (HERE / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    cache = GraphCache(graph_folder)
    # A layer is recorded for each of its sizes, which takes long; an op of it goes the same way.
    rows = [row for row in rows if not any(cell.startswith("whole transformer layer") for cell in row)]
    for good in rows[:40]:
        found = judge_files([write(tmp_path / "one.csv", header, [good])], (), settings(cache))
        if found[0].part is not Part.SKIPPED:
            break
    at = header.index("id")
    bad = []
    for place, column in enumerate(header):
        for text in BAD if column in NUMBERS else BAD[:1]:
            cells = [*good[:place], text, *good[place + 1 :]]
            cells[at] = f"{column} {text}"
            bad.append(cells)
    bad += [[*good[:at], "short", *good[at + 1 : -1]], [*good[:at], "long", *good[at + 1 :], "1"]]
    outcomes = judge_files([write(tmp_path / "all.csv", header, [good, *bad, good])], (), settings(cache))
    lines = [outcome.row.line for outcome in outcomes]
    assert lines == sorted(lines)
    assert set(lines) == set(range(2, len(bad) + 4))
    for line in (2, len(bad) + 3):
        of_good = [o for o in outcomes if o.row.line == line]
        assert [(o.predicted, o.measured, o.part) for o in of_good] == [
            (o.predicted, o.measured, o.part) for o in found
        ]
    assert all(o.reason for o in outcomes if o.part is Part.SKIPPED)
    reasons = {o.row.id: o.reason for o in outcomes}
    assert "cells under" in reasons["short"]
    assert "cells under" in reasons["long"]
