"""Precisions of inference on the command line: what is printed, noted and refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., CompletedProcess[str]]


@pytest.fixture
def published(cli: Cli, data: Path, tmp_path: Path) -> Cli:
    """Estimate a decode step of a Llama of two layers whose config says that it was published in fp8."""
    fields = json.loads((data / "configs" / "tiny-llama.json").read_text(encoding="utf-8"))
    file = tmp_path / "tiny-llama.json"
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    file.write_text(json.dumps(fields | config), encoding="utf-8")
    return lambda *words: cli("estimate", str(file), "--quiet", *words)


def test_the_first_line_names_the_types(tiny: Cli) -> None:
    done = tiny("--phase", "decode", "--precision", "w4a16", "--kv-dtype", "fp8")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].endswith("seq 128  bf16+w4a16 kv fp8")


def test_json_says_the_types_and_bytes_follow(tiny: Cli) -> None:
    plain, low = (
        json.loads(tiny("--phase", "decode", "--format", "json", *words).stdout)
        for words in ((), ("--precision", "fp8", "--kv-dtype", "int8"))
    )
    assert [r["inputs"]["plan"]["precision"] for r in (plain, low)] == ["none", "fp8"]
    assert [r["inputs"]["plan"]["kv_dtype"] for r in (plain, low)] == ["same", "int8"]
    assert low["memory"]["kv_cache"] * 2 == plain["memory"]["kv_cache"]
    # Two layers of 64 x (2 x 64 + 2 x 32 + 3 x 96) weights in one byte instead of two.
    assert plain["memory"]["weights"] - low["memory"]["weights"] == 2 * 64 * (2 * 64 + 2 * 32 + 3 * 96)


def test_weights_named_by_their_paths_have_recipes_of_their_own(tiny: Cli) -> None:
    of = ("--precision", "fp8", "--precision-of", "*.mlp=none", "--precision-of", "lm_head=w8a16")
    done = tiny("--phase", "decode", *of)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].endswith("bf16+fp8 *.mlp=none lm_head=w8a16")
    plain, low = (json.loads(tiny("--phase", "decode", "--format", "json", *w).stdout) for w in ((), of))
    assert low["inputs"]["plan"]["precision_of"] == [["*.mlp", "none"], ["lm_head", "w8a16"]]
    # A byte less for each weight of attention in two layers, and of the table of 160 words.
    assert plain["memory"]["weights"] - low["memory"]["weights"] == 2 * 64 * (2 * 64 + 2 * 32) + 160 * 64


def test_what_a_checkpoint_leaves_out_stays(cli: Cli, data: Path, tmp_path: Path) -> None:
    fields = json.loads((data / "configs" / "tiny-llama.json").read_text(encoding="utf-8"))
    said = {"quant_method": "fp8", "modules_to_not_convert": ["lm_head", "model.layers.1.mlp", "visual"]}
    file = tmp_path / "tiny-llama.json"
    file.write_text(json.dumps(fields | {"quantization_config": said}), encoding="utf-8")
    words = ("--quiet", "--phase", "decode", "--seq", "128", "--system", "dgx-h100", "--format", "json")
    plain, low = (
        json.loads(cli("estimate", str(file), *words, *more).stdout)["memory"]["weights"]
        for more in ((), ("--precision", "as-published"))
    )
    # Attention of both layers and the feed-forward network of the first.
    assert plain - low == 2 * 64 * (2 * 64 + 2 * 32) + 64 * 3 * 96


def test_a_quantised_checkpoint_is_noted_and_run_as_it_was_published(published: Cli) -> None:
    noted = published("--phase", "decode", "--seq", "256", "--system", "dgx-h100")
    assert "was published in fp8-block, and is estimated in bf16: --precision as-published" in " ".join(
        noted.stdout.split()
    )
    for system, name in (("dgx-h100", "fp8-block"), ("dgx-a100-80gb", "w8a16")):
        done = published("--phase", "decode", "--seq", "256", "--system", system, "--precision", "as-published")
        assert done.returncode == 0
        assert done.stdout.splitlines()[0].endswith(f"bf16+{name}")
        assert "was published" not in done.stdout


def test_a_server_runs_a_checkpoint_as_it_was_published(published: Cli) -> None:
    done = published("--system", "dgx-h100", "--phase", "serve", "--precision", "as-published", "--kv-dtype", "fp8",
                     "--engine", "vllm",
                     "--isl", "64", "--osl", "16", "--concurrency", "2")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].endswith("bf16+fp8-block kv fp8")


@pytest.mark.parametrize("name", ["fp8-rowwise", "fp8-block", "mxfp8"])
@pytest.mark.parametrize("phase", ["train", "decode"])
def test_how_the_step_follows_its_units_is_said_for_types_with_scales(tiny: Cli, phase: str, name: str) -> None:
    done = tiny("--phase", phase, "--precision", name, "--format", "json", "--sensitivity")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["elasticities"]["chip.matmul.fp8"] <= 0.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--phase", "decode", "--precision", "fp8-delayed"), "of training only; decode has none, fp8"),
        (("--phase", "decode", "--precision", "nvfp4"), "runs on fp4 matrix units, and H100-SXM5-80GB has"),
        (("--phase", "decode", "--precision", "mxfp4"), "of experts alone, and tiny-llama has none"),
        (("--phase", "decode", "--precision-of", "*.mpl=fp8"), "no weight of tiny-llama has such a path"),
        (("--phase", "decode", "--precision-of", "lm_head"), "PATTERN=RECIPE, as in"),
        (("--phase", "decode", "--precision-of", "*.mlp=nvfp4"), "precision=nvfp4 runs on fp4 matrix units"),
        (("--phase", "decode", "--kv-dtype", "fp4"), "legal: same, fp8, int8"),
        (("--precision", "w4a16"), "of inference only; train has none, fp8"),
        (("--precision", "as-published"), "of inference only; name the recipe"),
        (("--kv-dtype", "fp8"), "training keeps no KV cache"),
        (("--phase", "decode", "--precision", "w4a61"), "did you mean 'w4a16'?"),
    ],
)
def test_what_is_refused_says_what_is_legal(tiny: Cli, words: tuple[str, ...], said: str) -> None:
    done = tiny(*words)
    assert done.returncode == 2
    assert said in done.stderr
