"""`--autoscale`: replicas of a server that come and go with simulated requests, beside a fixed fleet."""

import json
from pathlib import Path

import pytest

from ..conftest import Cli
from .conftest import report

RULE: dict[str, object] = {"least": 1, "most": 4, "of": "rps", "target": 20.0}


SCALING = ("--isl", "64", "--osl", "32", "--serve", "steps:5@20s+60@30s+5@30s", "--ttft", "1s")


def test_replicas_come_and_go_beside_a_fixed_fleet(serve: Cli) -> None:
    rule = "--autoscale", "1:4,rps=20,interval=5s,down=10s,startup=5s"
    found = report(serve, *SCALING, *rule)
    m, scaling = found["metrics"], found["autoscaling"]
    assert {name: scaling[name] for name in ("least", "most", "of", "target")} == RULE
    levels: list[dict[str, float]] = json.loads(json.dumps(scaling["replicas"]))
    assert (levels[0]["with_gpus"], levels[-1]["serving"], m["replicas_most"]) == (1, 1, 4.0)
    # One GPU a replica: hours are the area below the levels; and of all four all the time.
    ends = [*(row["at_s"] for row in levels[1:]), scaling["span_s"]]
    area = sum(row["with_gpus"] * (end - row["at_s"]) for row, end in zip(levels, ends, strict=True))
    assert m["gpu_hours"] == pytest.approx(area / 3600)
    assert m["replicas_mean"] == pytest.approx(area / scaling["span_s"])
    fixed = report(serve, *SCALING, "--gpus", "4")["metrics"]
    for name in ("ttft_p50_s", "ttft_p99_s", "tpot_p90_s"):
        assert m[f"fixed_{name}"] == fixed[name]
    assert m["fixed_goodput_share"] == fixed["request_goodput_share"] >= m["request_goodput_share"]
    assert m["gpu_hours_fixed"] == pytest.approx(4 * fixed["duration_s"] / 3600)
    assert m["usd_run"] / m["usd_run_fixed"] == pytest.approx(m["gpu_hours"] / m["gpu_hours_fixed"])
    assert m["usd_per_request"] == pytest.approx(m["usd_run"] / m["num_requests"])
    # Sums are of what is answered, rates a GPU of those that are there.
    assert m["requests_per_s"] == pytest.approx(m["num_requests"] / m["duration_s"])
    assert m["tokens_per_s_per_gpu"] == pytest.approx(m["tokens_per_s"] / m["replicas_mean"])
    assert "1 to 4 replicas at 20 requests/s a replica" in " ".join(found["warnings"])


def test_as_many_replicas_at_least_as_at_most_are_a_fixed_fleet(serve: Cli) -> None:
    words = ("--isl", "64", "--osl", "32", "--serve", "poisson:20,n=300")
    fixed, scaled = report(serve, *words, "--gpus", "3"), report(serve, *words, "--autoscale", "3:3")
    assert {**scaled["metrics"], **fixed["metrics"]} == scaled["metrics"]
    assert scaled["breakdown"] == fixed["breakdown"]


def test_a_target_of_a_replica_is_a_share_of_what_it_does_within_the_limit(serve: Cli) -> None:
    words = ("--isl", "64", "--osl", "32", "--ttft", "50ms")
    alone = report(serve, *words)["metrics"]["concurrency"]
    found = report(serve, *words, "--serve", "poisson:20,n=50", "--autoscale", "1:2")["autoscaling"]
    # Requests that come at random hide behind no other: fewer of them than of those in step.
    assert 0.35 * alone < found["target"] <= 0.7 * alone


def test_a_page_and_a_terminal_show_replicas_over_time(serve: Cli, tmp_path: Path) -> None:
    page, words = tmp_path / "answer.html", (*SCALING, "--autoscale", "1:4,rps=20,interval=5s,down=10s,startup=5s")
    assert serve(*words, "-o", str(page)).returncode == 0
    assert "Replicas over time" in page.read_text()
    shown = serve(*words, "--plot").stdout
    assert "Replicas over time" in shown
    assert "r take requests  g have GPUs" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--autoscale", "1:2"), "add --serve"),
        (("--autoscale", "1:2", "--disagg", "1:1", "--serve", "burst:2"), "--disagg has two"),
        (("--autoscale", "1:2", "--mtbf", "1h", "--serve", "burst:2"), "not both at once"),
        (("--autoscale", "2", "--serve", "burst:2"), "as in 1:8,target=32"),
        (("--autoscale", "3:2", "--serve", "burst:2"), "0 <= MIN <= MAX"),
        (("--autoscale", "1:20000", "--serve", "burst:2"), "0 to 10,000"),
        (("--autoscale", "1:2", "--dp", "4", "--serve", "burst:2"), "or give --dp 2"),
        (("--autoscale", "1:2,tagret=2", "--serve", "burst:2"), "did you mean 'target'"),
        (("--autoscale", "1:2,target=2,rps=1", "--serve", "burst:2"), "give one"),
        (("--autoscale", "1:2,target=x", "--serve", "burst:2"), "'x' is no number"),
        (("--autoscale", "1:2,startup=5", "--serve", "burst:2"), "missing unit"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(serve: Cli, words: tuple[str, ...], said: str) -> None:
    done = serve("--isl", "64", "--osl", "32", *words)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
