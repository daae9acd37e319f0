"""What a system and its steps cost as one record: the same figures from both sides, terms, and what is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_system, system_names
from slipstick.backends.machine.system import System
from slipstick.cost.bill import Bill
from slipstick.cost.money import Money, StepMoney, Terms, system_money
from slipstick.driver.estimate import Estimate, estimate, worth
from slipstick.ir.errors import UnknownNameError
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family, make_plan
from slipstick.report.numbers import one

Traced = Callable[[str], Graph]
RENTED = Terms(rented=True)


@pytest.fixture(scope="module")
def stepped(traced: Traced) -> Callable[[System], Estimate]:
    plan = make_plan(num_gpus=16, tp=2, family=Family(sp=True), seq_len=64, micro_batch=1, global_batch=32)
    return lambda system: estimate(traced("tiny-llama.train"), system, plan)


@cache
def dgx() -> System:
    return load_system("dgx-h100")


def priced(answer: Estimate, terms: Terms | None = None) -> StepMoney:
    found = worth(answer, terms).money
    assert found is not None
    return found


def usd(money: Money, line: str) -> float:
    return float(money.owned.gpu_hour.line(line).usd)


def test_a_step_costs_what_its_system_does_at_the_power_that_it_draws(stepped: Callable[[System], Estimate]) -> None:
    system = load_system("dgx-h100")
    alone, step = system_money(system, 16), priced(stepped(system))
    for line in ("capital", "interest", "operations"):
        assert one(step.owned.gpu_hour.line(line).usd) == pytest.approx(usd(alone, line), rel=1e-12)
    part = step.metrics["average_power_w"] / alone.cost.power_w
    assert 0.3 < part < 1.0
    assert one(step.owned.gpu_hour.line("energy").usd) == pytest.approx(part * usd(alone, "energy"), rel=1e-9)


@pytest.mark.parametrize("load", ["1", "0.6"])
def test_at_design_power_both_are_the_same(stepped: Callable[[System], Estimate], load: str) -> None:
    power = ["prices.energy.power_model=design_power", f"prices.energy.average_load={load}"]
    system = load_system("dgx-h100", power)
    step = priced(stepped(system))
    expected = float(system_money(system, 16).owned.usd_per_gpu_hour)
    assert step.metrics["usd_per_gpu_hour"] == pytest.approx(expected, rel=1e-9)


def test_what_is_rented_costs_the_same_whatever_it_draws(stepped: Callable[[System], Estimate]) -> None:
    system = load_system("dgx-h100", ["prices.cloud.H100-SXM5-80GB.price=2.5USD/h"])
    alone, step = system_money(system, 16, RENTED), priced(stepped(system), RENTED)
    assert float(alone.owned.usd_per_gpu_hour) == pytest.approx(2.5)
    assert step.metrics["usd_per_gpu_hour"] == pytest.approx(2.5)
    assert [bill.name for bill in alone.bills] == ["package", "year", "GPU-hour"]
    assert alone.owned.capex_usd == 0
    # Whoever owns the machines, they draw the same power.
    assert step.metrics["j_per_token"] == pytest.approx(priced(stepped(system)).metrics["j_per_token"])


def test_a_chip_that_nobody_rents_out_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(UnknownNameError, match=r"'A40-48GB'; did you mean .*; a file for --prices may have cloud"):
        system_money(load_system("a40-server"), 8, RENTED)


def test_servers_and_racks_are_bought_whole() -> None:
    bought = [float(system_money(load_system("dgx-h100"), n).cost.gpus_bought) for n in (1, 8, 9, 1024)]
    assert bought == [8, 8, 16, 1024]
    rack = load_system("gb200-nvl72")
    assert [float(system_money(rack, n).cost.gpus_bought) for n in (2, 72, 73)] == [72, 72, 144]
    assert float(system_money(rack, 2, Terms(basis="build")).cost.gpus_bought) == 4


def test_what_nobody_says_is_named() -> None:
    bare = replace(load_system("dgx-h100"), package=None, server=None, rack=None, host=None)
    missing = system_money(bare, 8).unpriced
    for words in ("packages: add a section package", "server: add a section server", "racks: add a section rack",
                  "carbon of packages", "carbon of host memory"):  # fmt: skip
        assert any(line.startswith(words) for line in missing), words
    assert all("server" not in line for line in system_money(bare, 8, RENTED).unpriced)


@pytest.mark.parametrize("name", system_names())
def test_a_year_is_its_hours_and_a_life_its_years(name: str) -> None:
    owned = system_money(load_system(name), 100).owned
    assert float(owned.gpu_hour.usd) == pytest.approx(float(owned.usd_per_gpu_hour), rel=1e-12)
    assert float(owned.gpu_hour.usd) * 100 * owned.hours == pytest.approx(float(owned.year.usd), rel=1e-12)
    assert float(owned.tco_usd) == pytest.approx(float(owned.year.usd) * owned.life_years, rel=1e-12)
    written_off = float(owned.year.line("capital").usd) * owned.life_years
    assert float(owned.opex_usd) + written_off == pytest.approx(float(owned.tco_usd), rel=1e-12)


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_more_gpus_never_cost_less_in_all(some: int, other: int) -> None:
    few, many = (system_money(dgx(), n).cost for n in sorted((some, other)))
    assert float(few.servers.bill.usd) <= float(many.servers.bill.usd)
    assert float(few.power_w) <= float(many.power_w)


def test_one_of_a_thing_is_the_thing() -> None:
    die = Bill("die", 2.0, "w / n", {"w": 6.0, "n": 3.0})
    assert die.times(1.0) == die
    assert die.times(1.0, "chip") == replace(die, name="chip")
    twice = die.times(2.0)
    assert (twice.usd, twice.formula, twice.values["count"]) == (4.0, "count * (w / n)", 2.0)
