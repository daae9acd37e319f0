"""`slipstick size`: the fewest GPUs for a rate, what it costs, and what is nearest where nothing will do."""

import json
from pathlib import Path

import pytest

from ..conftest import Cli

REQUESTS = ("--isl", "256", "--osl", "64", "--tp", "2", "--pp", "1")


@pytest.fixture
def size(cli: Cli, data: Path) -> Cli:
    """Size a server of a Llama of two layers."""
    config = str(data / "configs" / "tiny-llama.json")
    return lambda *words: cli("size", config, "--system", "dgx-h100", *words)


def test_the_plan_that_is_found_meets_what_is_asked(size: Cli) -> None:
    done = size(*REQUESTS, "--target-rps", "100", "--ttft", "100ms", "--tpot", "20ms", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    best = found["choices"][0]
    m = best["metrics"]
    assert m["ttft_s"] <= 0.1
    assert m["tpot_s"] <= 0.02
    assert m["requests_per_s"] == pytest.approx(100)
    assert best["most_requests_per_s"] >= 100 * (1 - 1e-6)
    assert best["num_gpus"] > 0
    assert [c["num_gpus"] for c in found["choices"]] == sorted(c["num_gpus"] for c in found["choices"])


def test_more_requests_never_take_fewer_gpus(size: Cli) -> None:
    counts = []
    for rate in ("10", "1000"):
        found = json.loads(
            size(*REQUESTS, "--target-rps", rate, "--tpot", "20ms", "--disagg", "off", "--format", "json").stdout
        )
        counts.append(found["choices"][0]["num_gpus"])
    assert counts == sorted(counts)


def test_pools_alone_may_be_asked_for(size: Cli) -> None:
    words = (*REQUESTS, "--target-rps", "100", "--tpot", "20ms", "--format", "json")
    only, never = (json.loads(size(*words, "--disagg", how).stdout)["choices"] for how in ("on", "off"))
    assert all("prefill" in choice["name"] for choice in only)
    assert not any("prefill" in choice["name"] for choice in never)


def test_ranks_that_share_out_caches_are_counted_and_kept(size: Cli) -> None:
    words = ("--isl", "256", "--osl", "64", "--tp", "1", "--pp", "1", "--cp", "2", "--target-rps", "10")
    done = size(*words, "--disagg", "off", "--format", "json")
    assert done.returncode == 0, done.stderr
    [choice] = json.loads(done.stdout)["choices"]
    plan = choice["inputs"]["plan"]
    assert (plan["cp"], choice["num_gpus"]) == (2, 2 * plan["dp"])
    assert "tp1 cp2" in choice["name"]


def test_a_screen_says_plan_room_and_price(size: Cli) -> None:
    done = size(*REQUESTS, "--target-rps", "100", "--tpot", "20ms")
    assert done.returncode == 0
    for words in ("100 requests/s", "TPOT <= 20 ms", "within the target", "x (tp2", "cost: $"):
        assert words in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--target-rps", "1", "--tpot", "1us"), 3, "TPOT 1 us asked; the least is"),
        (("--target-rps", "1", "--ttft", "1us"), 3, "TTFT 1 us asked; the least is"),
        (("--target-rps", "1", "--ttft", "2000"), 2, "--ttft: missing unit of '2000': give 2000ms or 2s"),
        (("--target-rps", "1", "--tpot", "0.05"), 2, "--tpot: missing unit of '0.05': give 50ms or 0.05s"),
        (("--target-rps", "100K", "--max-gpus", "2"), 3, "and 2 may be bought"),
        (("--target-rps", "0"), 2, "more than 0"),
        (("--target-rps", "1", "--gpus", "8"), 2, "--gpus: size finds the GPUs"),
        (("--target-rps", "1", "--isl", "1M"), 2, "positions"),
        (("--target-rps", "1", "--memory-utilization", "0.02"), 3, "no shape holds the model"),
    ],
)
def test_what_cannot_be_names_the_nearest(size: Cli, words: tuple[str, ...], code: int, said: str) -> None:
    done = size(*REQUESTS, *words)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr


def test_a_screen_says_the_types_and_what_a_batch_is_of(cli: Cli, data: Path) -> None:
    config = str(data / "configs" / "tiny-mixtral.json")
    words = ("size", config, "--system", "dgx-h100", "--target-rps", "9", "--isl", "64", "--osl", "8", "--tp", "1")
    done = cli(*words, "--pp", "1", "--kv-dtype", "fp8", "--disagg", "off")
    assert "bf16 kv fp8" in done.stdout, done.stderr
    assert "a replica; " in done.stdout
