"""What the studies say of chips and dies, on their reduced grids."""

from __future__ import annotations

import pytest

from .conftest import Study, by


def test_split_dies_yield_more_and_pay_where_defects_are_many(study: Study) -> None:
    rows = study("ex12_chiplet_cost")
    found = by(rows, "node", "defects over usual", "package", "dies", "interfaces")
    made = {key: float(row["made for ($)"]) for key, row in found.items()}
    for joint in ("organic", "fan_out", "interposer", "embedded_bridge", "fan_out_bridge"):
        assert (
            made["N3", "1.0", joint, "4", "0.0"]
            < made["N3", "1.0", joint, "2", "0.0"]
            < made["N3", "1.0", joint, "1", "0.0"]
        )
        # Interfaces are paid for, and less than one large die at that.
        assert made["N3", "1.0", joint, "2", "0.0"] < made["N3", "1.0", joint, "2", "0.1"]
    defects = ("0.25", "0.5", "1.0", "2.0", "4.0")
    one, four = ([made["N5", d, "organic", dies, "0.0"] for d in defects] for dies in ("1", "4"))
    assert one == sorted(one)
    assert [a / b for a, b in zip(one, four, strict=True)] == sorted(a / b for a, b in zip(one, four, strict=True))
    # Chiplet Actuary: (1 + A D / 10)^-10 of 800 mm2 at 0.11 defects a cm2; its package of one die and of four.
    alone = found["N5", "1.0", "organic", "1", "0.0"]
    assert float(alone["yield"]) == pytest.approx((1 + 8 * 0.11 / 10) ** -10)
    assert made["N5", "1.0", "organic", "1", "0.0"] == pytest.approx(698.58, abs=0.005)
    assert made["N5", "1.0", "organic", "4", "0.0"] == pytest.approx(355.86, abs=0.005)
    for row in rows:
        parts = [float(row[name]) for name in row if name.endswith(" ($)")]
        assert sum(parts[:-2]) == pytest.approx(parts[-1])


def test_chiplets_save_money_and_lose_time(study: Study) -> None:
    rows = study("ex13_perf_cost_pareto")
    found = by([row for row in rows if row["package (W)"] == "1000.0"], "dies are", "dies", "D2D (TB/s)")
    alone, pair = found["one die", "1", "0.0"], found["one device", "2", "0.0"]
    assert float(pair["package ($)"]) < float(alone["package ($)"])
    assert float(pair["step (s)"]) == pytest.approx(float(alone["step (s)"]), rel=0.01)
    for dies in ("2", "4"):
        slow, *_, wide = (found["devices", dies, rate] for rate in ("0.25", "1.0", "4.0"))
        # A wider interface saves time, though it takes area from the units.
        assert float(wide["step (s)"]) < float(slow["step (s)"])
        assert float(wide["fp16 a device (TFLOP/s)"]) < float(slow["fp16 a device (TFLOP/s)"])
        assert float(pair["step (s)"]) < float(wide["step (s)"])
    for row in rows:
        beaten = [
            other for other in rows
            if float(other["step (s)"]) < float(row["step (s)"]) and float(other["$/Mtoken"]) < float(row["$/Mtoken"])
        ]  # fmt: skip
        assert not (beaten and row["Pareto"] == "yes")
        assert float(row["run (M$)"]) == pytest.approx(float(row["$/Mtoken"]) * 15, rel=1e-3)


def test_a_family_of_chiplets_trains_on_logic_and_serves_on_memory(study: Study) -> None:
    rows = study("ex21_chiplet_family")
    found = by(rows, "node", "memory", "dies are", "dies")
    # Newer logic shortens training more than decode steps, and newer memory decode steps more than training.
    for kind in ("one device", "UCIe advanced", "UCIe standard"):
        old, new = found["N7", "hbm4", kind, "4"], found["N3", "hbm4", kind, "4"]
        slow, fast = found["N5", "hbm3", kind, "2"], found["N5", "hbm4", kind, "2"]
        train, serve = "train step (s)", "TPOT (ms)"
        assert float(old[train]) / float(new[train]) > 1.5 > float(old[serve]) / float(new[serve]) >= 1.0
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
