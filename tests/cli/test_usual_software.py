"""The software that verbs assume: in line 1, in JSON, in plan files, and the same on every road."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import slipstick
from slipstick.ir.text.files import save_graph

from .conftest import Cli

MACHINE = ("--system", "dgx-h100", "--seq", "128")
# Flags of a plan, and the software that runs it on GPUs of NVIDIA.
CHOSEN = (
    (("--gpus", "8", "--gbs", "16"), "fsdp2"),
    (("--gpus", "8", "--tp", "2", "--gbs", "16"), "megatron-core"),
    (("--gpus", "8", "--pp", "2", "--gbs", "16"), "megatron-core"),
    (("--phase", "decode", "--tp", "2"), "vllm"),
    (("--phase", "prefill"), "vllm"),
)


def metrics(text: str) -> dict[str, float]:
    found: dict[str, float] = json.loads(text)["metrics"]
    return found


@pytest.mark.parametrize(("flags", "software"), CHOSEN)
def test_what_is_assumed_is_named_first_and_answers_as_if_typed(
    flags: tuple[str, ...], software: str, cli: Cli, data: Path
) -> None:
    config = str(data / "configs" / "tiny-llama.json")
    first = cli("estimate", config, *MACHINE, *flags).stdout.splitlines()[0]
    assert f"{software} (assumed; --stack)" in first
    report = json.loads(cli("estimate", config, *MACHINE, *flags, "--format", "json").stdout)
    typed = cli("estimate", config, *MACHINE, *flags, "--stack", software, "--format", "json").stdout
    assert report["inputs"]["system"]["stack"] == software
    assert report["assumed"] == ["stack"]
    assert "assumed" not in json.loads(typed)
    assert report["metrics"] == metrics(typed)


def test_a_step_of_decode_is_that_of_the_engine_of_the_stack(cli: Cli, data: Path) -> None:
    words = ("estimate", str(data / "configs" / "tiny-llama.json"), *MACHINE, "--phase", "decode", "--format", "json")
    default, engine, stack = (
        metrics(cli(*words, *more).stdout) for more in ((), ("--engine", "vllm"), ("--stack", "vllm"))
    )
    assert default == engine == stack
    assert default != metrics(cli(*words, "--stack", "none").stdout)


def test_other_makers_train_without_software_and_say_so(cli: Cli, data: Path) -> None:
    config = str(data / "configs" / "tiny-llama.json")
    flags = ("--system", "tpu-v5p-pod", "--seq", "128", "--gpus", "4", "--tp", "2", "--format", "json")
    assert metrics(cli("estimate", config, *flags).stdout) == metrics(
        cli("estimate", config, *flags, "--stack", "default").stdout
    )
    first = cli("estimate", config, *flags[:-2]).stdout.splitlines()[0]
    assert "no software (assumed; --stack)" in first


def test_own_code_is_trained_with_fsdp2(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\ndef build():\n    return nn.Sequential(nn.Embedding(64, 32), nn.Linear(32, 64))\n"
    )
    flags = (f"{tmp_path}/net.py:build", *MACHINE, "--gpus", "8", "--format", "json", "-q")
    report = json.loads(cli("estimate", *flags).stdout)
    assert report["inputs"]["system"]["stack"] == "fsdp2"


def test_a_search_has_one_stack_and_its_plan_names_it(cli: Cli, data: Path, tmp_path: Path) -> None:
    config, best = str(data / "configs" / "tiny-llama.json"), tmp_path / "best.yaml"
    flags = ("--gpus", "4", "--gbs", "8", "--vary", "tp=1,2", "--pp", "1", "--cp", "1", "--zero", "1", "--mbs", "1")
    fixed = ("--recompute", "none", "--sp", "--no-ledger", "-q", "--no-why")
    found = cli("search", config, *MACHINE, *flags, *fixed, "--format", "json", "--best-plan", str(best))
    assert found.returncode == 0, found.stderr
    [machine] = json.loads(found.stdout)["systems"]
    assert machine == {"name": "dgx-h100", "stack": "megatron-core", "assumed": ["stack"]}
    assert "stack: megatron-core" in best.read_text(encoding="utf-8")
    answer = metrics(cli("estimate", "--plan", str(best), "--format", "json").stdout)
    assert answer["step_time_s"] == json.loads(found.stdout)["best"][0]["step_time_s"]


def test_python_assumes_what_the_command_line_does(cli: Cli, data: Path) -> None:
    config = str(data / "configs" / "tiny-llama.json")
    for words in ({"gpus": 8, "tp": 2}, {"gpus": 8}, {"phase": "decode"}):
        flags = [text for name, value in words.items() for text in (f"--{name}", str(value))]
        shown = cli("estimate", config, *MACHINE, *flags, "--format", "json").stdout
        assert dict(slipstick.estimate(config, "dgx-h100", seq=128, **words).metrics) == metrics(shown)


def test_a_graph_of_a_config_is_that_model(data: Path, tmp_path: Path) -> None:
    config, saved = str(data / "configs" / "tiny-llama.json"), tmp_path / "saved.graph"
    graph = slipstick.operators(config).graph
    save_graph(graph, saved)
    named, traced, read = (
        slipstick.estimate(one, "dgx-h100", gpus=8, tp=2, seq=128).to_dict() for one in (config, graph, str(saved))
    )
    assert named == traced == read
    assert '"stack": "megatron-core"' in json.dumps(named["inputs"])


def test_a_loaded_system_is_the_pure_machine(data: Path) -> None:
    config = str(data / "configs" / "tiny-llama.json")
    given = slipstick.estimate(config, slipstick.load_system("dgx-h100"), gpus=8, tp=2, seq=128)
    named = slipstick.estimate(config, "dgx-h100", gpus=8, tp=2, seq=128, stack="none")
    assert dict(given.metrics) == dict(named.metrics)


def test_software_of_the_date_asked_for_is_assumed(cli: Cli, data: Path) -> None:
    config = str(data / "configs" / "tiny-llama.json")
    first = cli("estimate", config, *MACHINE, "--phase", "decode", "--as-of", "2024-06").stdout.splitlines()[0]
    assert "vllm-0.6 (assumed" in first
