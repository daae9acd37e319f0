import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from slipstick.ir.errors import NotUnderstoodError
from slipstick.measured.run import read_measured
from slipstick.measured.traces import stream
from slipstick.measured.traces.kinds import KernelKind
from slipstick.measured.traces.ran import Stretch
from slipstick.measured.traces.timeline import spent
from slipstick.measured.traces.trace import KINDS, Message, _message, read_trace


def event(cat: str, name: str, start: float, lasting: float, tid: int, **args: object) -> dict[str, object]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": lasting, "args": args}


# A linear layer whose product is launched by aten::mm inside of aten::linear, and an all-reduce that starts while the
# product runs and ends 4 us behind it; 3 us later a kernel adds. A last one was launched before the profiler started.
EVENTS = [
    event("cpu_op", "aten::linear", 0, 10, 1),
    event("cpu_op", "aten::mm", 1, 5, 1),
    event("cuda_runtime", "cudaLaunchKernel", 2, 1, 1, correlation=1),
    event("cpu_op", "aten::add", 12, 3, 1, **{"External id": 7}),
    event("cuda_driver", "cuLaunchKernel", 13, 1, 1, correlation=2),
    event("cuda_runtime", "cudaLaunchKernelExC", 16, 1, 1, correlation=3),
    event("kernel", "sm90_xmma_gemm", 20, 10, 9, correlation=1, stream=7),
    event("kernel", "ncclDevKernel_AllReduce_Sum_bf16", 26, 8, 8, correlation=3, stream=8,
          **{"Group size": 4, "In msg nelems": 100, "Out msg nelems": 100, "dtype": "BFloat16"}),
    event("kernel", "add_kernel", 37, 2, 9, correlation=2, stream=7),
    event("kernel", "left_over", 0, 5, 9, correlation=99, stream=7),
]  # fmt: skip


# A machine that exports kernels alone: no host, no launches.
DEVICE_ALONE = [event("kernel", "sm90_xmma_gemm", 20, 10, 9, correlation=1, stream=7)]


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_kernels_have_the_innermost_operator_around_their_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zipped: bool, chunk: int
) -> None:
    monkeypatch.setattr(stream, "CHUNK", chunk)
    text = json.dumps({"schemaVersion": 1, "traceEvents": EVENTS, "traceName": "x"}).encode()
    trace = read_trace(written(tmp_path / "t", gzip.compress(text) if zipped else text))
    assert trace.by_op() == {"aten::mm": 10, "": 13, "aten::add": 2}
    names = [trace.name(k) for k in trace.ran.name.tolist()]
    assert names == ["left_over", "sm90_xmma_gemm", "add_kernel", "ncclDevKernel_AllReduce_Sum_bf16"]
    assert [KINDS[k] for k in trace.kind[1:]] == [KernelKind.GEMM, KernelKind.POINTWISE, KernelKind.COLLECTIVE]
    assert trace.message(3) == Message("all_reduce", 4, 200)


def test_what_is_exposed_runs_beside_no_computation(tmp_path: Path) -> None:
    found = spent(read_trace(written(tmp_path / "t", json.dumps({"traceEvents": EVENTS}).encode())))
    assert (found.compute_us, found.exposed_comm_us, found.idle_us, found.comm_us) == (12, 4, 3, 8)
    assert found.total_us == 39 - 20


TEXT = json.dumps({"traceEvents": EVENTS}).encode()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (TEXT[:-30], "cut off"), (gzip.compress(TEXT)[:-30], "cut off"), (b"", "cut off"),
        (b"\x80\x04pickle", "no trace"),
        (b'{"a": 1}', "traceEvents"), (b"{}", "traceEvents"), (b"[1]", "a int, not an object"),
        (b'{"traceEvents": []}', "neither kernels"), (b"\x1f\x8bgarbage of no gzip", "gzipped"), (b"[" * 3000, "no"),
    ],
)  # fmt: skip
def test_what_is_no_whole_trace_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(NotUnderstoodError, match=said):
        read_trace(written(tmp_path / "t", data))


@pytest.mark.parametrize("key", ["ts", "dur"])
@pytest.mark.parametrize("value", [1e308, -1e308, 2**60, "nan", "Infinity", float("nan"), 10**400, -(2.0**54)])
@pytest.mark.parametrize("cat", ["kernel", "cpu_op", "cuda_runtime", "user_annotation"])
def test_times_that_no_run_has_are_refused(tmp_path: Path, key: str, value: float | str, cat: str) -> None:
    odd = {**event(cat, "ProfilerStep#1", 1, 2, 1, correlation=1), key: value}
    with pytest.raises(NotUnderstoodError, match="has a time of"):
        read_trace(written(tmp_path / "t", json.dumps([*EVENTS, odd]).encode()))


def test_a_duration_below_zero_is_refused_and_times_since_1970_are_read(tmp_path: Path) -> None:
    with pytest.raises(NotUnderstoodError, match="-5 us"):
        read_trace(written(tmp_path / "t", json.dumps([*EVENTS, event("kernel", "gemm", 50, -5, 9)]).encode()))
    # Microseconds at the end of 2099.
    late = [{**one, "ts": float(str(one["ts"])) + 4102444800e6} for one in EVENTS]
    assert spent(read_trace(written(tmp_path / "t", json.dumps(late).encode()))).total_us == 39 - 20


def test_a_trace_recorded_on_this_cpu_adds_up(tmp_path: Path) -> None:
    a = torch.ones(64, 64)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for step in range(2):
            # The name that a profiler with a schedule gives to its steps.
            with torch.profiler.record_function(f"ProfilerStep#{step}"):
                (a @ a).relu()
    profiler.export_chrome_trace(str(tmp_path / "t.json"))
    trace = read_trace(tmp_path / "t.json")
    assert not trace.on_device
    products = [trace.name(k) == "aten::mm" for k in trace.ran.name.tolist()]
    assert trace.step_of[products].tolist() == [0, 1]
    own = sum(e.self_cpu_time_total for e in profiler.key_averages() if e.key.startswith("aten::"))
    assert sum(us for name, us in trace.by_op().items() if name.startswith("aten::")) == pytest.approx(own, rel=0.01)


def updated(host_us: Sequence[float], kernel_us: Sequence[float], name: str = "AdamW") -> list[dict[str, object]]:
    """Steps of one kernel and an update each; the host is done with each at once, the device when its kernel ends."""
    events: list[dict[str, object]] = []
    for k, (host, kernel) in enumerate(zip(host_us, kernel_us, strict=True)):
        events += [
            event("cpu_op", "aten::mm", host, 1, 1),
            event("cuda_runtime", "cudaLaunchKernel", host, 1, 1, correlation=k),
            event("kernel", "gemm", kernel, 9, 7, correlation=k, stream=7),
            event("user_annotation", f"Optimizer.step#{name}.step", host + 1, 1, 1),
        ]
    return events


def test_without_marks_steps_are_those_between_updates_and_take_what_the_device_takes(tmp_path: Path) -> None:
    events = updated(host_us=(0, 4, 8, 12), kernel_us=(5, 15, 27, 40))
    trace = read_trace(written(tmp_path / "t", json.dumps(events).encode()))
    # What lies before the first update may be part of a step.
    assert [(step.start_us, step.end_us) for step in trace.steps] == [(2, 6), (6, 10), (10, 14)]
    assert trace.step_of.tolist() == [-1, 0, 1, 2]
    # The host is ahead: a step takes from its first kernel to that of the next, the last until its kernel ends.
    assert trace.step_times_us.tolist() == [12, 13, 9]
    assert not trace.is_marked
    (note,) = read_measured(tmp_path / "t").notes
    assert "between updates of the optimizer" in note


def test_of_two_optimizers_the_last_one_ends_a_step(tmp_path: Path) -> None:
    events = [*updated((0, 40, 80), (1, 41, 81), "Muon"), *updated((20, 60, 100), (21, 61, 101), "AdamW")]
    trace = read_trace(written(tmp_path / "t", json.dumps(events).encode()))
    assert [(step.start_us, step.end_us) for step in trace.steps] == [(22, 62), (62, 102)]


def test_kernels_of_a_trace_without_a_host_are_read(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path / "t", json.dumps(DEVICE_ALONE).encode()))
    assert trace.by_op() == {"": 10}
    assert spent(trace).compute_us == 10


def test_operators_know_their_inputs_and_the_phase_around_them(tmp_path: Path) -> None:
    events = [
        event("cpu_op", "aten::mm", 0, 5, 1, **{"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}),
        event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 10, 20, 1),
        event("cpu_op", "MmBackward0", 11, 18, 1),
        event("cpu_op", "aten::mm", 12, 5, 1),
        event("user_annotation", "Optimizer.step#AdamW.step", 40, 9, 1),
        event("cpu_op", "aten::_foreach_add_", 41, 5, 1),
    ]
    trace = read_trace(written(tmp_path / "t", json.dumps(events).encode()))
    found = [
        (trace.name(name), Stretch(phase), trace.inputs[word])
        for name, phase, word in zip(trace.ran.name, trace.ran.stretch, trace.ran.inputs, strict=True)
    ]
    back = Stretch.BACKWARD
    assert found == [
        ("aten::mm", Stretch.FORWARD, "float [[2, 3], [3, 4]]"),
        ("autograd::engine::evaluate_function: MmBackward0", back, ""),
        ("MmBackward0", back, ""), ("aten::mm", back, ""),
        ("aten::_foreach_add_", Stretch.OPTIMIZER, ""),
    ]  # fmt: skip
    # Each has the time that it took by itself.
    assert trace.ran.time_us.tolist() == [5, 2, 13, 5, 5]


def test_a_message_of_more_than_any_machine_holds_is_not_known() -> None:
    given = "allreduce|4|BFloat16|1.7e308|1|"
    found = _message("ncclDevKernel_AllReduce_Sum_bf16", given)
    assert (found.ranks, found.num_bytes) == (4, 0.0)
