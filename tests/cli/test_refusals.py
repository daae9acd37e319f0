"""What the command line refuses: the exit code, what was given, what is allowed, the nearest."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., CompletedProcess[str]]


def test_an_axis_that_is_not_built_is_exit_4(estimate: Cli) -> None:
    done = estimate("--pp", "2", "--gpus", "2", "--recompute", "full", "--recompute-every", "2")
    assert (done.returncode, done.stdout) == (4, "")
    assert "--recompute-every with --pp 2 (groups of layers inside of stages): not modelled" in done.stderr


def test_an_onnx_file_is_refused_in_one_line_with_exit_4(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"\x08\x0e:\xff")
    done = cli("estimate", str(path), "--system", "dgx-h100", "--phase", "decode")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (4, "", 1)
    assert "is not an ONNX model: truncated" in done.stderr
    assert cli("estimate", str(path), "--system", "dgx-h100", "--phase", "decode", "--dim", "rows").returncode == 2


def test_stages_beyond_layers_are_exit_2_and_name_every_factor(tiny: Cli) -> None:
    done = tiny("--pp", "4", "--gpus", "4")
    assert done.returncode == 2
    assert "pp=4 x vpp=1 = 4 stages are more than the 2 layers of tiny-llama; legal pp x vpp: 1 to 2" in done.stderr


def test_interleaving_with_too_few_micro_batches_is_exit_2(tiny: Cli) -> None:
    done = tiny("--pp", "2", "--vpp", "2", "--gpus", "2", "--gbs", "5")
    assert done.returncode == 2
    assert "vpp=2 needs micro-batches in equal rounds of pp=2 or more" in done.stderr
    assert "nearest: 4 or 6 micro-batches, or vpp=1" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--pp 2 --schedule dualpipe --gbs 2", "needs two micro-batches a stage, 2 x pp=2 = 4"),
        ("--pp 2 --schedule dualpipe --gbs 5", "nearest: 4 or 6 micro-batches"),
        ("--pp 2 --schedule zb-v --vpp 4 --gbs 4", "legal vpp: 2"),
        ("--pp 2 --schedule interleaved --gbs 4", "needs several chunks a stage, not vpp=1; legal vpp: 2"),
        ("--pp 1 --schedule zb-h1 --gbs 4", "pp=1 has none; legal pp: 2, 4"),
        ("--pp 2 --schedule dualpip --gbs 4", "did you mean 'dualpipe'?"),
    ],
)
def test_a_schedule_that_a_plan_cannot_use_is_exit_2(tiny: Cli, words: str, said: str) -> None:
    done = tiny(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1", "zb-h2", "dualpipe"])
def test_every_schedule_that_two_layers_allow_can_be_had(tiny: Cli, schedule: str) -> None:
    done = tiny("--pp", "2", "--schedule", schedule, "--gbs", "4")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("verb", ["estimate", "compile"])
def test_compile_refuses_the_same_flags(cli: Cli, verb: str) -> None:
    groups = ("--pp", "2", "--recompute", "full", "--recompute-every", "2")
    assert cli(verb, "gpt2", "--system", "dgx-h100", *groups).returncode == 4


def test_a_degree_that_does_not_divide_names_dim_and_degree(tiny: Cli) -> None:
    done = tiny("--tp", "3")
    assert done.returncode == 2
    # Two heads for keys and values are the smallest dim.
    assert "tp=3 is no multiple of the 2 key-value heads of model.layers.*.self_attn" in done.stderr
    assert "legal tp: 1, 2, 4" in done.stderr


HEADS = "heads of model.layers.*.self_attn; legal tp: 1, 2, 4"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--tp 8 --gpus 8", f"tp=8 is more than the 4 {HEADS}"),
        ("--tp 3 --gpus 3", f"tp=3 is no multiple of the 2 key-value {HEADS}"),
        ("--cp 3 --gpus 3 --cp-method ulysses", "cp=3 is more than the 2 key-value heads"),
        ("--tp 2 --gpus 2 --sp --seq 127", "tp=2 does not divide 127 (dim 1 of "),
        ("--tp 2 --gpus 2 --sp --seq 127", "; legal tp: 1; nearest: --seq 126 or --seq 128"),
        ("--cp 4 --gpus 4 --seq 132", "cp=4 does not divide the 66 pairs of tokens, front and back, that a balanced"),
        ("--cp 4 --gpus 4 --seq 132", "; legal cp: 1, 2, 3, 6, 11, 22, 33, 66; nearest: --seq 128 or --seq 136"),
        ("--cp 4 --gpus 8 --tp 2 --sp --seq 132", "nearest: --seq 128 or --seq 144"),
        ("--cp 3 --gpus 9 --tp 3", "error: tp=3 is no multiple of the 2 key-value heads"),
        ("--cp 3 --gpus 9 --tp 3", "; cp=3 does not divide the 64 pairs"),
    ],
)
def test_a_degree_that_does_not_fit_says_what_does(tiny: Cli, words: str, said: str) -> None:
    done = tiny(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_more_ranks_than_experts_are_refused(cli: Cli, data: Path) -> None:
    config = str(data / "configs" / "tiny-mixtral.json")
    done = cli("estimate", config, "--system", "dgx-h100", "--seq", "128", "--gpus", "8", "--ep", "8")
    assert done.returncode == 2
    assert "ep=8 is more than the 4 experts of 'model.layers.*.mlp.experts.gate_up_proj'" in done.stderr
    assert "legal ep: 1, 2, 4" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("estimat", "gpt2"), "did you mean 'estimate'"),
        (("estimate", "gpt-22", "--system", "dgx-h100"), "did you mean 'gpt2'"),
        (("estimate", "gpt2", "--system", "dgx-h10"), "did you mean 'dgx-h100'"),
        (("estimate", "gpt2"), "--system is needed; known: a100-pcie-80gb-pairs, a40-server, "),
        (("estimate", "gpt2", "--system", "dgx-h100", "--set", "chip.clok=1GHz"), "did you mean"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--set", "chip.clock=1GB"), "GHz"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--set", "chip.clock"), "write path=value"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--set", "chip.clock=nan"), "not a quantity"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--set", "chip.clock=-1GHz"), "more than zero"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--set", "chip.clock=1e999GHz"), "not a finite number"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--dtype", "bf61"), "did you mean 'bf16'"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--grad-dtype", "fp23"), "did you mean 'fp32'"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--phase", "trian"), "did you mean 'train'"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--tp-plan", "megatorn"), "did you mean 'megatron'"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--format", "jsn"), "did you mean 'json'"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--recompute", "ful"), "did you mean 'full'"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--recompute-modules", "mlp"), "go with the policy 'selective'"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--recompute-layers", "3"), "go with the policy 'full'"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--recompute-every", "0"), "1 or more"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--offload", "optimiser"), "did you mean 'optimizer'"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--zero", "4"), "allowed: 0, 1, 2, 3"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--reduce-dtype", "fp23"), "did you mean 'fp32'"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--reshard", "stap"), "did you mean 'step'"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--reshard", "step"), "use --zero 3"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--dp-shard", "2"), "allowed: --zero 1, 2, 3"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--zero", "3", "--dp", "8", "--dp-shard", "3"),
         "legal dp-shard: 1, 2, 4, 8"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--zero", "3", "--dp", "8", "--dp-shard", "0"), "dp-shard=0"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--phase", "decode", "--reduce-dtype", "fp32"), "leave it out"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--tp", "-1"), "tp=-1"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--tp", "two"), "not a valid integer"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--seq", "9" * 40), "1 to 1000000000"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--gpus", "9" * 40), "1 to 1000000000"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--gpus", "8", "--tp", "3"), "legal products: 1, 2, 4, 8"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--passes", "shrad"), "did you mean 'shard'"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--etp", "2"), "etp=2: experts are split over all tp=1 ranks"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--tp", "4", "--etp", "2"), "legal etp: 1, 4"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--dispatch-dtype", "pf8"), "did you mean 'fp8'"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--dispatch-dtype", "fp8"), "use --ep above 1"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--routing-nodes", "4"), "use --ep above 1"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--expert-imbalance", "2"), "use --ep above 1"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--capacity-factor", "0"), "above 0 up to 1000"),
        (("estimate", "gpt2", "--system", "dgx-h100", "--capacity-factor", "1"), "gpt2 has no experts"),
        (("compile", "gpt2", "--emit", "grpah"), "did you mean 'graph'"),
        (("compile", "gpt2", "--emit", ","), "--emit names nothing"),
        (("compile", "gpt2", "--emit", "graph,sharded"), "name a folder with -o"),
        (("compile", "gpt2", "--emit", "sharded", "--dump-after", "shrad"), "did you mean 'shard'"),
        (("compile", "gpt2", "--emit", "sharded", "--stop-after", "shrad"), "did you mean 'shard'"),
        (("compile", "gpt2", "--emit", "report"), "--system is needed"),
        (("list", "modles"), "did you mean 'models'"),
        (("show", "systm", "x"), "did you mean 'system'"),
        (("show", "system", "dgx-h10"), "did you mean 'dgx-h100'"),
        (("show", "model", "gtp2"), "did you mean 'gpt2'"),
        (("show", "op", "matmull"), "did you mean 'matmul'"),
        (("show", "pass", "fus"), "did you mean 'fuse'"),
        (("show", "metric", "mfuu"), "did you mean 'mfu'"),
        (("show", "tp-plan", "megatorn"), "did you mean 'megatron'"),
        (("estimate",), "Missing argument 'MODEL'"),
        (("estimate", "gpt2", "--sytem", "x"), "--system"),
        (("estimate", "", "--system", "dgx-h100"), "''"),
        (("estimate", "gpt2", "--system", ""), "''"),
    ],
)  # fmt: skip
def test_what_is_typed_wrong_is_exit_2_with_help(cli: Cli, words: tuple[str, ...], said: str) -> None:
    done = cli(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("gpt2", "--dtype", "fp8"),
        ("nothing.graph",),
        ("{data}/configs/tiny-llama.json.graph",),
    ],
)
def test_what_cannot_be_understood_is_exit_4(cli: Cli, data: Path, words: tuple[str, ...]) -> None:
    done = cli("estimate", *(w.replace("{data}", str(data)) for w in words), "--system", "dgx-h100")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("error: ")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("broken", "no such luck"),
        ("no_module", "returned int"),
        ("factroy", "did you mean 'factory'"),
    ],
)
def test_a_factory_that_fails_is_exit_2(cli: Cli, data: Path, name: str, said: str) -> None:
    done = cli("estimate", f"{data / 'cli_nets.py'}:{name}", "--system", "dgx-h100")
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe\x00", b"3", b'{"model_type": 7}'])
def test_a_config_that_is_none_is_refused(cli: Cli, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    done = cli("estimate", str(path), "--system", "dgx-h100")
    assert done.returncode in (2, 4)
    assert done.stderr.startswith("error: ")


@pytest.mark.parametrize(
    ("content", "code"), [(b"", 2), (b"- 1", 2), (b"name: [", 4), (b"\xff\xfe\x00", 4), (b"name: x\nname: y", 4)]
)
def test_a_system_file_that_is_none_is_refused(cli: Cli, tmp_path: Path, content: bytes, code: int) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    done = cli("estimate", "gpt2", "--system", str(path))
    assert done.returncode == code
    assert "mine.yaml" in done.stderr


def test_folders_are_not_files(cli: Cli, tmp_path: Path) -> None:
    for name in ("a.graph", "b.yaml", "c.py"):
        (tmp_path / name).mkdir()
    assert cli("estimate", str(tmp_path / "a.graph"), "--system", "dgx-h100").returncode == 4
    assert cli("estimate", "gpt2", "--system", str(tmp_path / "b.yaml")).returncode == 2
    assert cli("estimate", f"{tmp_path / 'c.py'}:factory", "--system", "dgx-h100").returncode == 2
    assert cli("estimate", str(tmp_path), "--system", "dgx-h100").returncode == 2


@pytest.mark.parametrize("flag", [("--zero", "1"), ("--recompute", "full"), ("--offload", "optimizer")])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_inference_refuses_what_is_of_training(estimate: Cli, phase: str, flag: tuple[str, str]) -> None:
    done = estimate("--phase", phase, *flag)
    assert done.returncode == 2
    assert f"{flag[0][2:]}={flag[1]}: of training only; {phase} keeps no gradients" in done.stderr


def test_a_single_token_is_not_split(tiny: Cli) -> None:
    done = tiny("--phase", "decode", "--sp", "--tp", "2")
    assert done.returncode == 2
    assert "of which a decode step has one token" in done.stderr


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (
            "calibration.roofline.default.memory_efficiency=1e-320",
            "--set: kernels.roofline.default.memory_efficiency: '1e-320' is outside of 0.01 to 1.5",
        ),
        ("chip.memory.hbm.bandwidth=1e-307", "'1e-307 B/s' is beyond any machine: from 1 MB/s to 100 PB/s"),
    ],
)
def test_numbers_beyond_numbers_are_refused(tiny: Cli, number: str, message: str) -> None:
    done = tiny("--tp", "2", "--set", number)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_code_that_leaves_python_is_no_success(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "leaves.py"
    path.write_text("def factory():\n    raise SystemExit(0)\n")
    done = cli("estimate", f"{path}:factory", "--system", "dgx-h100")
    assert done.returncode == 2
    assert "left Python by itself" in done.stderr


def test_another_pipeline_than_the_plan_s_is_said(estimate: Cli) -> None:
    done = estimate("--passes", "shard")
    assert done.returncode == 0
    assert "warning: --passes runs 'shard' instead of the plan's own 'accumulate,shard{tp=false}," in done.stderr
