"""`slipstick choose --rps`: fleets by system and load, percentiles that simulated requests keep, spares, days."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slipstick.cost.serving.traffic.day import Day, diurnal, of_trace
from slipstick.cost.serving.traffic.sizes import Fixed, LengthMix
from slipstick.cost.serving.traffic.traffic import poisson
from slipstick.ir.errors import UsageError

from ..conftest import Cli

SYSTEMS = ("--system", "dgx-h100,dgx-a100-80gb", "--tp", "1", "--pp", "1", "--disagg", "off", "-q")
LENGTHS = ("--isl", "256", "--osl", "64")
LIMITS = ("--ttft", "p99:100ms", "--tpot", "p95:20ms")


@pytest.fixture
def choose(cli: Cli, data: Path) -> Cli:
    """Choose a fleet for a Llama of two layers."""
    config = str(data / "configs" / "tiny-llama.json")
    return lambda *words: cli("choose", config, *SYSTEMS, *LENGTHS, *words)


def test_the_simulation_keeps_the_percentiles_and_the_break_even_is_where_costs_are_equal(choose: Cli) -> None:
    done = choose("--rps", "200", *LIMITS, "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["fleets"]
    assert [one["place"] for one in found] == [1, 2]
    for one in found:
        assert one["simulated"]["ttft_s"] <= 0.1
        assert one["simulated"]["tpot_s"] <= 0.02
    first, other = found
    costs = other["break_even_usd_per_gpu_hour"] * other["num_gpus"]
    assert costs == pytest.approx(first["metrics"]["usd_per_hour"], rel=1e-12)


def test_fleets_too_near_to_tell_apart_are_marked(choose: Cli) -> None:
    done = choose("--rps", "200", *LIMITS)
    document = json.loads(choose("--rps", "200", *LIMITS, "--format", "json").stdout)
    ties = [one["ties_with_first"] for one in document["fleets"]]
    assert ties[0] is False
    assert ("2= " in done.stdout) == ties[1]
    assert ("too near" in done.stdout) == ties[1]


def test_spare_replicas_are_bought_beyond_what_the_load_takes(choose: Cli) -> None:
    plain, spare = (
        json.loads(choose("--rps", "200", *LIMITS, "--spare", n, "--format", "json").stdout)["fleets"] for n in "02"
    )
    gpus = [{one["system"]: one["num_gpus"] for one in fleets} for fleets in (plain, spare)]
    assert gpus[1] == {system: num + 2 for system, num in gpus[0].items()}


def test_a_day_is_answered_at_its_peak_and_paid_for_at_its_mean(choose: Cli) -> None:
    flat = json.loads(choose("--rps", "300", *LIMITS, "--format", "json").stdout)["fleets"]
    day = json.loads(choose("--rps", "diurnal:300,60", *LIMITS, "--format", "json").stdout)["fleets"]
    assert [one["num_gpus"] for one in day] == [one["num_gpus"] for one in flat]
    for one, other in zip(day, flat, strict=True):
        assert one["metrics"]["busy_day"] == pytest.approx(0.6)
        # Machines cost the same while they write three fifths of the tokens; power falls a little.
        ratio = one["metrics"]["usd_per_mtok_output_day"] / other["metrics"]["usd_per_mtok_output"]
        assert 1.0 < ratio <= 1.0 / 0.6
    lines = choose("--rps", "diurnal:300,60", *LIMITS).stdout
    assert "for 1M tokens out over the day" in lines


def test_winners_are_said_by_region_of_load(choose: Cli) -> None:
    lines = choose("--rps", "10:80", "--tpot", "20ms").stdout.splitlines()
    told = [line for line in lines if "requests/s: " in line and "tiny" not in line]
    assert told
    assert sum("10" in line for line in told) >= 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rps", "10", "--gpus", "8"), "--gpus: of a training run"),
        (("--gpus", "8"), "--isl: of a fleet: add --rps"),
        (("--rps", "10", "--ttft", "p20:1s"), "allowed: p50 to p99.9"),
        (("--rps", "10", "--ttft", "99:1s"), "as in p99:500ms"),
        (("--rps", "10", "--objective", "time"), "of a fleet cost, energy, carbon"),
        (("--rps", "80:10"), "as in 10:1000"),
        (("--rps", "diurnal:10,20"), "the peak, then the least"),
    ],
)
def test_what_is_refused(choose: Cli, words: tuple[str, ...], said: str) -> None:
    done = choose(*words)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_day_has_the_mean_of_its_hours_and_a_trace_its_own() -> None:
    day = diurnal(500.0, 100.0)
    assert [day.peak_per_s, day.mean_per_s] == pytest.approx([500.0, 300.0])
    assert sum(day.shares) == pytest.approx(1.0)
    traffic = poisson(20.0, LengthMix(Fixed(8), Fixed(8)), 24_000)
    held = of_trace("trace.csv", traffic)
    assert held.mean_per_s == pytest.approx(traffic.request_rate, rel=1e-3)
    # A thousand requests an hour-long part: three standard deviations are a tenth.
    assert held.peak_per_s == pytest.approx(20.0, rel=0.1)
    with pytest.raises(UsageError):
        Day("nothing", (0.0,), (1.0,))


def test_the_fleet_is_the_first_of_all_that_size_simulates(choose: Cli, cli: Cli, data: Path) -> None:
    """Plans that come behind whatever their requests take are not simulated, and change nothing."""
    config = str(data / "configs" / "tiny-llama.json")
    free = ("--disagg", "auto", *LENGTHS, *LIMITS, "--format", "json")
    [chosen] = json.loads(choose("--rps", "200", "--system", "dgx-h100", *free).stdout)["fleets"]
    asked = ("--tp", "1", "--pp", "1", "-q", "--system", "dgx-h100")
    sized = json.loads(cli("size", config, "--target-rps", "200", *asked, *free).stdout)["choices"]
    assert len(sized) >= 1
    assert (chosen["plan"], chosen["num_gpus"]) == (sized[0]["name"], sized[0]["num_gpus"])


def test_fleets_are_ranked_under_every_book_of_prices(choose: Cli) -> None:
    """The order under a book is that of the fleets priced by it alone; plans stay."""
    words = ("--rps", "10:20", "--tpot", "20ms", "--format", "json")
    every = json.loads(choose(*words, "--prices", "all").stdout)
    alone = {book: json.loads(choose(*words, "--prices", book).stdout) for book in every["orders"][0]["orders"]}
    assert set(alone) >= {"market", "catch"}
    for at in every["orders"]:
        for book, names in at["orders"].items():
            fleets = [one for one in alone[book]["fleets"] if one["rate_per_s"] == at["rate_per_s"]]
            assert names == [one["system"] for one in fleets]
    assert every["fleets"] == alone["market"]["fleets"]
    assert "prices catch: " in choose(*words[:4], "--prices", "all").stdout
    assert "prices catch: " in choose("--rps", "10", "--also", "llama-3.1-8b rps=1", "--prices", "all").stdout
