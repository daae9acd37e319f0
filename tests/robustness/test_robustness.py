"""Short runs of what `make robustness` does at length, and the page that is made of their rows."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

from slipstick.benchmarks.fuzz.judge import Depth
from slipstick.benchmarks.robustness.__main__ import main, page
from slipstick.benchmarks.robustness.clients import of_clients
from slipstick.benchmarks.robustness.kills import of_drivers, of_workers
from slipstick.benchmarks.robustness.ledgers import of_ledgers

posix = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@posix
@pytest.mark.slow
def test_a_search_that_is_killed_goes_on_to_the_same_table(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert of_drivers(tmp_path / "a", 1, random.Random(1)).wrong == 0
    assert of_workers(tmp_path / "b", 1, random.Random(1)).wrong == 0


def test_no_damage_of_a_ledger_is_taken_for_what_was_found(tmp_path: Path) -> None:
    row = of_ledgers(tmp_path, 60, random.Random(1))
    assert (row.tried, row.wrong) == (60, 0)


def test_clients_at_once_get_their_own_answers() -> None:
    row = of_clients(8, 0.5)
    assert row.tried >= 8
    assert row.wrong == 0


def test_the_page_adds_up_what_was_kept(tmp_path: Path) -> None:
    fuzz, rows = tmp_path / "fuzz", tmp_path / "rows"
    fuzz.mkdir()
    rows.mkdir()
    for seed, faults in ((1, {}), (2, {"KeyError": 2})):
        told = {
            "format": "plan",
            "tried": 100,
            **{str(depth): count for depth, count in zip(Depth, (40, 30, 30), strict=True)},
            "faults": faults,
            "first": {},
        }
        (fuzz / f"plan-{seed}.json").write_text(json.dumps(told), encoding="utf-8")
    kept = [{"what": "kill", "tried": 30, "wrong": 1, "how": "so"}]
    (rows / "drivers.json").write_text(json.dumps(kept), encoding="utf-8")
    text = page(fuzz, rows)
    assert "| plan | 200 | 80 | 60 | 60 | 30% | 2 |" in text
    assert "| all | 200 | 80 | 60 | 60 | 30% | 2 |" in text
    assert "| kill | 30 | 1 | so |" in text
    assert main(["--page", str(tmp_path / "p.md"), "--fuzz", str(fuzz), "--keep", str(rows)]) == 0
    assert (tmp_path / "p.md").read_text(encoding="utf-8") == text
