"""Charts show the numbers of the document that they are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import slipstick
from slipstick.ir.errors import UnknownNameError, UsageError
from slipstick.report.charts.chart import Chart
from slipstick.report.charts.documents import charts_of
from slipstick.report.charts.money import waterfall
from slipstick.report.charts.read import leaves, number, part
from slipstick.report.results.steps import StepResult


@pytest.fixture(scope="module")
def found() -> StepResult:
    graph = str(Path(__file__).parents[2] / "golden" / "tiny-llama.train.graph")
    return slipstick.estimate(graph, "dgx-h100", gpus=4, tp=2, seq=128, gbs=8)


@pytest.fixture(scope="module")
def charts(found: StepResult) -> Mapping[str, Chart]:
    return {chart.title: chart for chart in found.page().charts}


def total(chart: Chart, name: str) -> float:
    return sum(number(row[name]) for row in chart.data)


def test_bars_are_the_parts_of_the_step(found: StepResult, charts: Mapping[str, Chart]) -> None:
    chart = charts["Where the time of a step goes"]
    assert total(chart, "value") == pytest.approx(found.metrics["step_time_s"], rel=1e-12)
    values = [number(row["value"]) for row in chart.data]
    assert values == sorted(values, reverse=True)


def test_memory_ends_where_the_peak_is(found: StepResult, charts: Mapping[str, Chart]) -> None:
    chart = charts["Memory of a GPU"]
    assert number(chart.data[-1]["to"]) * 2**30 == pytest.approx(found.metrics["peak_mem_bytes"], rel=1e-12)
    assert [row["from"] for row in chart.data[1:]] == [row["to"] for row in chart.data[:-1]]


def test_layers_and_operators_take_what_their_nodes_take(found: StepResult, charts: Mapping[str, Chart]) -> None:
    # One stage: every node runs as often as its region, each micro-batch of 8/(4/2) sequences anew.
    from slipstick.report.trace.costed import costed_rows

    micro = found.plan.num_micro_batches
    assert micro == 4
    each = ("forward", "backward", "recompute")
    nodes = {row["node"] for row in found.to_dict()["nodes"]["rows"]}  # type: ignore[index]
    told = (row for row in costed_rows(found.answer) if row.node in nodes)
    whole_s = sum(row.time_s * row.count * (micro if row.phase in each else 1) for row in told)
    assert total(charts["Layer by layer"], "ms") / 1e3 == pytest.approx(whole_s, rel=1e-9)
    assert total(charts["Operators"], "value") <= whole_s * (1 + 1e-9)


def test_no_operator_computes_faster_than_the_chip(found: StepResult, charts: Mapping[str, Chart]) -> None:
    peak = float(found.answer.table.system.chip.matmul_flop_per_s("bf16"))
    rates = [number(row["rate"]) * 1e12 for row in charts["Roofline"].data]
    assert rates
    assert max(rates) <= peak


def test_slices_lie_within_the_step(found: StepResult, charts: Mapping[str, Chart]) -> None:
    data = charts["Timeline of a step"].data
    assert max(number(row["end"]) for row in data) == pytest.approx(found.metrics["step_time_s"] * 1e3, rel=1e-6)
    assert all(0 <= number(row["start"]) <= number(row["end"]) for row in data)


def test_memory_over_the_step_reaches_the_peak_and_no_more(found: StepResult, charts: Mapping[str, Chart]) -> None:
    held: dict[float, float] = {}
    for row in charts["Memory over a step"].data:
        held[number(row["at"])] = held.get(number(row["at"]), 0.0) + number(row["gib"]) * 2**30
    # Counters of a trace are whole bytes of each part.
    assert max(held.values()) == pytest.approx(found.metrics["peak_mem_bytes"], abs=8)


def test_what_helps_most_stands_first(found: StepResult, charts: Mapping[str, Chart]) -> None:
    slopes = found.whole_document()["elasticities"]
    assert isinstance(slopes, dict)
    first = charts["What would make it faster"].data[0]
    # 10 % more of a number of elasticity e makes the step 1.1**e - 1 longer.
    assert number(first["value"]) == pytest.approx(1.1 ** next(iter(slopes.values())) - 1, rel=1e-9)


def test_a_waterfall_adds_up_to_its_bill(found: StepResult) -> None:
    bill = part(part(found.to_dict(), "money"), "gpu_hour")
    chart = waterfall("bill", bill)
    assert sum(usd for _, usd in leaves(bill)) == pytest.approx(number(bill["usd"]), rel=1e-9)
    assert number(chart.data[-2]["to"]) == pytest.approx(number(chart.data[-1]["to"]), rel=1e-9)


def test_small_lines_of_a_bill_are_one_line() -> None:
    bill = {"usd": 55.0, "parts": [{"name": f"{k}", "usd": float(k)} for k in range(1, 11)]}
    many = {"usd": 2 * 55.0 + 100.0, "parts": [*bill["parts"], *bill["parts"], {"name": "big", "usd": 100.0}]}  # type: ignore[misc]
    data = waterfall("bill", many).data
    assert data[-2]["name"] == "8 smaller lines"
    assert number(data[-1]["to"]) == 210.0


def test_a_search_has_its_front_and_a_line_for_each_row() -> None:
    rows = [{"plan": f"tp{k}", "tp": k, "step_time_s": 1.0 / k, "usd_per_mtok": float(k)} for k in (1, 2, 4)]
    document = {
        "schema": "slipstick/search/1",
        "objectives": ["step_time_s", "usd_per_mtok"],
        "front": rows[:2],
        "best": rows,
    }
    front, lines = charts_of(document)
    assert [(row["x"], row["y"], row["class"]) for row in front.data] == [
        (1.0, 1.0, "Pareto-optimal"),
        (0.5, 2.0, "Pareto-optimal"),
        (0.25, 4.0, "best of the others"),
    ]
    assert {(row["row"], row["axis"]): row["at"] for row in lines.data}[1, "tp"] == pytest.approx(1 / 3)


def test_documents_of_other_kinds_and_broken_ones_have_no_charts() -> None:
    assert charts_of({}) == []
    assert charts_of({"schema": "slipstick/else/1", "breakdown": {"a": 1.0}}) == []
    broken = {
        "schema": "slipstick/report/1",
        "breakdown": {"a": "x"},
        "memory": 3,
        "nodes": {"rows": [3], "stages": [{}]},
        "money": {"gpu_hour": {"usd": None}},
        "timeline": {"slices": 4},
        "elasticities": None,
    }
    assert all(json.dumps(chart.whole(), allow_nan=False) for chart in charts_of(broken))


def test_numbers_that_are_none_and_letters_that_steer_are_written_out() -> None:
    whole = Chart("a", "b", {}, [{"x": float("nan"), "y": "\x1b[31mred"}]).whole()
    assert whole["data"] == {"values": [{"x": None, "y": "\\x1b[31mred"}]}


def test_a_chart_is_found_by_how_its_title_begins(found: StepResult) -> None:
    assert found.chart("roof").title == "Roofline"
    with pytest.raises(UnknownNameError, match="chart"):
        found.chart("pie")


def test_pictures_are_drawn_without_a_browser(found: StepResult, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    text = found.svg()
    assert text.startswith("<svg")
    assert text == found.svg()
    assert ">Where the time of a step goes</text>" in text
    assert found.save(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_notebook_gets_the_same_chart(found: StepResult) -> None:
    pytest.importorskip("altair")
    assert found.plot("operators").to_dict()["height"] == found.chart("operators").height


def test_without_what_draws_a_page_says_how_to_get_it(found: StepResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstick.report.charts.chart.find_spec", lambda name: None)
    page = found.html()
    assert "Charts need slipstick[report]: pip install &#39;slipstick[report]&#39;" in page
    assert len(page) < 100_000
    for call in (found.plot, found.svg):
        with pytest.raises(UsageError, match=r"charts need slipstick\[report\]"):
            call()


def test_nre_is_spread_over_the_packages_that_are_made() -> None:
    """A package costs what making it does and NRE / volume; a sweep with a volume has that in its cost."""
    spaces = [
        slipstick.sweep(node="N5", die_area="400,600mm2", power="700W", gpus=64).to_dict(),
        slipstick.sweep(node="N5", die_area="400,600mm2", power="700W", gpus=64, volume=1e5).to_dict(),
    ]
    plain = spaces[0]["designs"][0]  # type: ignore[index]
    for document in spaces:
        (chart,) = (one for one in charts_of(document) if one.title == "NRE over production volume")
        row = document["designs"][0]  # type: ignore[index]
        assert row["nre_usd"] > 1e8
        for one in chart.data:
            each = plain["package_usd"] + row["nre_usd"] / number(one["volume"])
            assert number(one["usd"]) == pytest.approx(each, rel=1e-9)
    with_volume = spaces[1]["designs"][0]  # type: ignore[index]
    assert with_volume["package_nre_usd"] == pytest.approx(with_volume["nre_usd"] / 1e5, rel=1e-12)
    assert with_volume["package_usd"] - with_volume["package_nre_usd"] == pytest.approx(plain["package_usd"], rel=1e-9)
