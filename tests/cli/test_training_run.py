"""Flags of a training run: what they print, what goes into the report, what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., CompletedProcess[str]]
SAVED = ("--checkpoint-bandwidth", "1GB/s")


def test_the_screen_says_how_long_the_run_is(tiny: Cli) -> None:
    done = tiny("--gbs", "8", "--tokens", "1.024M")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    start = lines.index("Training run")
    # 1.024e6 / (8 x 128).
    assert lines[start + 1].split() == ["steps", "1,000", "of", "1,024", "tokens"]
    assert lines[start + 2].startswith("time to train")
    assert lines[start + 3].startswith("GPU-hours")
    assert "goodput" not in done.stdout


def test_the_screen_says_what_failures_cost(tiny: Cli) -> None:
    done = tiny("--steps", "1M", "--mtbf", "50000h", *SAVED, "--checkpoint-async", "--restart-time", "5min")
    for words in (", of which steps ", "goodput", "lost ", "checkpoint ", "the best", "in which it is written",
                  "one in 2,083 days (of a GPU: 50,000 h), restart in 5 min"):  # fmt: skip
        assert words in done.stdout


def test_nothing_is_said_of_a_run_that_nobody_asked_for(tiny: Cli) -> None:
    assert "Training run" not in tiny().stdout
    assert "run" not in json.loads(tiny("--format", "json").stdout)


def test_json_has_the_run_and_what_was_asked(tiny: Cli) -> None:
    done = tiny("--samples", "3K", "--mtbf", "8h/node", *SAVED, "--checkpoint-every", "2000steps", "--format", "json")
    report = json.loads(done.stdout)
    metrics, run = report["metrics"], report["run"]
    assert metrics["num_steps"] == 3000
    assert metrics["train_time_s"] * metrics["train_goodput"] == pytest.approx(3000 * metrics["step_time_s"], rel=1e-12)
    assert sum(run["time_shares"].values()) == pytest.approx(1.0, abs=1e-12)
    assert run["checkpoints"]["every_steps"] == 2000
    asked = report["inputs"]["run"]
    assert (asked["amount"], asked["unit"]) == (3000, "samples")
    assert asked["failures"] == {"mtbf_s": 8 * 3600, "of": "node", "restart_s": 600}


def test_compile_writes_the_same_report(cli: Cli, data: Path) -> None:
    config = str(data / "configs" / "tiny-llama.json")
    words = (config, "--system", "dgx-h100", "--tokens", "1B")
    assert cli("compile", *words, "--emit", "report").stdout == cli("estimate", *words, "--format", "json").stdout
    refused = cli("compile", *words, "--emit", "costed")
    assert refused.returncode == 2
    assert "--emit costed writes none" in refused.stderr


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("train_goodput", "goodput = tau / (M exp((R + late) / M) (exp((tau + delta) / M) - 1))"),
        ("goodput", "Daly, FGCS 22(3), 2006"),
        ("checkpoint every", "Young, CACM 17(9), 1974"),
        ("time between failures", "= 1,000 h x 3600 / 1 GPU"),
        ("time of steps", "= 1,000,000 steps x "),
    ],
)
def test_numbers_of_the_run_are_explained(tiny: Cli, name: str, formula: str) -> None:
    done = tiny("--steps", "1M", "--mtbf", "1000h", *SAVED, "--checkpoint-async", "--explain", name)
    assert done.returncode == 0
    assert formula in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--tokens 1B --steps 3", "--tokens and --steps all say how long the run is: give one"),
        ("--tokens many", "'many' is not a count: write a number and K, M, B or T, as in 15T"),
        ("--tokens 1X", "'1X' is not a count"),
        ("--tokens 0", "a run of 0 tokens: 1 or more"),
        ("--mtbf 3h", "--mtbf needs checkpoints, without which a failure loses the whole run"),
        ("--mtbf 3h/nod --checkpoint-bandwidth 1GB/s", "'nod' does not fail; did you mean 'node'?"),
        ("--mtbf 3m --checkpoint-bandwidth 1GB/s", "wrong unit 'm'"),
        ("--mtbf 5 --checkpoint-bandwidth 1GB/s", "--mtbf: missing unit of '5'"),
        ("--mtbf 5/node --checkpoint-bandwidth 1GB/s", "--mtbf: missing unit of '5'"),
        ("--mtbf 5h --restart-time 600 --checkpoint-bandwidth 1GB/s", "--restart-time: missing unit of '600'"),
        ("--checkpoint-every 0.5 --checkpoint-bandwidth 1GB/s", "--checkpoint-every: missing unit of '0.5'"),
        ("--checkpoint-stall 2 --checkpoint-bandwidth 1GB/s", "--checkpoint-stall: missing unit of '2'"),
        ("--mtbf 0h --checkpoint-bandwidth 1GB/s", "--mtbf is 0 s"),
        ("--restart-time 3min", "say how often with --mtbf"),
        ("--checkpoint-every 30 --checkpoint-bandwidth 1GB/s", "say 30steps or 30min; or auto"),
        ("--checkpoint-every 30min", "checkpoints need the bandwidth of their storage"),
        ("--checkpoint-every auto --checkpoint-bandwidth 1GB/s", "say --mtbf, or --checkpoint-every with a time"),
        ("--checkpoint-every 1h --checkpoint-bandwidth 1GB", "wrong unit 'GB'"),
        ("--checkpoint-every 0steps --checkpoint-bandwidth 1GB/s", "--checkpoint-every is 0: a number above 0"),
        ("--tokens 1B --phase prefill", "are for training runs, and --phase is prefill"),
    ],
)
def test_what_makes_no_sense_is_exit_2(tiny: Cli, words: str, said: str) -> None:
    done = tiny(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
