"""What an estimate says of money: lines of its screen, records, and reasons of every metric with figures that agree."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.cost.money import Terms, system_money
from slipstick.cost.run.training_run import TrainingRun
from slipstick.driver.estimate import Estimate, estimate, train, worth
from slipstick.driver.metrics import METRICS
from slipstick.ir.errors import UnknownNameError
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family, make_plan
from slipstick.report.catalogue.catalogue import list_text, show_text
from slipstick.report.cost.money import metrics_of, money_lines
from slipstick.report.explain.explain import explain_text
from slipstick.report.explain.money_reasons import OWNING, explain_cost
from slipstick.report.json_report import report_json
from slipstick.report.tables import report_text

Traced = Callable[[str], Graph]
TOKENS = 32 * 64


@pytest.fixture(scope="module")
def bare(traced: Traced) -> Estimate:
    plan = make_plan(num_gpus=16, tp=2, seq_len=64, global_batch=32, family=Family(sp=True))
    return estimate(traced("tiny-llama.train"), load_system("dgx-h100"), plan)


@pytest.fixture(scope="module")
def answer(bare: Estimate) -> Estimate:
    return worth(train(bare, TrainingRun(amount=1e12)))


@pytest.fixture(scope="module")
def rented(bare: Estimate) -> Estimate:
    return worth(bare, Terms(rented=True))


def test_the_screen_says_energy_then_money_then_the_run(answer: Estimate) -> None:
    energy, cost, run, *rest = money_lines(answer)
    assert re.fullmatch(
        r"energy: [\d,]+ W/GPU, [\d.]+ mJ/token \([\d.]+ mJ \.\. [\d.]+ mJ\), "
        r"[\d.]+ mJ including PUE; [\d.]+ kgCO2e for 1M tokens",
        energy,
    )
    assert re.fullmatch(r"cost: \$[\d.]+/GPU-hour owned at this power, \$[\d.]+ for 1M tokens, \$[\d.e-]+ a step", cost)
    assert re.match(r"the run: \$[\d,.]+[KMB]?, [\d,]+ kWh, [\d.,]+ tCO2e, of which ", run)
    assert rest == []
    assert cost in report_text(answer, 200)


def test_what_is_rented_does_not_cost_by_its_power(rented: Estimate) -> None:
    assert "$3.00/GPU-hour rented at prices of 2026-05, " in money_lines(rented)[1]
    assert rented.money is not None
    assert json.loads(report_json(rented))["money"]["assumptions"]["power"] == "rented"


def test_without_prices_nothing_is_said(bare: Estimate) -> None:
    assert money_lines(bare) == []
    assert "money" not in json.loads(report_json(bare))


def test_json_says_what_money_rests_on(answer: Estimate) -> None:
    report = json.loads(report_json(answer))
    money, inputs = report["money"], report["inputs"]["money"]
    assert (inputs["prices"], inputs["basis"], inputs["rented"]) == ("market", "market", False)
    assert money["assumptions"]["power"] == "of the step"
    assert sum(part["usd"] for part in money["gpu_hour"]["parts"]) == pytest.approx(money["gpu_hour"]["usd"])
    joules = sum(money["energy_j"].values())
    assert joules == pytest.approx(report["metrics"]["j_per_token_facility"] * TOKENS, rel=1e-9)
    assert set(report["metrics"]) <= set(METRICS)


def test_every_metric_of_money_is_listed_and_explained(answer: Estimate) -> None:
    listed = list_text("metrics", as_json=False)
    for name, value in metrics_of(answer.money).items():
        assert name in listed
        assert METRICS[name].meaning in show_text("metrics", name, as_json=False)
        head, meaning, *lines = explain_text(answer, name).splitlines()
        assert head.startswith(f"{name} = {value:.6g} (")
        assert meaning == f"  {METRICS[name].meaning}"
        assert any(line.startswith("  = ") or " = $" in line for line in lines), name
        # Down to numbers with a source.
        assert any(re.search(r"\[(datasheet|estimated|measured)\]", line) for line in lines) or name in (
            "tco2e_embodied", "model_flop_per_s_per_w"), name  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["usd_per_mtok", "usd_per_step", "tokens_per_usd", "usd_run", "j_per_token", "average_power_w", "kwh",
     "tco2e_operational", "model_flops_per_usd", "model_flop_per_s_per_w", "tokens_per_s_per_usd_capex"],
)  # fmt: skip
def test_the_figures_of_a_formula_give_the_metric_again(answer: Estimate, name: str) -> None:
    [formula] = [line for line in explain_text(answer, name).splitlines() if line.startswith("  = ")][:1]
    value = metrics_of(answer.money)[name]
    assert _worked_out(formula) == pytest.approx(value, rel=2e-4)


def test_the_power_of_a_step_is_said_where_it_counts(answer: Estimate, rented: Estimate) -> None:
    assert "W/GPU which the step draws" in explain_text(answer, "usd_run")
    assert "W/GPU which the step draws" not in explain_text(rented, "usd_per_mtok")
    assert "rent = $3.00" in explain_text(rented, "usd_per_mtok")


def test_the_largest_parts_of_the_energy_have_formulas(answer: Estimate) -> None:
    text = explain_text(answer, "j_per_token_facility")
    assert "building" in text
    assert "  hosts = " in text
    assert "prices.facility.pue.air: 1.5" in text
    assert "building" not in explain_text(answer, "j_per_token")


@pytest.mark.parametrize("name", OWNING)
def test_a_system_alone_explains_what_owning_it_costs(name: str) -> None:
    money = system_money(load_system("dgx-h100"), 1024)
    text = explain_cost(money, name)
    assert text.startswith(f"{name} = ")
    assert "[" in text
    assert explain_cost(money, "year").startswith("year = ")
    with pytest.raises(UnknownNameError, match="unknown line 'yaer'; did you mean 'year'"):
        explain_cost(money, "yaer")


def test_what_is_missing_stands_behind_the_money(bare: Estimate) -> None:
    table = bare.table
    poor = replace(table.system, server=None, rack=None)
    lines = money_lines(worth(replace(bare, table=replace(table, system=poor))))
    assert any(line.startswith("not priced: server: add a section server") for line in lines)


def _worked_out(formula: str) -> float:
    """Read `= 1e6 x 0.018 USD / 131,072 tokens` as arithmetic: numbers and signs, units by their prefix."""
    scale = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
    text = re.sub(r", [a-z' ]*in it,|, the time to train", "", formula)
    text = re.sub(r"([\d.e+-]+) ([numkMG]?)J\b(?!/)", lambda m: f"{float(m[1]) * scale[m[2]]!r}", text)
    found = re.findall(r"(?<![A-Za-z])\d[\d,]*\.?\d*(?:e[+-]?\d+)?|(?<= )[x/+](?= )|[()]", text)
    return float(eval("".join("*" if word == "x" else word.replace(",", "") for word in found), {"__builtins__": {}}))
