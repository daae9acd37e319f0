"""`slipstick cost` as people and programs read it: one golden text a view, records that add up, rows for tables."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from slipstick.backends.machine.load import load_system, system_names
from slipstick.cost.money import Money, Terms, system_money
from slipstick.report.cost.cost_views import cost_record, cost_text
from slipstick.report.results.files import csv_text
from slipstick.report.results.tables import CostResult

GOLDEN = Path(__file__).parents[1] / "golden"
VIEWS = ("summary", "die", "package", "system", "tco", "carbon")
TERMS = {"market": Terms(), "build": Terms(basis="build"), "rented": Terms(rented=True)}


@cache
def dgx(terms: str = "market", gpus: int = 1024) -> Money:
    return system_money(load_system("dgx-h100"), gpus, TERMS[terms])


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_the_golden_one(view: str, request: pytest.FixtureRequest) -> None:
    """`pytest tests/report --update-golden` writes the files anew; read the difference before it is kept."""
    text, file = cost_text(dgx(), view), GOLDEN / f"dgx-h100.cost-{view}.txt"
    if request.config.getoption("--update-golden", default=False):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", system_names())
def test_records_of_the_catalogue_add_up(name: str) -> None:
    system = load_system(name)
    for terms in (TERMS["market"], TERMS["build"]):
        record = json.loads(json.dumps(cost_record(system_money(system, 512, terms)), allow_nan=False))
        bills = _mapping(record["bills"])
        for bill in bills.values():
            _adds_up(_mapping(bill))
        figures = _mapping(record["metrics"])
        assert _usd(bills["system"]) == pytest.approx(figures["usd_capex"], rel=1e-9)
        assert _usd(bills["GPU-hour"]) == pytest.approx(figures["usd_per_gpu_hour"], rel=1e-9)
        hours = _mapping(record["assumptions"])["hours_a_year"]
        assert _usd(bills["year"]) == pytest.approx(_usd(bills["GPU-hour"]) * 512 * float(str(hours)), rel=1e-9)
        made = _mapping(record["embodied_kg_co2e"])
        assert sum(map(_number, made.values())) == pytest.approx(figures["embodied_kg_co2e"], rel=1e-9)


def test_the_record_has_the_keys_of_its_schema() -> None:
    record = cost_record(dgx())
    assert list(record) == [
        "schema", "tool_version", "inputs", "assumptions", "metrics", "standing", "unpriced",
        "outdated", "bills", "embodied_kg_co2e",
    ]  # fmt: skip
    assert record["schema"] == "slipstick/cost/1"
    assert list(_mapping(record["bills"])) == ["package", "system", "year", "GPU-hour"]
    assert set(_mapping(record["metrics"])) == {
        "usd_capex", "usd_opex", "usd_tco", "usd_per_gpu_hour", "power_w", "embodied_kg_co2e",
    }  # fmt: skip
    assert set(_mapping(record["inputs"])) == {"system", "chip", "num_gpus", "prices", "basis", "rented"}


def test_what_is_rented_has_no_bill_of_a_system() -> None:
    assert list(_mapping(cost_record(dgx("rented"))["bills"])) == ["package", "year", "GPU-hour"]
    text = cost_text(dgx("rented"), "summary")
    assert "rent of a year" in text
    assert "capex" not in text
    assert "method" not in text


@pytest.mark.parametrize(
    ("view", "head", "first"),
    [
        ("summary", "line,usd", "package"),
        ("die", "line,usd", "gh100"),
        ("package", "line,usd", "package"),
        ("system", "line,usd", "system"),
        ("tco", "line,usd", "year"),
        ("carbon", "part,kg_co2e", "servers"),
    ],
)
def test_rows_for_tables(view: str, head: str, first: str) -> None:
    text = csv_text(CostResult(money=dgx(), view=view).to_columns())
    rows = list(csv.reader(io.StringIO(text)))
    assert text.splitlines()[0] == head
    assert rows[1][0] == first
    assert all(float(row[1]) >= 0 for row in rows[1:])
    assert len({row[0] for row in rows}) == len(rows)


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("view", VIEWS)
def test_tables_fit_a_screen(view: str, columns: int) -> None:
    head, *lines = cost_text(dgx("build"), view, columns).splitlines()
    tables = [line for line in lines if not line.startswith(("method", "energy", "not priced"))]
    assert all(len(line) <= max(columns, 60) for line in tables)
    assert "basis build" in head


def test_what_stands_idle_is_said() -> None:
    assert "6 of 8 GPUs stand idle: servers are bought whole" in cost_text(dgx(gpus=2), "summary")
    assert "idle" not in cost_text(dgx(), "summary")
    rack = cost_text(system_money(load_system("gb200-nvl72"), 4), "system")
    assert "68 of 72 GPUs stand idle: racks are bought whole" in rack


def test_a_die_of_a_package_is_counted_where_each_is_a_gpu() -> None:
    lines = cost_text(system_money(load_system("mi250x-node"), 8), "summary").splitlines()
    [package] = [line for line in lines if line.startswith("package manufacturing cost")]
    whole, each = (float(word.strip("$").replace(",", "")) for word in package.split()[-2:])
    assert each == pytest.approx(whole / 2, abs=1)


def _adds_up(bill: Mapping[str, object]) -> None:
    parts = bill.get("parts")
    if isinstance(parts, list):
        assert sum(_usd(part) for part in parts) == pytest.approx(_usd(bill), rel=1e-9), bill["name"]
        for part in parts:
            _adds_up(_mapping(part))


def _usd(bill: object) -> float:
    return _number(_mapping(bill)["usd"])


def _number(value: object) -> float:
    assert isinstance(value, float)
    return value


def _mapping(value: object) -> Mapping[str, object]:
    assert isinstance(value, dict)
    return value
