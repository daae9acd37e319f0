"""`search` and `sweep` with `--trials`: what is tried, what comes out, how a study goes on, and what is refused."""

from __future__ import annotations

import csv
import io
import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from slipstick.app.search.space_file import space_of, space_schema, space_yaml

from ..conftest import Cli

pytestmark = pytest.mark.skipif(find_spec("optuna") is None, reason="needs slipstick[search]")

PLANS = (
    "tests/golden/tiny-llama.train.graph", "--gpus", "4", "--seq", "256", "--gbs", "8", "--sp", "--tp", "2", "--pp",
    "1", "--cp", "1", "--zero", "1", "--mbs", "4", "--fix", "recompute=none", "--no-why",
)  # fmt: skip
HBM, LATENCY = "--vary=system.hbm.bandwidth=2TB/s..10TB/s", "--vary=network.nvlink.latency=0.1us..20us:log"
CHIPS = ("none", "--die-area", "200..1000mm2", "--power-density", "0.5,1W/mm2", "--node", "N5,N3", "--gpus", "64", "-q")


@pytest.fixture
def search(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Search plans of the graph; runs are kept in a folder of the test."""
    monkeypatch.setenv("SLIPSTICK_RUNS", str(tmp_path / "runs"))
    return lambda *words: cli("search", *words)


def test_machines_are_chosen_and_the_best_plan_on_them_is_a_file_that_an_estimate_takes(
    search: Cli, cli: Cli, tmp_path: Path
) -> None:
    best = tmp_path / "best.yaml"
    done = search(
        *PLANS, HBM, LATENCY, "--system", "dgx-h100,dgx-b200", "--trials", "5", "--format", "json", "--best-plan",
        str(best), "--no-ledger",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    told = answer["trials"]
    assert (told["num_trials"], told["num_infeasible"], told["sampler"], told["seed"]) == (5, 0, "tpe", 0)
    assert told["axes"]["network.nvlink.latency"] == "0.1us..20us:log"
    first = answer["best"][0]
    assert set(first["values"]) == {"system", "chip.memory.hbm.bandwidth", "network.nvlink.latency"}
    report = json.loads(cli("estimate", "--plan", str(best), "--format", "json").stdout)
    assert report["metrics"]["step_time_s"] == first["step_time_s"]


def test_a_study_goes_on_longer_to_the_answer_of_one_that_ran_through(search: Cli, cli: Cli, tmp_path: Path) -> None:
    kept = search(*PLANS, LATENCY, HBM, "--system", "dgx-h100", "--trials", "3")
    assert "3 trials, chosen by tpe with seed 0, of network.nvlink.latency=0.1us..20us:log" in kept.stdout
    more = search("--resume", "tiny-llama.train-1", "--trials", "5", "--format", "json")
    assert "3 of 5 were kept before" in more.stderr
    through = search(*PLANS, LATENCY, HBM, "--system", "dgx-h100", "--trials", "5", "--format", "json", "--no-ledger")
    assert json.loads(more.stdout) == json.loads(through.stdout)
    shown = cli("runs", "export", "tiny-llama.train-1", "-o", "-")
    assert [row["trial"] for row in csv.DictReader(io.StringIO(shown.stdout))] == [str(k) for k in range(5)]
    removed = cli("runs", "remove", "tiny-llama.train-1", "--yes")
    assert removed.returncode == 0, removed.stderr
    assert "no runs" in cli("runs", "list").stderr
    assert not list((tmp_path / "runs").glob("*.optuna"))


def test_a_space_with_ranges_reads_back_as_itself() -> None:
    text = (
        "schema: slipstick/space/1\nmodel: gpt2\nsystem: [dgx-h100, dgx-b200]\n"
        "vary: {network.nvlink.latency: '1us..9us:log', chip.power.tdp: [500W, 600W]}\n"
        "trials: 200\nsampler: nsga2\nseed: 7\ntrials_at_once: 4\n"
    )
    assert space_yaml(space_of(text, "it")) == text
    schema = space_schema()["properties"]
    assert isinstance(schema, dict)
    assert {"trials", "sampler", "seed", "trials_at_once"} <= set(schema)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((HBM,), "a range has no end of values: say how many points are tried, as in --trials 200"),
        (("--trials", "3"), "there is one: vary numbers of it"),
        (("--sampler", "tpe"), "--sampler is of an optimiser"),
        (("--vary", "system.hbm.bandwidth=10TB/s..2TB/s", "--trials", "3"), "below the last: 2..10TB/s"),
        (("--vary", "system.hbm.bandwidth=2us..10TB/s", "--trials", "3"), "one unit, of B/s"),
        (("--vary", "network.nvlink.topology=switch..ring", "--trials", "3"), "words are a list with commas"),
        (("--vary", "ep=1..8", "--trials", "3"), "only numbers of the system have ranges"),
        (("--set", "chip.memory.hbm.bandwidth=2TB/s..3TB/s"), "only numbers of the system have ranges, by --vary"),
        (("--vary", "system.hbm.bandwith=2TB/s..3TB/s", "--trials", "3"), "did you mean"),
        (("--phase", "serve", HBM, "--trials", "3"), "of servers all are tried"),
    ],
)
def test_what_does_not_go_together_is_told(search: Cli, words: tuple[str, ...], told: str) -> None:
    done = search(*PLANS, "--system", "dgx-h100", *words, "--no-ledger")
    assert done.returncode == 2
    assert told in done.stderr


def test_machines_none_of_which_can_be_are_told_with_why(search: Cli) -> None:
    done = search(*PLANS, "--system", "dgx-h100", "--vary", "chip.memory.hbm.capacity=1GiB..2GiB", "--trials", "3")
    assert done.returncode == 3
    assert "no plan is left on any of 3 machines: 3 does not fit the memory" in done.stderr


def test_designs_are_chosen_and_a_study_goes_on(cli: Cli, tmp_path: Path) -> None:
    study, best = tmp_path / "it.optuna", tmp_path / "best.yaml"
    options = (*CHIPS, "--format", "csv", "--trials")
    part = cli("sweep", *options, "8", "--study", str(study))
    assert part.returncode == 0, part.stderr
    more = cli("sweep", *options, "20", "--study", str(study), "--best-system", str(best))
    assert more.stdout == cli("sweep", *options, "20").stdout != part.stdout
    rows = list(csv.DictReader(io.StringIO(more.stdout)))
    cost = cli("cost", str(best), "--gpus", "64", "--basis", "build", "--format", "json")
    assert json.loads(cost.stdout)["metrics"]["usd_capex"] == pytest.approx(float(rows[0]["usd_per_gpu"]) * 64)
    other = cli("sweep", *CHIPS, "--trials", "9", "--study", str(study))
    assert other.returncode == 0, other.stderr
    assert "9 trials, chosen by tpe with seed 0, of node=N5,N3, die-area=200mm2..1000mm2" in other.stdout
    refused = cli("sweep", *CHIPS, "--trials", "9", "--study", str(study), "--seed", "1")
    assert refused.returncode == 2
    assert "keeps another study" in refused.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--die-area", "200..800mm2"), "--die-area 200..800mm2: a range has no end of values"),
        (("--die-area", "800..200mm2", "--trials", "9"), "below the last: 200..800mm2"),
        (("--die-area", "200..800W", "--trials", "9"), "wrong unit"),
        (("--die-area", "400mm2", "--trials", "9"), "there is one: give a range"),
        (("--die-area", "400mm2", "--chiplets", "1.5..4", "--trials", "9"), "whole numbers"),
        (("--die-area", "400mm2", "--study", "it"), "--study is of an optimiser"),
        (("--die-area", "900..2000mm2", "--trials", "9"), "none of 9 designs can be built"),
        (("--die-area", "200..800mm2", "--trials", "9", "--objective", "usd"), "unknown objective 'usd'"),
    ],
)
def test_what_is_no_sweep_of_trials_is_told(cli: Cli, words: tuple[str, ...], told: str) -> None:
    done = cli("sweep", "none", "--power-density", "0.5W/mm2", *words)
    assert done.returncode == 2
    assert told in done.stderr
