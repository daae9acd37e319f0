"""What the studies say of chips and dies, on their reduced grids."""

from __future__ import annotations

import pytest

from .conftest import Study, by


def test_split_dies_yield_more_and_pay_where_defects_are_many(study: Study) -> None:
    rows = study("ex12_chiplet_cost")
    found = by(rows, "book", "node", "defects (% of usual)", "package", "may be bad", "dies")
    # Chiplet Actuary: (1 + A D / 10)^-10 of 800 mm2 at 0.11 defects a cm2, and its package of one die.
    alone = found["chiplet-actuary", "N5", "100", "organic", "none", "1"]
    assert float(alone["yield of a whole die"]) == pytest.approx((1 + 8 * 0.11 / 10) ** -10)
    assert float(alone["made for ($)"]) == pytest.approx(698.58, abs=0.005)
    for (book, node, factor, joint, bad, dies), row in found.items():
        parts = [float(row[name]) for name in row if name.endswith(" ($)")]
        assert parts[-1] - parts[-2] == pytest.approx(parts[-3])
        # A book may have tests and assembly beside these parts.
        assert sum(parts[:-3]) <= parts[-2] * (1 + 1e-9)
        first = found[book, node, factor, joint, bad, "1"]
        assert float(row["saved"]) == pytest.approx(1 - float(row["made for ($)"]) / float(first["made for ($)"]))
        if bad != "none":
            # A die that may have bad units costs no more than one that may not.
            strict = found[book, node, factor, joint, "none", dies]
            assert float(row["made for ($)"]) <= float(strict["made for ($)"])


def test_chiplets_save_money_and_lose_time(study: Study) -> None:
    rows = study("ex13_perf_cost_pareto")
    found = by([row for row in rows if row["package (W)"] == "1000.0"], "book", "dies are", "dies", "D2D (TB/s)")
    for book in {row["book"] for row in rows}:
        alone, pair = found[book, "one die", "1", "0.0"], found[book, "one device", "2", "0.0"]
        assert float(pair["step (s)"]) == pytest.approx(float(alone["step (s)"]), rel=0.01)
        for dies in ("2", "4"):
            slow, *_, wide = (found[book, "devices", dies, rate] for rate in ("0.25", "1.0", "4.0"))
            # A wider interface saves time, though it takes area from the units.
            assert float(wide["step (s)"]) < float(slow["step (s)"])
            assert float(wide["fp16 a device (TFLOP/s)"]) < float(slow["fp16 a device (TFLOP/s)"])
            assert float(pair["step (s)"]) < float(wide["step (s)"])
    for row in rows:
        beaten = [
            other for other in rows if other["book"] == row["book"]
            and float(other["step (s)"]) < float(row["step (s)"]) and float(other["$/Mtoken"]) < float(row["$/Mtoken"])
        ]  # fmt: skip
        assert not (beaten and row["Pareto"] == "yes")
        assert float(row["run (M$)"]) == pytest.approx(float(row["$/Mtoken"]) * 15, rel=1e-3)
    # What a book says of money changes nothing of time, under one plan.
    kinds = ("dies are", "dies", "package (W)", "D2D (TB/s)", "tp")
    steps: dict[tuple[str, ...], set[str]] = {}
    for row in rows:
        steps.setdefault(tuple(row[name] for name in kinds), set()).add(row["step (s)"])
    assert all(len(times) == 1 for times in steps.values())


def test_a_family_of_chiplets_trains_on_logic_and_serves_on_memory(study: Study) -> None:
    every = study("ex21_chiplet_family")
    rows = [row for row in every if row["book"] == every[0]["book"]]
    found = by(rows, "node", "memory", "dies are", "dies")
    # Newer logic shortens training more than decode steps, and newer memory decode steps more than training.
    for kind in ("one device", "UCIe advanced", "UCIe standard"):
        old, new = found["N7", "hbm4", kind, "4"], found["N3", "hbm4", kind, "4"]
        slow, fast = found["N5", "hbm3", kind, "4"], found["N5", "hbm4", kind, "4"]
        train, serve = "train step (s)", "TPOT (ms)"
        assert float(old[train]) / float(new[train]) > 1.3 > float(old[serve]) / float(new[serve]) >= 1.0
        assert float(slow[serve]) / float(fast[serve]) > 1.0
    # A wider interface of the same dies is no slower.
    for node in ("N7", "N5", "N3"):
        wide, narrow = (found[node, "hbm3", kind, "4"] for kind in ("UCIe advanced", "UCIe standard"))
        assert float(wide["train step (s)"]) < float(narrow["train step (s)"])
        assert float(wide["TPOT (ms)"]) < float(narrow["TPOT (ms)"])
    for front, time, usd in (
        ("train front", "train step (s)", "train $/Mtoken"),
        ("serve front", "TPOT (ms)", "serve $/Mtoken"),
    ):
        on = [(float(row[time]), float(row[usd])) for row in rows if row[front] == "yes"]
        assert on
        for row in rows:
            beaten = any(t < float(row[time]) and c < float(row[usd]) for t, c in on)
            assert beaten == (row[front] == "no")


def test_packages_of_2027_are_alike_but_for_their_dies_and_lanes(study: Study) -> None:
    rows = study("ex28_accelerator_2027")
    found = by(rows, "book", "dies", "lanes", "batch", "package (W)")
    for (book, dies, lanes, batch, watts), row in found.items():
        assert float(row["silicon (mm2)"]) == 1600
        assert float(row["W/mm2"]) == pytest.approx(float(watts) / 1600)
        assert float(row["tokens/s"]) == pytest.approx(1e3 * float(batch) / float(row["TPOT (ms)"]))
        # Money changes nothing of time; optics that carry more are no slower.
        for other in {row["book"] for row in rows}:
            assert found[other, dies, lanes, batch, watts]["TPOT (ms)"] == row["TPOT (ms)"]
        copper = found[book, dies, "nvlink5", batch, watts]
        assert float(row["lanes (TB/s)"]) >= float(copper["lanes (TB/s)"])
        assert float(row["TPOT (ms)"]) <= float(copper["TPOT (ms)"]) * 1.001
        points = [(float(other["TPOT (ms)"]), float(other["$/Mtoken"])) for other in rows if other["book"] == book]
        beaten = any(t < float(row["TPOT (ms)"]) and c < float(row["$/Mtoken"]) for t, c in points)
        assert beaten == (row["Pareto"] == "no")
