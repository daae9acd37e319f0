"""`slipstick import`: what is written, what is refused, and that export -> import is the same plan."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from subprocess import CompletedProcess

import pytest

from slipstick.app.export import exported
from slipstick.app.plans.file import FRAMEWORKS
from slipstick.app.plans.text import request_of
from slipstick.app.prepare import plan_of
from slipstick.backends.machine.load import load_system
from slipstick.frameworks.export import ExportSubject
from slipstick.frameworks.imported import ImportedPlan
from slipstick.frameworks.launch import Word
from slipstick.frameworks.reading import read_launch
from slipstick.frameworks.registry import FRAMEWORKS as READ
from slipstick.frontend.huggingface.configs.models import read_config
from slipstick.ir.errors import SlipstickError
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.plan.layout.partition import even_parts
from slipstick.ir.plan.plan import differences
from slipstick.ir.types import DType

Cli = Callable[..., "CompletedProcess[str]"]
SCRIPT = """#!/bin/bash
GPUS_PER_NODE=8
NNODES=${NNODES:-2}
MODEL=(--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --swiglu
  --group-query-attention --num-query-groups 8 --normalization RMSNorm --untie-embeddings-and-output-weights)
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py "${MODEL[@]}" \\
  --tensor-model-parallel-size 8 --sequence-parallel --use-distributed-optimizer --bf16 \\
  --micro-batch-size 1 --global-batch-size 64 --seq-length 4096 --lr 1e-4 --window-size 128,0
"""
LAYERS = {"llama-3.1-8b": 32, "mixtral-8x7b": 32, "deepseek-v3": 61}
STACKS = {"megatron": "megatron-core", "torchtitan": "torchtitan", "deepspeed": "default"}


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT, encoding="utf-8")
    return str(path)


def test_a_script_becomes_a_plan_file_that_estimates(cli: Cli, script: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    done = cli("import", script, "--system", "dgx-h100", "-o", str(plan))
    assert done.returncode == 0, done.stderr
    text = plan.read_text(encoding="utf-8")
    assert "# left out: --window-size 128,0" in text
    assert "model: llama-3.1-8b" in text
    answer = json.loads(cli("estimate", "--plan", str(plan), "--format", "json", "-q").stdout)
    said = {name: answer["inputs"]["plan"][name] for name in ("tp", "dp", "sp", "zero", "gbs", "kernels")}
    assert said == {"tp": 8, "dp": 2, "sp": True, "zero": 1, "gbs": 64, "kernels": "fused"}


def test_from_says_the_same_and_flags_override_it(cli: Cli, script: str, tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.yaml")
    cli("import", script, "-o", plan)
    words = ("--system", "dgx-h100", "--gbs", "128", "--format", "json", "-q")
    one, other = (cli("estimate", flag, given, *words) for flag, given in (("--plan", plan), ("--from", script)))
    assert one.returncode == other.returncode == 0, other.stderr
    assert json.loads(one.stdout)["metrics"] == json.loads(other.stdout)["metrics"]
    assert "left out: --window-size" in other.stderr


def test_variables_can_be_set(cli: Cli, script: str) -> None:
    assert "gpus: 64" in cli("import", script, "--env", "NNODES=8").stdout


def test_a_command_stands_behind_two_dashes(cli: Cli) -> None:
    done = cli(
        "import",
        "--system",
        "dgx-h100",
        "--",
        "vllm",
        "serve",
        "meta-llama/Llama-3.1-8B",
        "--tensor-parallel-size",
        "2",
    )
    assert done.returncode == 0, done.stderr
    assert "model: llama-3.1-8b" in done.stdout
    assert "engine: vllm" in done.stdout


def test_the_json_lists_every_setting(cli: Cli, script: str) -> None:
    found = json.loads(cli("import", script, "--format", "json").stdout)
    assert found["left_out"] == {"--window-size": "128,0"}
    assert found["ignored"] == ["--lr"]
    assert found["understood"]["--tensor-model-parallel-size"] == "tp 8"
    assert found["coverage"] == len(found["understood"]) / (len(found["understood"]) + 1)


def test_strict_refuses_what_is_left_out(cli: Cli, script: str) -> None:
    done = cli("import", script, "--strict")
    assert done.returncode == 4
    assert "1 settings are not understood: --window-size" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("nowhere.sh",), 2, "no file 'nowhere.sh'"),
        (("--framework", "megatro", "--", "x", "y"), 2, "did you mean 'megatron'"),
        (("--env", "A", "--", "vllm", "serve"), 2, "--env A: NAME=VALUE"),
        (("--", "vllm", "serve", "m", "--tensor-parallel-size", "$TP"), 4, "is no number"),
    ],
)
def test_what_cannot_be_read_is_refused(cli: Cli, words: tuple[str, ...], code: int, message: str) -> None:
    done = cli("import", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr


def test_the_verb_and_the_readers_know_the_same_frameworks() -> None:
    assert FRAMEWORKS == READ


def drawn(rng: Random, framework: str) -> ExportSubject:
    """Draw a plan and a model that a framework may run; SlipstickError for degrees that do not go together."""
    megatron, titan, pick = framework == "megatron", framework == "torchtitan", rng.choice
    model = pick(list(LAYERS))
    experts = model != "llama-3.1-8b"
    tp, dp = pick([1, 2, 4, 8]), pick([1, 2, 4, 8])
    pp, cp = (pick([1, 1, 2, 4]) if megatron or titan else 1), (pick([1, 1, 2, 4]) if megatron else 1)
    vpp = pick([1, 2]) if pp > 1 and megatron else 1
    ep = pick([1, 1, 2, 4, 8]) if experts and megatron else 1
    sp = tp > 1 and framework != "deepspeed" and pick([True, True, False])
    zero = pick({"megatron": [0, 1, 1, 2, 3], "torchtitan": [0, 3], "deepspeed": [0, 1, 2]}[framework])
    policy = pick(
        {"megatron": ["none", "selective", "full"], "torchtitan": ["none", "ops", "full"], "deepspeed": ["none"]}[
            framework
        ]
    )
    etp = pick([True, False]) if ep > 1 and tp > 1 and sp else True
    zero = zero if dp > 1 or megatron else 0
    family = Family(
        sp=sp, pp=pp > 1, ep=ep > 1, etp=etp, zero=zero, recompute=policy,
        cp=pick(["ring", "allgather", "ulysses"]) if cp > 1 else "none", early_stop=policy == "none",
        reduce_dtype=DType.FP32 if titan and zero == 3 else None,
        kernels={"megatron": "fused", "torchtitan": "torch", "deepspeed": "plain"}[framework],
        recompute_modules=("core_attn", "layernorm") if policy == "selective" else (),
        recompute_every=pick([1, 2]) if policy == "full" and megatron else 1,
        precision=pick(["none", "fp8", "fp8-delayed", "fp8-block", "mxfp8"]) if megatron else "none",
    )  # fmt: skip
    mbs = pick([1, 2, 4])
    plan = make_plan(
        num_gpus=tp * pp * cp * dp, tp=tp, pp=pp, cp=cp, ep=ep, vpp=vpp, etp=None if etp else 1, micro_batch=mbs,
        global_batch=mbs * dp * pp * pick([1, 2, 4]), seq_len=pick([2048, 8192]), family=family,
    )  # fmt: skip
    system = load_system("dgx-h100", (), STACKS[framework])
    return ExportSubject(
        plan=plan, model=model, config=json.loads(read_config(model).text), stack=system.stack, node_size=8,
        layers=tuple(even_parts(LAYERS[model], pp * vpp)) if pp > 1 else (),
    )  # fmt: skip


@pytest.mark.parametrize("framework", STACKS)
def test_a_plan_that_is_exported_and_imported_is_the_same(framework: str) -> None:
    rng, num_same = Random(7), 0
    while num_same < 60:
        try:
            subject = drawn(rng, framework)
        except SlipstickError:
            continue
        export = exported(framework, subject)
        if export.lost:
            continue
        launch = read_launch(export.text, num_gpus=subject.plan.num_gpus if framework == "deepspeed" else None)
        around: dict[str, Word] = {"model": subject.model, "system": "dgx-h100", "seq": subject.plan.seq_len}
        plan = ImportedPlan(launch, {**launch.words, **around})
        wrong = [*differences(plan_of(request_of(plan.text)), subject.plan)]
        # Layers that the plan leaves to be even are spelled out where they are not.
        assert [line for line in wrong if not (line.startswith("pp_layout=") and line.endswith("not auto"))] == []
        num_same += 1


def test_a_model_that_is_spelled_out_is_written_beside_the_plan(cli: Cli, tmp_path: Path) -> None:
    script = tmp_path / "own.sh"
    script.write_text(SCRIPT.replace("--num-layers 32", "--num-layers 4"), encoding="utf-8")
    plan = tmp_path / "plan.yaml"
    done = cli("import", str(script), "-o", str(plan))
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "plan.config.json").read_text(encoding="utf-8"))
    assert (config["model_type"], config["num_hidden_layers"]) == ("llama", 4)
    answer = cli("estimate", "--plan", str(plan), "--system", "dgx-h100", "-q")
    assert answer.returncode == 0, answer.stderr
