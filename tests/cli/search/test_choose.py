"""`slipstick choose` on the command line: the table, the JSON, the plan of the winner, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., "CompletedProcess[str]"]
GRAPH = str(Path("tests/golden/tiny-llama.train.graph"))
ASKED = ("choose", GRAPH, "--seq", "512", "--gbs", "16", "--tokens", "1B", "--gpus", "8:16", "-q")
SYSTEMS = ("--system", "dgx-h100,dgx-a100-80gb")


def told(cli: Cli, *words: str) -> dict[str, object]:
    done = cli(*ASKED, *words, "--format", "json")
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_the_table_has_a_line_for_each_system_and_what_would_change_the_order(cli: Cli) -> None:
    done = cli(*ASKED, *SYSTEMS)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[1].startswith("2 systems of 8, 16 GPUs; ")
    assert sorted(line.split()[1] for line in lines[4:6]) == ["dgx-a100-80gb", "dgx-h100"]
    assert "/GPU-hour (now $" in done.stdout
    every = cli(*ASKED, *SYSTEMS, "--every").stdout.splitlines()
    assert len([line for line in every if " tp1 " in line or " tp2 " in line or " tp4 " in line]) == 4


def test_the_json_has_every_cluster_and_the_best_of_each_system(cli: Cli) -> None:
    found = told(cli, *SYSTEMS)
    clusters, best = found["clusters"], found["best"]
    assert isinstance(clusters, list)
    assert isinstance(best, list)
    assert (len(clusters), len(best)) == (4, 2)
    costs = [one["metrics"]["usd_run"] for one in best]
    assert costs == sorted(costs)
    assert costs[0] == min(one["metrics"]["usd_run"] for one in clusters)
    price = best[1]["break_even_usd_per_gpu_hour"]
    assert price * best[1]["metrics"]["gpu_hours"] == pytest.approx(costs[0], rel=1e-12)


def test_intervals_are_those_of_an_estimate_and_decide_what_is_a_tie(cli: Cli) -> None:
    found = told(cli, *SYSTEMS)
    best = found["best"]
    assert isinstance(best, list)
    spans = [one["intervals"]["metrics"]["usd_run"] for one in best]
    for one, span in zip(best, spans, strict=True):
        assert span["least"] < span["low"] < span["high"] < span["most"]
        assert one["intervals"]["evidence"]["chip"] == "this chip"
        # Dollars of a run follow the time of a step.
        time = one["intervals"]["metrics"]["train_time_s"]
        assert span["high"] / one["metrics"]["usd_run"] == pytest.approx(time["high"] / one["metrics"]["train_time_s"])
    halves = [math.log(span["high"] / span["low"]) / 2.0 for span in spans]
    lead = math.log(best[1]["metrics"]["usd_run"] / best[0]["metrics"]["usd_run"])
    # Both have the same kind of band, so that moving to its middle changes nothing.
    assert best[1]["ties_with_first"] == (lead <= math.hypot(*halves))
    assert best[0]["ties_with_first"] is False


def test_a_deadline_within_the_band_is_said_to_be_unsure(cli: Cli) -> None:
    first = told(cli, "--system", "dgx-h100")["best"]
    assert isinstance(first, list)
    days = first[0]["metrics"]["train_time_s"] * 1.01 / 86400.0
    assert "may miss the deadline" in cli(*ASKED, "--system", "dgx-h100", "--deadline", f"{days}d").stdout
    assert "may m" not in cli(*ASKED, "--system", "dgx-h100", "--deadline", f"{days * 100}d").stdout


def test_the_best_plan_estimates_to_the_same_step(cli: Cli, tmp_path: Path) -> None:
    found = told(cli, *SYSTEMS, "--best-plan", str(tmp_path / "best.yaml"), "--objective", "time")
    best = found["best"]
    assert isinstance(best, list)
    done = cli("estimate", "--plan", str(tmp_path / "best.yaml"), "--format", "json", "-q", GRAPH)
    assert json.loads(done.stdout)["metrics"]["step_time_s"] == best[0]["metrics"]["step_time_s"]


def test_a_limit_that_is_broken_is_said_with_how_far(cli: Cli) -> None:
    done = cli(*ASKED, *SYSTEMS, "--deadline", "1s", "--budget", "$1k", "--power", "1W")
    assert done.returncode == 0, done.stderr
    assert "breaks its deadline: " in done.stdout
    assert "breaks its power: " in done.stdout
    assert " times what is asked" in done.stdout
    assert "/GPU-hour (now" not in done.stdout


def test_a_budget_that_nothing_is_known_of_is_broken_by_no_number(cli: Cli) -> None:
    # Nobody rents this chip in the price book.
    done = cli(*ASKED, "--system", "gb200-nvl72", "--rent", "--budget", "1M", "--format", "json")
    assert done.returncode == 0, done.stderr
    [best] = json.loads(done.stdout)["best"]
    assert best["broken"] == {"usd_run": None}


def test_a_flag_of_a_plan_fixes_it(cli: Cli) -> None:
    found = told(cli, *SYSTEMS, "--tp", "4", "--mbs", "1")
    clusters = found["clusters"]
    assert isinstance(clusters, list)
    assert all("tp4" in one["plan"] and "mbs1" in one["plan"] for one in clusters)


def test_a_system_that_cannot_run_it_is_left_out_with_why(cli: Cli) -> None:
    done = cli(*ASKED, "--system", "dgx-h100,dgx-a100-80gb", "--precision", "fp8")
    assert done.returncode == 0, done.stderr
    assert "dgx-a100-80gb is left out: " in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--gpus", "many"), "--gpus many: 1 to 200 numbers"),
        (("--gpus", "0:8"), "--gpus 0:8: 1 to 200 numbers"),
        (("--system", "dgx-h10"), "did you mean 'dgx-h100'?"),
        (("--deadline", "60"), "--deadline"),
        (("--passes", "shard"), "--passes says nothing to a choice of clusters"),
    ],
)
def test_what_makes_no_sense_is_refused(cli: Cli, words: tuple[str, ...], message: str) -> None:
    done = cli(*ASKED, *SYSTEMS, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_choice_needs_the_length_of_the_run(cli: Cli) -> None:
    words = [word for word in ASKED if word not in ("--tokens", "1B")]
    done = cli(*words, *SYSTEMS)
    assert done.returncode == 2
    assert "needs the length of the run: --tokens 15T" in done.stderr


def test_nothing_that_fits_is_no_answer(cli: Cli) -> None:
    done = cli(
        "choose", "llama-3.1-405b", "--seq", "4096", "--gbs", "8", "--tokens", "1B", "--gpus", "8", "--system",
        "dgx-a100-80gb", "-q",
    )  # fmt: skip
    assert done.returncode == 3
    assert "plans is left" in done.stderr


def test_what_is_set_moves_times_and_says_what_it_outdates(cli: Cli) -> None:
    """A faster memory shortens steps; the price of the server is then of another machine, that of a part is not."""
    plain, faster = (
        told(cli, "--system", "dgx-h100", "--tp", "1", *more)["best"][0]  # type: ignore[index]
        for more in ((), ("--set", "chip.memory.hbm.bandwidth=8TB/s"))
    )
    assert faster["metrics"]["step_time_s"] < plain["metrics"]["step_time_s"]
    assert plain["outdated"] == []
    assert any("server.price" in line for line in faster["outdated"])
    text = cli(*ASKED, "--system", "dgx-h100", "--set", "chip.memory.hbm.bandwidth=8TB/s").stdout
    assert "no sum is of this machine: server.price" in text
    wired = told(cli, "--system", "dgx-h100", "--tp", "1", "--set", "nic=800g")["best"][0]  # type: ignore[index]
    assert wired["outdated"] == []
    assert wired["metrics"]["usd_run"] != plain["metrics"]["usd_run"]


def test_a_deadline_that_is_missed_says_how_many_gpus_would_keep_it(cli: Cli) -> None:
    done = cli(*ASKED, "--system", "dgx-h100", "--deadline", "1min")
    assert "GPUs would keep it if each were as fast" in done.stdout


def test_without_a_rent_power_and_carbon_stay_and_the_reason_is_said(cli: Cli) -> None:
    found = told(cli, "--system", "dgx-h100,l40s-server", "--rent")["best"]
    assert isinstance(found, list)
    other = next(one for one in found if one["system"] == "l40s-server")
    assert "prices.cloud" in other["unpriced"]
    assert {"facility_power_w", "tco2e", "usd_run_owned"} <= set(other["metrics"])
    assert "usd_run" not in other["metrics"]
    text = cli(*ASKED, "--system", "dgx-h100,l40s-server").stdout
    assert "no rent, prices.cloud has no price of their chips: l40s-server" in text
