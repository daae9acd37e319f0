"""Measured runs by the names of our metrics: logs, results of benchmarks, traces; and files that are none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from slipstick.ir.errors import NotUnderstoodError
from slipstick.measured.run import read_measured

MEGATRON = "\n".join(
    [
        "iteration 1/9 | elapsed time per iteration (ms): 9000.0 | x",
        "[Rank 0] memory (MB) | allocated: 1.0 | max allocated: 1024.0 | reserved: 2048.0",
        *(f"iteration {n}/9 | elapsed time per iteration (ms): {100 + n}.0 | x" for n in range(2, 7)),
    ]
)
TITAN = "\n".join(
    f"step: {n}  loss: 7.1  memory: 45.50GiB(57.7%)  tps: 6,{n}00  tflops: 300.5  mfu: 30.4%" for n in (1, 2, 3)
)
NANOTRON = (
    "iteration: 1 / 10 | elapsed_time_per_iteration_ms: 1.2K | tokens_per_sec: 300K | tokens_per_sec_per_gpu: 4.5K"
)


@pytest.mark.parametrize(
    ("text", "kind", "metrics"),
    [
        (MEGATRON, "log of Megatron-LM", {"step_time_s": 0.104, "peak_mem_bytes": 2.0**30}),
        (TITAN, "log of torchtitan", {"tokens_per_s_per_gpu": 6200.0, "mfu": 0.304, "peak_mem_bytes": 45.5 * 2**30}),
        (NANOTRON, "log of nanotron", {"step_time_s": 1.2, "tokens_per_s": 3e5, "tokens_per_s_per_gpu": 4500.0}),
    ],
)
def test_a_log_says_the_median_of_its_steps(text: str, kind: str, metrics: dict[str, float], tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(text, encoding="utf-8")
    run = read_measured(path)
    assert run.kind == kind
    assert run.metrics == pytest.approx(metrics)


@pytest.mark.parametrize(
    ("tree", "kind", "metrics"),
    [
        (
            {"log_history": [{"step": 1, "loss": 2.0}, {"step": 9, "train_steps_per_second": 2.5}]},
            "trainer_state.json of transformers",
            {"step_time_s": 0.4},
        ),
        (
            {"mean_ttft_ms": 120.0, "p99_ttft_ms": 300.0, "mean_tpot_ms": 12.0, "request_throughput": 2.0},
            "result of vllm bench serve or SGLang",
            {"ttft_s": 0.12, "ttft_p99_s": 0.3, "tpot_s": 0.012, "requests_per_s": 2.0},
        ),
        (
            {"time_to_first_token": {"unit": "ms", "avg": 50.0, "p90": 70.0, "p75": 60.0},
             "output_token_throughput": {"avg": 900.0}},
            "result of genai-perf or aiperf",
            {"ttft_s": 0.05, "ttft_p90_s": 0.07, "tokens_per_s": 900.0},
        ),
    ],
)  # fmt: skip
def test_a_result_is_told_by_its_keys(tree: object, kind: str, metrics: dict[str, float], tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(tree), encoding="utf-8")
    run = read_measured(path)
    assert run.kind == kind
    assert run.metrics == pytest.approx(metrics)


def trace_of(*kernels: tuple[str, str, float, float]) -> str:
    events: list[object] = []
    for number, (op, name, start, lasting) in enumerate(kernels):
        at = {"ph": "X", "pid": 1, "tid": 1, "ts": start, "dur": 1.0}
        events += [
            {**at, "cat": "cpu_op", "name": op, "dur": 2.0},
            {**at, "cat": "cuda_runtime", "name": "launch", "ts": start + 0.5, "args": {"correlation": number}},
            {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start + 1, "dur": lasting,
             "args": {"correlation": number, "stream": 7}},
        ]  # fmt: skip
    return json.dumps({"traceEvents": events})


@pytest.mark.parametrize("zipped", [False, True])
def test_a_trace_says_seconds_of_a_step_by_class(zipped: bool, tmp_path: Path) -> None:
    text = trace_of(
        ("aten::mm", "sm90_gemm", 0, 40),
        ("c10d::allreduce_", "ncclDevKernel_AllReduce", 60, 20),
        ("aten::mul", "mul", 100, 10),
    )
    path = tmp_path / ("trace.json.gz" if zipped else "trace.json")
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    run = read_measured(path, num_steps=2)
    # 40 us of products, 20 us of a message alone, 10 us of a product of elements, in 110 us from first to last.
    assert run.classes == pytest.approx(
        {"gemm": 20e-6, "pointwise": 5e-6, "exposed communication": 10e-6, "exposed copies": 0.0, "idle": 20e-6}
    )
    assert run.metrics["step_time_s"] == pytest.approx(55e-6)
    assert sum(run.classes.values()) == pytest.approx(run.metrics["step_time_s"])
    assert "give --steps N" in read_measured(path).notes[0]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.log", "nothing here", "no line of log of Megatron-LM"),
        ("a.json", "{", "a.json:1: is not JSON"),
        ("a.json", '{"x": 1}', "none of its keys is known"),
        ("a.json", "[1]", "what is read holds an object"),
        ("a.json.gz", "plain", "Not a gzipped file"),
    ],
)
def test_a_file_that_is_no_measured_run_is_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(NotUnderstoodError, match=message):
        read_measured(path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.log", "elapsed time per iteration (ms): 1e308\n" * 4, "step_time_s is 1e[+]305"),
        ("a.log", "elapsed time per iteration (ms): 0.0\n" * 4, "step_time_s is 0"),
        ("a.log", "elapsed time per iteration (ms): 9e300 T\n" * 4, "step_time_s is inf"),
        ("a.json", '{"mean_ttft_ms": 5, "request_throughput": 1e308}', "requests_per_s is 1e[+]308"),
        ("a.json", '{"log_history": [{"train_steps_per_second": 1e-308}]}', "step_time_s is"),
        ("a.json", '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1}]}', "step_time_s is 0"),
    ],
)
def test_numbers_that_nothing_measures_are_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(NotUnderstoodError, match=message):
        read_measured(tmp_path / name)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotUnderstoodError, match="no file of a measured run"):
        read_measured(tmp_path / "none.log")


def test_a_snapshot_of_the_allocator_says_the_most_that_was_reserved(tmp_path: Path) -> None:
    """Now 6 MB are reserved on device 0; before, 4 of them were not, and 10 others were: at most 12 MB, on the way."""
    events = [
        {"action": "segment_alloc", "addr": 1, "size": 10_000_000},
        {"action": "alloc", "addr": 1, "size": 9_000_000},
        {"action": "segment_free", "addr": 1, "size": 10_000_000},
        {"action": "segment_alloc", "addr": 2, "size": 4_000_000},
    ]
    segments = [{"device": 0, "total_size": 6_000_000, "allocated_size": 5}, {"device": 1, "total_size": 7_000_000}]
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps({"segments": segments, "device_traces": [events, []]}), encoding="utf-8")
    assert read_measured(path).metrics == {"peak_mem_bytes": 12_000_000}


def test_a_log_of_mlperf_says_its_steps(tmp_path: Path) -> None:
    line = (
        ':::MLLOG {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": "tracked_stats", "value": %s}'
    )
    values = ['{"train_step_time": 9.0}', *['{"throughput": 20.0, "train_step_time": 0.4}'] * 5]
    path = tmp_path / "mlperf.log"
    path.write_text("\n".join(line % value for value in values), encoding="utf-8")
    assert read_measured(path).metrics == {"step_time_s": 0.4, "samples_per_s": 20.0}
