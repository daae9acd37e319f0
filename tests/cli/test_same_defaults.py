"""The same words are the same plan from Python and from the command line, and are estimated alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from slipstick import Defaults, Family, Workload, load, load_system, make_plan
from slipstick.backends.machine.software.engine_file import load_engine
from slipstick.driver.estimate import estimate
from slipstick.frontend import GraphCache

Cli = Callable[..., CompletedProcess[str]]


@dataclass(frozen=True)
class Case:
    """Words of a plan: as flags and as arguments of `make_plan`, and what a policy says."""

    flags: str
    words: Mapping[str, object]
    policy: Mapping[str, object] = field(default_factory=dict)
    left_open: Mapping[str, object] = field(default_factory=dict)
    model: str = "tiny-llama"
    phase: str = "train"
    stack: str | None = None


CASES = (
    Case("--gpus 8", {"num_gpus": 8}),
    Case("--gpus 8 --tp 2 --gbs 32", {"num_gpus": 8, "tp": 2, "global_batch": 32}),
    Case("--gpus 8 --tp 2 --no-sp", {"num_gpus": 8, "tp": 2}, left_open={"sp": False}),
    Case("--gpus 8 --tp 2 --cp 2", {"num_gpus": 8, "tp": 2, "cp": 2}),
    Case("--gpus 8 --cp 4 --cp-method ring", {"num_gpus": 8, "cp": 4}, left_open={"cp_method": "ring"}),
    Case("--gpus 8 --cp 4 --cp-ulysses 2", {"num_gpus": 8, "cp": 4, "cp_ulysses": 2}),
    Case("--gpus 8 --tp 2 --pp 2 --gbs 16", {"num_gpus": 8, "tp": 2, "pp": 2, "global_batch": 16}),
    Case("--gpus 8 --tp 2 --pp 2 --gbs 16 --no-sp",
         {"num_gpus": 8, "tp": 2, "pp": 2, "global_batch": 16}, left_open={"sp": False}, stack="megatron-core"),
    Case("--gpus 8 --tp 2 --pp 2 --gbs 16 --no-sp --no-scatter-p2p",
         {"num_gpus": 8, "tp": 2, "pp": 2, "global_batch": 16}, left_open={"sp": False, "scatter_p2p": False},
         stack="megatron-core"),
    Case("--gpus 8 --zero 3 --dp-shard 4", {"num_gpus": 8, "dp_shard": 4}, {"zero": 3}, stack="fsdp2"),
    Case("--gpus 8 --zero 1 --recompute full --kernels fused", {"num_gpus": 8},
         {"zero": 1, "recompute": "full"}, {"kernels": "fused"}),
    Case("--gpus 8 --tp 2 --tp-plan auto", {"num_gpus": 8, "tp": 2}, {"tp_plan": "auto"}),
    Case("--gpus 8 --tp 2 --ep 2", {"num_gpus": 8, "tp": 2, "ep": 2}, model="tiny-mixtral"),
    Case("--gpus 8 --tp 2 --ep 4 --etp 1 --expert-imbalance 1.5",
         {"num_gpus": 8, "tp": 2, "ep": 4, "etp": 1, "expert_imbalance": 1.5}, model="tiny-mixtral"),
    Case("--gpus 8 --ep 4 --capacity-factor 1.25", {"num_gpus": 8, "ep": 4, "capacity_factor": 1.25},
         model="tiny-mixtral"),
    Case("--gpus 2 --tp 2", {"num_gpus": 2, "tp": 2}, phase="prefill", stack="vllm"),
    Case("--gpus 2 --tp 2 --mbs 8", {"num_gpus": 2, "tp": 2, "micro_batch": 8, "kv_len": 128}, phase="decode"),
    Case("--gpus 4 --tp 2 --etp 4", {"num_gpus": 4, "tp": 2, "etp": 4}, model="tiny-mixtral", phase="prefill"),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[f"{c.model}-{c.phase}-{c.flags.replace('--', '')}" for c in CASES])
def test_python_and_the_command_line_say_the_same(case: Case, cli: Cli, data: Path) -> None:
    saved = data.parent / "golden" / f"{case.model}.{case.phase}.graph"
    config = str(saved if saved.exists() else data / "configs" / f"{case.model}.json")
    flags = [*case.flags.split(), "--stack", case.stack or "none"]
    shared = ["--system", "dgx-h100", "--seq", "128", "--phase", case.phase, "--format", "json", "--no-sensitivity"]
    done = cli("estimate", config, *shared, "--allow-infeasible", *flags)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    system = load_system("dgx-h100", stack=case.stack)
    if case.stack == "vllm":
        # A step on the stack of an engine is the one that its servers make.
        system = load_engine("vllm", system.chip.name).under(system)
    policy = Family(workload=Workload(case.phase), **case.policy)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    left_open = Defaults(system.stack, policy, **case.left_open)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    plan = make_plan(seq_len=128, family=left_open, **case.words)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    found = estimate(load(config, case.phase, cache=GraphCache.default()), system, plan)
    assert found.metrics == pytest.approx({name: report["metrics"][name] for name in found.metrics}, rel=1e-12)
