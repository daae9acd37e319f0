"""`--from` and `launch=`: a launch is read after the flags, and is what `import` makes of it."""

from __future__ import annotations

import json
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
