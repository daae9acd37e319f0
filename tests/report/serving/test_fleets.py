"""Fleets of several systems: their order, and the price at which one costs what another does."""

import json
from typing import cast

import pytest

from slipstick import choose, size
from slipstick.report.serving.fleets import FleetResult, known_of, ranked, usd_per_hour


@pytest.fixture(scope="module")
def found() -> FleetResult:
    result = choose(
        "llama-3.1-8b", "dgx-h100,dgx-a100-80gb,xeon-server", rps="20,200", isl="512", osl="128", ttft="1s",
        tpot="15ms", engine="vllm",
    )  # fmt: skip
    return cast("FleetResult", result)


def test_the_cheapest_comes_first(found: FleetResult) -> None:
    for fleets in found.found.fleets:
        dollars = [one.metrics["usd_per_hour"] for one in fleets]
        assert dollars == sorted(dollars)
        gpus = [one.num_gpus for one in ranked(fleets, "num_gpus").candidates]
        assert gpus == sorted(gpus)


def test_an_hour_costs_its_gpus_at_the_price_of_one(found: FleetResult) -> None:
    for one in found.found.fleets[0]:
        by_gpus = known_of(one.answer)["usd_per_gpu_hour"] * one.choice.num_gpus
        assert usd_per_hour(one.answer) == pytest.approx(by_gpus, rel=1e-9)


def test_at_the_price_that_breaks_even_two_fleets_cost_the_same(found: FleetResult) -> None:
    first, other = found.found.fleets[1][:2]
    price = found.found.ranking(1).break_even(1)
    assert price is not None
    assert price * other.choice.num_gpus == pytest.approx(first.metrics["usd_per_hour"], rel=1e-9)
    assert price < other.metrics["usd_per_gpu_hour"]


def test_the_fleet_of_a_system_is_what_size_finds_on_it(found: FleetResult) -> None:
    alone = size(
        "llama-3.1-8b", "dgx-h100", target_rps="200", isl="512", osl="128", ttft="1s", tpot="15ms", engine="vllm"
    )
    best = json.loads(alone.json())["choices"][0]
    rows = json.loads(found.json())["fleets"]
    [same] = [row for row in rows if row["system"] == "dgx-h100" and row["rate_per_s"] == 200.0]
    assert (same["plan"], same["num_gpus"]) == (best["name"], best["num_gpus"])
    assert same["metrics"]["usd_per_mtok_output"] == best["metrics"]["usd_per_mtok_output"]


def test_systems_that_do_not_answer_in_time_are_left_out_with_the_reason(found: FleetResult) -> None:
    assert "xeon-server" in found.found.left_out[0]
    assert "xeon-server is left out: " in found.text()
    assert [row["rate_per_s"] for row in json.loads(found.json())["left_out"]] == [20.0, 200.0]


def test_the_text_says_who_wins_at_which_rate(found: FleetResult) -> None:
    # One system wins at both rates.
    last = found.text().rstrip().splitlines()[-1]
    assert last.split(":")[0] == "20 to 200 requests/s"
