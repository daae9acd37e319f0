"""`--stack`: software on a system, by name."""

import json
from collections.abc import Callable
from subprocess import CompletedProcess

from slipstick.backends.machine.load import stack_names

Cli = Callable[..., CompletedProcess[str]]


def test_a_stack_brings_its_kernels_and_its_memory(tiny: Cli) -> None:
    answers = {
        name: json.loads(tiny("--stack", name, "--gpus", "1", "--format", "json").stdout)
        for name in ("default", "megatron-core")
    }
    kept = {name: a["memory"]["activations"] for name, a in answers.items()}
    assert kept["megatron-core"] < kept["default"]
    assert [a["inputs"]["system"]["stack"] for a in answers.values()] == list(answers)


def test_kernels_asked_for_go_before_those_of_the_stack(tiny: Cli) -> None:
    flags = ("--gpus", "1", "--format", "json")
    eager = json.loads(tiny("--stack", "megatron-core", "--kernels", "plain", *flags).stdout)
    plain = json.loads(tiny(*flags).stdout)
    assert eager["memory"]["activations"] == plain["memory"]["activations"]


def test_a_misspelt_stack_names_the_nearest(estimate: Cli) -> None:
    done = estimate("--stack", "megatron", "--gpus", "1")
    assert done.returncode == 2
    assert "unknown stack 'megatron'; did you mean 'megatron-core'?" in done.stderr


def test_kernels_of_training_are_refused_elsewhere(estimate: Cli) -> None:
    done = estimate("--kernels", "torch", "--gpus", "1", "--phase", "decode")
    assert done.returncode == 2
    assert "kernels=torch: of training only" in done.stderr


def test_stacks_are_listed_and_shown(cli: Cli) -> None:
    listed = json.loads(cli("list", "stacks", "--format", "json").stdout)
    assert [s["name"] for s in listed] == list(stack_names())
    shown = cli("show", "stack", "nanotron").stdout
    assert shown.startswith("nanotron: software as of 2024\n")
    assert "host.layer_tp" in shown


def test_inference_takes_kernels_from_an_engine(tiny: Cli) -> None:
    flags = ("--gpus", "1", "--phase", "decode", "--format", "json")
    engine, plain = (json.loads(tiny(*stack, *flags).stdout) for stack in (("--stack", "vllm"), ()))
    assert [a["inputs"]["plan"]["kernels"] for a in (engine, plain)] == ["fused", "eager"]
    assert engine["metrics"]["tpot_s"] < plain["metrics"]["tpot_s"]
