"""`--from` and `launch=`: a launch is read after the flags, and is what `import` makes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import slipstick
from slipstick.benchmarks.launch_roads import FLAGS, disagreement, written

Cli = Callable[..., "CompletedProcess[str]"]
# The launches that tests of the importers read.
CORPUS = Path(__file__).parents[2] / "data" / "launches.jsonl"
TITAN = """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
"""


@pytest.fixture
def titan(tmp_path: Path) -> str:
    path = tmp_path / "llama3_8b.toml"
    path.write_text(TITAN, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    "flags",
    [pytest.param(f, marks=[] if "--gbs" in f or "--env" in f else pytest.mark.deep) for f in FLAGS],
    ids=" ".join,
)
def test_from_is_import_and_then_a_plan(flags: tuple[str, ...], tmp_path: Path) -> None:
    wrong = []
    for number, line in enumerate(CORPUS.read_text(encoding="utf-8").splitlines()):
        row = json.loads(line)
        launch = written(tmp_path / str(number), row["name"], row["text"], row.get("files"))
        if (found := disagreement(launch, flags, tmp_path / "plan.yaml")) is not None:
            wrong.append(f"{row['name']} {row['text'][:60]}: {found}")
    assert not wrong


def test_degrees_that_take_all_ranks_take_those_of_the_flags(cli: Cli, titan: str, tmp_path: Path) -> None:
    """`data_parallel_shard_degree = -1` on 8 GPUs is ZeRO 3 over 8, a batch of 8, on both roads."""
    plan, flags = str(tmp_path / "plan.yaml"), ("--system", "dgx-h200", "--format", "json", "--no-sensitivity")
    direct = json.loads(cli("estimate", *flags, "--gpus", "8", "--from", titan).stdout)
    assert cli("import", titan, "--gpus", "8", "-o", plan).returncode == 0
    assert direct["metrics"] == json.loads(cli("estimate", *flags, "--plan", plan).stdout)["metrics"]
    words = direct["inputs"]["plan"]
    assert {name: words[name] for name in ("dp", "zero", "gbs")} == {"dp": 8, "zero": 3, "gbs": 8}


def test_python_reads_a_launch_as_the_command_line_does(cli: Cli, titan: str) -> None:
    typed = cli("estimate", "--system", "dgx-h200", "--gpus", "8", "--from", titan, "--format", "json").stdout
    found = slipstick.estimate(None, "dgx-h200", gpus=8, launch=titan)
    assert found.metrics == json.loads(typed)["metrics"]
    said = slipstick.serve("llama-3.1-8b", "dgx-h100", launch="vllm serve m -tp $N", env={"N": 2}, gpus=4)
    assert (said.answer.server.plan.tp, said.answer.num_gpus) == (2, 4)


def test_a_plan_file_overrides_a_launch_and_says_what_it_is_read_with(cli: Cli, titan: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("gpus: 8\nseq: 4096\n", encoding="utf-8")
    done = cli("estimate", "--system", "dgx-h200", "--plan", str(plan), "--from", titan, "--format", "json", "-q")
    words = json.loads(done.stdout)["inputs"]["plan"]
    assert {name: words[name] for name in ("dp", "zero", "gbs", "seq")} == {"dp": 8, "zero": 3, "gbs": 8, "seq": 4096}


def test_devices_that_the_degrees_of_a_launch_are_not_of_are_refused(cli: Cli, titan: str) -> None:
    text = Path(titan).read_text(encoding="utf-8").replace("= -1", "= 4")
    Path(titan).write_text(text, encoding="utf-8")
    done = cli("estimate", "--system", "dgx-h200", "--gpus", "8", "--from", titan)
    assert done.returncode == 4
    assert "the degrees of the launch are of 4 GPUs, and it runs on 8" in done.stderr


MEGATRON = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 "
    "--num-attention-heads 32 --swiglu --group-query-attention --num-query-groups 8 --normalization RMSNorm "
    "--untie-embeddings-and-output-weights --vocab-size 128256 --tensor-model-parallel-size 2 --sequence-parallel "
    "--use-distributed-optimizer --bf16 --micro-batch-size 4 --global-batch-size 64 --seq-length 8192"
)
TRAINER = """model_name_or_path: meta-llama/Llama-3.1-8B
per_device_train_batch_size: 4
gradient_accumulation_steps: 2
max_seq_length: 8192
bf16: true
"""


def test_remedies_are_in_the_words_of_the_launch(cli: Cli, tmp_path: Path) -> None:
    """A launch with what is said to fit is read, fits, and takes the time that was said."""
    done = cli("estimate", "--system", "dgx-h100", "--from", MEGATRON, "--format", "json")
    assert done.returncode == 3
    (remedy, *_) = json.loads(done.stdout)["remedies"]
    assert remedy["change"].startswith("--")
    again = cli("estimate", "--system", "dgx-h100", "--from", f"{MEGATRON} {remedy['change']}", "--format", "json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["metrics"]["step_time_s"] == remedy["step_time_s"]


def test_remedies_of_a_file_are_settings_of_the_file(cli: Cli, tmp_path: Path) -> None:
    launch = tmp_path / "sft.yaml"
    launch.write_text(TRAINER, encoding="utf-8")
    flags = ("--system", "dgx-h100", "--gpus", "8", "--format", "json")
    remedies = json.loads(cli("estimate", *flags, "--from", str(launch)).stdout)["remedies"]
    assert remedies
    for remedy in remedies:
        changes = re.findall(r"(\S+): (\S+)", remedy["change"])
        kept = [line for line in TRAINER.splitlines() if line.partition(":")[0] not in dict(changes)]
        launch.write_text("\n".join([*kept, *(f"{name}: {value}" for name, value in changes)]), encoding="utf-8")
        again = cli("estimate", *flags, "--from", str(launch))
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout)["metrics"]["step_time_s"] == remedy["step_time_s"]


def test_a_plan_file_keeps_whose_words_remedies_are_in(cli: Cli, titan: str, tmp_path: Path) -> None:
    plan, flags = str(tmp_path / "plan.yaml"), ("--system", "dgx-h100", "--gbs", "8")
    assert cli("import", titan, "--gpus", "2", "-o", plan).returncode == 0
    direct, stepwise = (
        cli("estimate", *flags, *of).stdout for of in (("--gpus", "2", "--from", titan), ("--plan", plan))
    )
    assert direct == stepwise
    time_s = re.fullmatch(r"  try \[training\] enable_cpu_offload = true \((.*), .*\)", direct.splitlines()[1])
    assert time_s is not None
    Path(titan).write_text(
        f"{TITAN}\n".replace("[parallelism]", "enable_cpu_offload = true\n[parallelism]"), encoding="utf-8"
    )
    again = cli("estimate", *flags, "--gpus", "2", "--from", titan)
    assert again.returncode == 0, again.stderr
    assert re.search(rf"^step time +{re.escape(time_s[1])} ", again.stdout, re.MULTILINE)


def test_a_server_says_what_holds_it_in_the_words_of_its_engine(cli: Cli) -> None:
    launch = "vllm serve meta-llama/Llama-3.1-8B --tensor-parallel-size 1 --gpu-memory-utilization 0.5"
    small = ("--system", "dgx-h100", "--set", "chip.memory.hbm.capacity=30GB", "--isl", "64", "--osl", "8")
    done = cli("estimate", *small, "--from", launch)
    assert done.returncode == 3
    assert "DOES NOT FIT: needs " in done.stderr
    assert "--tensor-parallel-size 2 (" in done.stderr
    assert cli("estimate", *small, "--from", launch.replace("size 1", "size 2")).returncode == 0
