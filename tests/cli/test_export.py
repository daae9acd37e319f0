"""slipstick export: a plan file in, the words of a framework out."""

import json
from pathlib import Path

import pytest

from .conftest import Cli


@pytest.fixture
def model(data: Path) -> str:
    return str(data / "configs" / "tiny-llama.json")


def test_a_plan_file_becomes_flags(cli: Cli, tmp_path: Path) -> None:
    model = str(Path(__file__).parents[1] / "golden" / "tiny-llama.train.graph")
    path = tmp_path / "plan.yaml"
    path.write_text(f"model: {model}\nsystem: dgx-h100\ngpus: 16\ntp: 2\npp: 2\nseq: 128\ngbs: 64\nsp: true\n")
    found = cli("export", "--plan", str(path), "--to", "megatron")
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(f"# {model} train on 16 GPUs: tp2 pp2 dp4 mbs1 gbs64 seq128\n")
    # 16 GPUs on nodes of 8.
    assert "torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py" in found.stdout
    assert "--sequence-parallel" in found.stdout
    # Both stages have one of two layers: nothing to say.
    assert "layout" not in found.stdout


def test_flags_are_taken_without_a_file(cli: Cli, model: str) -> None:
    found = cli("export", model, "--gpus", "8", "--tp", "2", "--seq", "128", "--to", "torchtitan")
    assert "--parallelism.tensor-parallel-degree 2" in found.stdout
    assert "# left open: --module and --config" in found.stdout


def test_json_has_its_notes_on_stderr(cli: Cli, model: str, tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    found = cli("export", model, "--gpus", "4", "--zero", "2", "--seq", "128", "--to", "deepspeed", "-o", str(path))
    assert json.loads(path.read_text())["zero_optimization"]["stage"] == 2
    assert "note: left open: seq 128" in found.stderr
    assert cli("export", model, "--seq", "128", "--to", "deepspeed", "-q").stderr == ""


def test_a_server_has_the_limits_of_its_engine(cli: Cli) -> None:
    found = cli(
        "export", "llama-3.1-70b", "--phase", "serve", "--system", "dgx-h100", "--gpus", "16", "--tp", "8", "--isl",
        "4000", "--osl", "500", "--max-num-seqs", "77", "--mtp", "1", "--acceptance", "0.8", "--to", "vllm",
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert "vllm serve meta-llama/Llama-3.1-70B" in found.stdout
    for flag in ("--data-parallel-size 2", "--max-model-len 4500", "--max-num-seqs 77"):
        assert flag in found.stdout
    assert """--speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'""" in found.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--to", "megatronn"), "did you mean 'megatron'?"),
        (("--phase", "serve", "--system", "dgx-h100", "--to", "megatron"), "is answered by servers: --to vllm"),
        (("--phase", "decode", "--to", "torchtitan"), "torchtitan trains, and this is the plan of a step of decode"),
        (("--to", "vllm"), "vLLM serves, and this is the plan of a step of train"),
        (("--isl", "5", "--to", "megatron"), "--isl: needs --phase serve"),
    ],
)
def test_what_does_not_go_together_is_refused(cli: Cli, model: str, words: tuple[str, ...], told: str) -> None:
    found = cli("export", model, "--seq", "128", *words) if "serve" not in words else cli("export", model, *words)
    assert (found.returncode, told in found.stderr) == (2, True), found.stderr
