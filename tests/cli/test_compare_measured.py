"""`slipstick compare A.json --measured FILE`: the table, the gates, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., "CompletedProcess[str]"]
GRAPH = "tests/golden/tiny-llama.train.graph"


@pytest.fixture
def predicted(cli: Cli, tmp_path: Path) -> str:
    path = str(tmp_path / "predicted.json")
    done = cli("estimate", GRAPH, "--system", "dgx-h100", "--tp", "2", "--seq", "512", "-q", "-o", path)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def slow(predicted: str, tmp_path: Path) -> str:
    """A log of steps that take twice what was predicted."""
    step_ms = json.loads(Path(predicted).read_text(encoding="utf-8"))["metrics"]["step_time_s"] * 2e3
    path = tmp_path / "train.log"
    path.write_text(f"elapsed time per iteration (ms): {step_ms:.6f} |\n" * 5, encoding="utf-8")
    return str(path)


def test_a_run_twice_as_slow_is_twice_as_slow(cli: Cli, predicted: str, slow: str) -> None:
    done = cli("compare", predicted, "--measured", slow, "--format", "json")
    assert done.returncode == 0, done.stderr
    text = cli("compare", predicted, "--measured", slow).stdout
    assert "+100 %" in text
    assert "log of Megatron-LM" in text
    assert "No input differs" in text


@pytest.mark.parametrize(("gate", "code"), [("step_time_s>+150%", 0), ("step_time_s>+50%", 5)])
def test_gates_judge_a_measured_run(cli: Cli, predicted: str, slow: str, gate: str, code: int) -> None:
    assert cli("compare", predicted, "--measured", slow, "--fail-on", gate).returncode == code


def test_a_trace_is_compared_class_by_class(cli: Cli, predicted: str, tmp_path: Path) -> None:
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5},
        {"ph": "X", "cat": "kernel", "name": "sm90_gemm", "pid": 0, "tid": 7, "ts": 10, "dur": 8, "args": {}},
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    text = cli("compare", predicted, "--measured", str(path), "--steps", "1").stdout
    assert "Kernels by class" in text
    assert any(line.split()[:1] == ["gemm"] and "8 us" in line for line in text.splitlines())


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "give B.json, or a measured run with --measured FILE"),
        (("b.json", "--measured", "x.log"), 2, "give B.json, or a measured run"),
        (("b.json", "--steps", "2"), 2, "--steps is of a trace"),
        (("--measured", "nowhere.log"), 4, "no file of a measured run"),
    ],
)
def test_what_says_two_things_or_none_is_refused(
    cli: Cli, predicted: str, words: tuple[str, ...], code: int, message: str
) -> None:
    done = cli("compare", predicted, *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr


def test_a_server_beside_a_training_step_has_nothing_in_common(cli: Cli, predicted: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"mean_ttft_ms": 10.0}', encoding="utf-8")
    done = cli("compare", predicted, "--measured", str(path))
    assert done.returncode == 2
    assert "have no metric in common" in done.stderr


@pytest.fixture
def product_trace(predicted: str, tmp_path: Path) -> str:
    """A trace of the products of the forward pass of the prediction, each of 8 us, by what its nodes say of them."""
    nodes = json.loads(Path(predicted).read_text(encoding="utf-8"))["nodes"]
    regions = [region for chunk in nodes["stages"][0]["chunks"] for region, _ in chunk]
    sizes = [
        row["products"][0]
        for region in regions
        for row in nodes["rows"]
        if row["node"].startswith(f"{region}/") and row["phase"] == "forward" and "products" in row
    ]
    events: list[dict[str, object]] = []
    for k, (_, m, n, depth) in enumerate(sizes):
        ends = {"pid": 1, "tid": 1, "ph": "X"}
        dims = {"Input Dims": [[m, depth], [depth, n]], "Input type": ["c10::BFloat16"]}
        events += [
            {**ends, "cat": "cpu_op", "name": "aten::mm", "ts": 10 * k, "dur": 5, "args": dims},
            {**ends, "cat": "cuda_runtime", "name": "launch", "ts": 10 * k + 1, "dur": 1, "args": {"correlation": k}},
            {**ends, "cat": "kernel", "name": "gemm", "ts": 10 * k + 2, "dur": 8, "args": {"correlation": k}},
        ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    return str(path)


def test_kernels_of_a_trace_stand_beside_nodes(cli: Cli, predicted: str, product_trace: str, tmp_path: Path) -> None:
    text = cli("compare", predicted, "--measured", product_trace).stdout
    assert "100.0% of the time of matrix products matched to nodes" in text
    assert "part of a step" in text
    assert any(line.startswith("embedding model.embed_tokens") for line in text.splitlines())
    record = json.loads(cli("compare", predicted, "--measured", product_trace, "--format", "json").stdout)["kernels"]
    rows = {row["name"]: row for row in record["ops"]}
    # The Llama has two layers.
    assert rows["matmul mlp.down_proj"]["measured_s"] == pytest.approx(16e-6)
    assert [row["layer"] for row in record["layers"]] == [None, 0, 1]
    page = cli("compare", predicted, "--measured", product_trace, "--format", "html").stdout
    assert "Ops, those that explain most of the gap first" in page
    assert "## Layers" in cli("compare", predicted, "--measured", product_trace, "--format", "md").stdout


def test_both_timelines_are_written(cli: Cli, predicted: str, product_trace: str, tmp_path: Path) -> None:
    out = tmp_path / "both.json"
    assert cli("compare", predicted, "--measured", product_trace, "--timeline", str(out)).returncode == 0
    events = json.loads(out.read_text(encoding="utf-8"))["traceEvents"]
    slices = {pid: [e["name"] for e in events if e["ph"] == "X" and e["pid"] == pid] for pid in (1, 2)}
    assert slices[2].count("matmul mlp.down_proj") == 2
    # Forward, and the gradients of its input and its weight.
    assert slices[1].count("matmul mlp.down_proj") == 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--stage", "3"), "there is no stage 3: the prediction has 1"),
        (("--measured", "slow.log"), "slow.log"),
    ],
)
def test_ranks_and_stages_that_are_not_there_are_refused(
    cli: Cli, predicted: str, product_trace: str, words: tuple[str, ...], message: str
) -> None:
    done = cli("compare", predicted, "--measured", product_trace, *words)
    assert done.returncode in (2, 4)
    assert message in done.stderr


def test_a_prediction_without_nodes_is_compared_by_class(
    cli: Cli, predicted: str, product_trace: str, tmp_path: Path
) -> None:
    tree = json.loads(Path(predicted).read_text(encoding="utf-8"))
    del tree["nodes"]
    old = tmp_path / "old.json"
    old.write_text(json.dumps(tree), encoding="utf-8")
    assert "Kernels by class" in cli("compare", str(old), "--measured", product_trace).stdout
    done = cli("compare", str(old), "--measured", product_trace, "--timeline", "x.json")
    assert done.returncode == 2
    assert "write it again" in done.stderr
