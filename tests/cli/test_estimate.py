"""`slipstick estimate`: what it prints where, and how it ends."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., CompletedProcess[str]]


def test_the_table_has_the_answer(tiny: Cli) -> None:
    done = tiny("--gpus", "8", "--tp", "2", "--gbs", "32")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == ("tiny-llama  train  8 x H100-SXM5-80GB  no software  tp2+sp dp4  mbs 1  gbs 32  seq 128  bf16")
    for words in (
        "Result",
        "Where the time goes",
        "Memory of a GPU",
        "step time",
        "MFU",
        "matmul",
        "weights",
        "capacity",
    ):
        assert any(words in line for line in lines)
    assert "recording" not in done.stdout


def test_json_has_its_schema_and_adds_up(tiny: Cli) -> None:
    done = tiny("--gpus", "8", "--tp", "2", "--gbs", "32", "--format", "json")
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert list(report) == [
        "schema", "tool_version", "units", "inputs", "feasible", "metrics", "intervals", "provenance",
        "breakdown", "hidden_comm", "bounds", "trust", "memory", "replicated_over_tp", "warnings", "money", "roofline",
        "nodes",
    ]  # fmt: skip
    assert (report["schema"], report["units"], report["feasible"]) == ("slipstick/report/1", "SI", True)
    assert report["inputs"]["model"]["name"] == "tiny-llama"
    assert report["inputs"]["model"]["num_parameters"] == 82240
    assert report["inputs"]["plan"]["dp"] == 4
    assert sum(report["breakdown"].values()) == pytest.approx(report["metrics"]["step_time_s"], rel=1e-12)
    parts = [v for k, v in report["memory"].items() if k != "capacity"]
    assert sum(parts) == pytest.approx(report["metrics"]["peak_mem_bytes"], rel=1e-12)


def test_how_the_step_follows_each_number_is_on_the_screen_and_on_request_in_json(tiny: Cli) -> None:
    assert "% of time for +1 % of" in tiny("--gpus", "8").stdout
    assert "% of time for +1 % of" not in tiny("--gpus", "8", "--no-sensitivity").stdout
    assert "elasticities" not in json.loads(tiny("--gpus", "8", "--format", "json").stdout)
    asked = json.loads(tiny("--gpus", "8", "--format", "json", "--sensitivity").stdout)
    assert asked["elasticities"]["chip.memory.hbm.bandwidth"] < 0.0


def test_the_same_question_has_the_same_bytes(estimate: Cli) -> None:
    first, second = (estimate("--format", "json", "--set", "chip.power=650W").stdout for _ in range(2))
    assert first == second
    assert json.loads(first)["inputs"]["system"]["overrides"] == ["chip.power=650W"]


def test_quiet_says_nothing_on_stderr(cli: Cli, data: Path) -> None:
    config = str(data / "configs" / "tiny-llama.json")
    loud, quiet = (cli("estimate", config, "--system", "dgx-h100", "--no-cache", *flag) for flag in ((), ("-q",)))
    assert loud.stderr == "recording tiny-llama (train, bf16)\n"
    assert quiet.stderr == ""
    assert loud.stdout == quiet.stdout


def test_a_known_model_is_not_recorded_again(cli: Cli, data: Path, cache: Path) -> None:
    config = str(data / "configs" / "tiny-llama.json")
    cli("estimate", config, "--system", "dgx-h100")
    again = cli("estimate", config, "--system", "dgx-h100")
    assert again.stderr == ""
    assert list((cache / "graphs").glob("*.graph.gz"))


def test_an_override_changes_the_answer(estimate: Cli) -> None:
    usual, slow = (
        json.loads(estimate("--format", "json", *s).stdout)["metrics"]["step_time_s"]
        for s in ((), ("--set", "chip.memory.hbm.bandwidth=100GB/s"))
    )
    assert slow > 2 * usual


def test_long_names_of_megatron_mean_the_same(tiny: Cli) -> None:
    short = tiny("--tp", "2", "--dp", "4", "--mbs", "2", "--gbs", "16")
    names = ("--tensor-model-parallel-size", "--data-parallel-size", "--micro-batch-size", "--global-batch-size")
    long = tiny(*(w for pair in zip(names, ("2", "4", "2", "16"), strict=True) for w in pair))
    assert short.stdout == long.stdout
    assert "8 x H100" in short.stdout


@pytest.mark.parametrize(("phase", "label"), [("prefill", "TTFT"), ("decode", "TPOT")])
def test_inference_has_its_own_latency(estimate: Cli, phase: str, label: str) -> None:
    done = estimate("--phase", phase)
    assert done.returncode == 0
    assert label in done.stdout
    assert "optimizer" not in done.stdout


def test_what_does_not_fit_is_exit_3_with_a_next_step(estimate: Cli) -> None:
    done = estimate("--set", "chip.memory.hbm.capacity=4GiB", "--gpus", "2", "--gbs", "2")
    assert done.returncode == 3
    first, second, *rest = done.stdout.splitlines()
    assert re.fullmatch(r"DOES NOT FIT: needs 4\.\d+ of 4 GiB", first)
    assert second.startswith("  try --")
    assert any(line.startswith("step time") for line in rest)
    assert done.stderr == f"error: {first}; --allow-infeasible leaves with exit code 0\n"


@pytest.mark.parametrize("form", ["json", "csv", "md", "html", "table"])
def test_what_does_not_fit_is_answered_in_every_form(estimate: Cli, form: str) -> None:
    small = ("--set", "chip.memory.hbm.capacity=4GiB", "--gpus", "2", "--gbs", "2", "--format", form)
    done = estimate(*small)
    assert done.returncode == 3
    assert done.stdout == estimate(*small, "--allow-infeasible").stdout.replace(" --allow-infeasible", "")
    if form == "csv":
        assert done.stdout.splitlines()[1].startswith("False,")
    else:
        assert "DOES NOT FIT: needs 4." in done.stdout
        assert "--zero " in done.stdout


def test_offload_beyond_the_memory_of_a_host_does_not_fit(estimate: Cli) -> None:
    done = estimate("--offload", "optimizer", "--gpus", "8", "--gbs", "8", "--set", "node.host_memory.capacity=1GB")
    assert done.returncode == 3
    assert "of host memory a node" in done.stdout.splitlines()[0]


def test_what_does_not_fit_can_be_seen_anyway(estimate: Cli) -> None:
    small = ("--set", "chip.memory.hbm.capacity=4GiB")
    done = estimate(*small, "--allow-infeasible")
    assert done.returncode == 0
    assert "step time" in done.stdout
    assert done.stderr.startswith("warning: DOES NOT FIT: needs 4")
    assert "--allow-infeasible" not in done.stderr
    report = estimate(*small, "--format", "json")
    assert report.returncode == 3
    assert json.loads(report.stdout)["feasible"] is False


@pytest.mark.parametrize("wanted", ["step_time_s", "matmul", "transformer.h.*.attn", "block0/%{key}"])
def test_a_number_is_explained(estimate: Cli, wanted: str) -> None:
    if "{key}" in wanted:
        wanted = estimate("--explain", "attention").stdout.split()[0]
    done = estimate("--explain", wanted)
    assert done.returncode == 0
    assert done.stdout.strip()


def test_an_explanation_of_nothing_is_exit_2(estimate: Cli) -> None:
    done = estimate("--explain", "atention")
    assert done.returncode == 2
    assert "did you mean 'attention'" in done.stderr


def test_a_factory_says_that_it_runs_code(cli: Cli, data: Path) -> None:
    done = cli("estimate", f"{data / 'cli_nets.py'}:factory", "--system", "dgx-h100")
    assert done.returncode == 0
    assert "runs the code of" in done.stderr
    assert done.stdout.startswith("factory  train  1 x H100")


def test_a_system_may_be_a_file(cli: Cli, h100_text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(h100_text.replace("H100-SXM5-80GB", "my chip"), encoding="utf-8")
    assert "1 x my chip" in cli("estimate", "gpt2", "--system", str(path)).stdout


def test_the_pipeline_is_printed_with_its_times_and_can_be_given_back(estimate: Cli) -> None:
    printed = estimate("--time-passes")
    first, *rest = printed.stderr.splitlines()
    assert first == "pipeline accumulate,shard{tp=false},bucket,optimizer,fuse"
    assert all(line.endswith(("ms", "(no change)")) for line in rest)
    again = estimate("--passes", first.removeprefix("pipeline "))
    assert again.stdout == printed.stdout


def test_an_unfinished_graph_is_not_estimated(estimate: Cli) -> None:
    done = estimate("--stop-after", "shard")
    assert done.returncode == 2
    assert "compile --emit sharded" in done.stderr


def test_more_tokens_than_positions_are_noted(estimate: Cli) -> None:
    done = estimate("--seq", "4096")
    assert "note: 4096 tokens are more than the 1024 positions gpt2 was made for" in done.stdout


@pytest.mark.parametrize(("phase", "most"), [("prefill", 1024), ("decode", 1023)])
def test_inference_beyond_the_positions_is_refused_with_the_most(estimate: Cli, phase: str, most: int) -> None:
    assert estimate("--phase", phase, "--seq", f"{most}").returncode == 0
    done = estimate("--phase", phase, "--seq", f"{most + 1}")
    assert (done.returncode, f"1,024 positions of 'gpt2'; at most --seq {most}" in done.stderr) == (2, True)
