"""What a run measured, by the names of our metrics: of a profiler's trace, a training log, a server's benchmark."""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from statistics import median
from types import MappingProxyType

import numpy as np

from ..ir.errors import NotUnderstoodError
from ..ir.records import dataclass
from ..ir.text.formats import read_json
from ..ir.text.untrusted import open_regular, read_bytes
from .traces.kinds import KernelKind
from .traces.nsys import HEADER
from .traces.timeline import spent
from .traces.trace import KINDS, RankTrace, read_trace

# How the beginning of a file tells a trace: its events may be behind a long header.
_TRACE = re.compile(rb'"traceEvents"\s*:|^\s*\[\s*\{[^{}]*"ph"\s*:')
# What is larger, in SI, is no measurement: a site writes some 1e18 bytes, and the universe is 4e17 s old.
_MOST = 1e20
_GIB, _MIB = 2.0**30, 2.0**20
_SCALES: Mapping[str, float] = MappingProxyType({"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12})


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A run as it was measured.

    Attributes:
        path: its file.
        kind: what the file is, in words.
        metrics: by the names of `slipstick list metrics`, SI.
        classes: seconds of a step by class of kernel, of a trace; they add up to a step where none run side by side.
        notes: what a reader must know of these numbers.
    """

    path: str
    kind: str
    metrics: Mapping[str, float]
    classes: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse numbers that nothing measures: NotUnderstoodError."""
        for name, value in self.metrics.items():
            if not 0.0 <= value <= _MOST or (name == "step_time_s" and not value):
                raise NotUnderstoodError(f"{self.path}: {name} is {value:g}: positive, and at most {_MOST:g}")


@dataclass(frozen=True, slots=True)
class _Line:
    """A number in a line of a log: our metric, where it stands, and what turns it into SI."""

    metric: str
    pattern: re.Pattern[str]
    scale: float = 1.0


def _line(metric: str, pattern: str, scale: float = 1.0) -> _Line:
    return _Line(metric, re.compile(pattern.replace("NUMBER", r"([0-9.,]+(?:[eE][+-]?[0-9]+)?)\s?([KMGBT]?)\b")), scale)


# What training frameworks print of each step.
_LOGS: Mapping[str, Sequence[_Line]] = MappingProxyType(
    {
        "log of Megatron-LM": (
            _line("step_time_s", r"elapsed time per iteration \(ms\): NUMBER", 1e-3),
            _line("peak_mem_bytes", r"max allocated: NUMBER", _MIB),
        ),
        "log of torchtitan": (
            _line("tokens_per_s_per_gpu", r"\btps: NUMBER"),
            _line("mfu", r"\bmfu: NUMBER%", 0.01),
            _line("peak_mem_bytes", r"\bmemory: +([0-9.]+)()GiB", _GIB),
        ),
        "log of nanotron": (
            _line("step_time_s", r"(?:elapsed_)?time_per_iteration_ms: NUMBER", 1e-3),
            _line("tokens_per_s", r"tokens_per_sec: NUMBER"),
            _line("tokens_per_s_per_gpu", r"tokens_per_sec_per_gpu: NUMBER"),
        ),
        "log of MLPerf": (
            _line("step_time_s", r':::MLLOG .*"train_step_time": NUMBER'),
            _line("samples_per_s", r':::MLLOG .*"throughput": NUMBER'),
        ),
    }
)
# What benchmarks of servers write, with our metric and what turns the number into SI.
_SERVERS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "mean_ttft_ms": ("ttft_s", 1e-3),
        "mean_tpot_ms": ("tpot_s", 1e-3),
        "mean_itl_ms": ("itl_s", 1e-3),
        "mean_e2el_ms": ("e2el_s", 1e-3),
        "mean_e2e_latency_ms": ("e2el_s", 1e-3),
        "request_throughput": ("requests_per_s", 1.0),
        "output_throughput": ("tokens_per_s", 1.0),
        "total_token_throughput": ("total_tokens_per_s", 1.0),
        "max_concurrency": ("concurrency", 1.0),
        **{
            f"{part}_{name}_ms": (f"{name}_{part}_s", 1e-3)
            for part in ("p50", "p90", "p99")
            for name in ("ttft", "tpot", "itl", "e2el")
        },
    }
)
# The same of genai-perf and aiperf, each with its statistics.
_STATISTICS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "time_to_first_token": ("ttft", 1e-3),
        "inter_token_latency": ("tpot", 1e-3),
        "request_latency": ("e2el", 1e-3),
        "output_token_throughput": ("tokens_per_s", 1.0),
        "request_throughput": ("requests_per_s", 1.0),
    }
)


def read_measured(path: Path, num_steps: int | None = None) -> MeasuredRun:
    """Read a measured run; NotUnderstoodError for a file that is none of what is known.

    Args:
        path: a trace of torch.profiler (.json, .json.gz), a report of Nsight Systems (.sqlite), a log of Megatron-LM,
            torchtitan, nanotron or MLPerf, transformers' trainer_state.json, a snapshot of PyTorch's allocator as JSON,
            or the JSON of `vllm bench serve`, SGLang's bench_serving, genai-perf or aiperf.
        num_steps: steps that a trace holds, where the profiler did not mark them.
    """
    if is_trace(path):
        return of_trace(read_trace(path), num_steps)
    # A log may hold what its terminal did not show.
    text = read_bytes(path).decode("utf-8", "replace")
    if path.suffix == ".json" or text.lstrip().startswith("{"):
        return _of_json(path, text)
    return _of_log(path, text)


def is_trace(path: Path) -> bool:
    """Whether a file begins as traces do; NotUnderstoodError where there is none, or its gzip is broken."""
    if not path.exists() or path.is_dir():
        raise NotUnderstoodError(f"{path}: no file of a measured run")
    with open_regular(path) as file:
        try:
            head = (gzip.GzipFile(fileobj=file) if path.name.endswith(".gz") else file).read(1 << 20)
        except (OSError, EOFError, zlib.error) as error:
            raise NotUnderstoodError(f"{path}: {error}") from None
    return head.startswith(HEADER) or _TRACE.search(head) is not None


def of_trace(trace: RankTrace, num_steps: int | None = None) -> MeasuredRun:
    """Sum kernels by class, a step; what is exposed and idle is of the device alone.

    Where steps are marked, what lies outside of them is not counted, unless `num_steps` says how many there are.
    """
    steps, name = num_steps or len(trace.steps), Path(trace.path).name
    notes = []
    if not steps:
        notes.append(f"{name}: no step is marked: all of the trace counts as one; give --steps N")
    elif num_steps is None and not trace.is_marked:
        notes.append(f"{name}: no step is marked: steps are those between updates of the optimizer")
    steps = steps or 1
    inside = trace.counted(num_steps)
    time = spent(trace, inside)
    sums = np.bincount(trace.kind[inside], trace.ran.time_us[inside], len(KINDS)) * 1e-6 / steps
    apart = (KernelKind.COLLECTIVE, KernelKind.COPY)
    classes = {str(kind): float(s) for kind, s in zip(KINDS, sums, strict=True) if s and kind not in apart}
    parts = {
        "exposed communication": time.exposed_comm_us,
        "exposed copies": time.exposed_copy_us,
        "idle": time.idle_us,
    }
    classes |= {name: us * 1e-6 / steps for name, us in parts.items()}
    marked = float(np.median(trace.step_times_us)) * 1e-6 if trace.steps and num_steps is None else None
    metrics = {
        "step_time_s": marked or time.total_us * 1e-6 / steps,
        "exposed_comm_s": classes["exposed communication"],
        "hidden_comm_s": (time.comm_us - time.exposed_comm_us) * 1e-6 / steps,
    }
    where = "a device" if trace.on_device else "a CPU"
    return MeasuredRun(
        path=trace.path, kind=f"trace of {where}, {steps} steps", metrics=metrics, classes=classes, notes=tuple(notes)
    )


def _of_log(path: Path, text: str) -> MeasuredRun:
    """Take the median of each number that a framework prints of its steps, without the first, which warm up."""
    for kind, lines in _LOGS.items():
        found = {line.metric: [_number(path, *m) * line.scale for m in line.pattern.findall(text)] for line in lines}
        found = {metric: values for metric, values in found.items() if values}
        if not found:
            continue
        metrics = {name: max(values) if name == "peak_mem_bytes" else _steady(values) for name, values in found.items()}
        number = max(map(len, found.values()))
        note = f"{path.name}: median of {number} steps" + (", the first tenth left out" if number > 3 else "")
        return MeasuredRun(path=str(path), kind=kind, metrics=metrics, notes=(note,))
    raise NotUnderstoodError(f"{path}: no line of {', '.join(_LOGS)} is in it, and it is neither a trace nor JSON")


def _steady(values: Sequence[float]) -> float:
    """Return the median behind the first tenth; at least one of more than three is left out."""
    return median(values[max(len(values) // 10, 1) :] if len(values) > 3 else values)


def _number(path: Path, digits: str, scale: str = "") -> float:
    try:
        number = float(digits.replace(",", "").rstrip("."))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise NotUnderstoodError(f"{path}: '{digits[:40]}' is no number of a step")
    return number * _SCALES[scale]


def _of_json(path: Path, text: str) -> MeasuredRun:
    tree = read_json(text, str(path), any_text=True)
    if not isinstance(tree, Mapping):
        raise NotUnderstoodError(f"{path}: a JSON of a {type(tree).__name__}: what is read holds an object")
    for kind, reader in _READERS.items():
        if metrics := reader(tree):
            return MeasuredRun(path=str(path), kind=kind, metrics=metrics)
    raise NotUnderstoodError(f"{path}: none of its keys is known: {', '.join(_READERS)} are read")


def _of_trainer(tree: Mapping[str, object]) -> dict[str, float]:
    """Transformers' trainer_state.json, by the line that it writes at the end of the run."""
    history = tree.get("log_history")
    lines = [line for line in history if isinstance(line, Mapping)] if isinstance(history, list) else []
    last = next((line for line in reversed(lines) if _real(line.get("train_steps_per_second"))), {})
    rate = _real(last.get("train_steps_per_second"))
    return {"step_time_s": 1.0 / rate} if rate else {}


def _of_server(tree: Mapping[str, object]) -> dict[str, float]:
    """`vllm bench serve` and SGLang's bench_serving: one number a key."""
    pairs = ((metric, _real(tree.get(key)), scale) for key, (metric, scale) in _SERVERS.items())
    return {metric: value * scale for metric, value, scale in pairs if value}


def _of_statistics(tree: Mapping[str, object]) -> dict[str, float]:
    """genai-perf and aiperf: statistics a key, latencies in ms."""
    found: dict[str, float] = {}
    for key, (metric, scale) in _STATISTICS.items():
        statistics = tree.get(key)
        for part, value in statistics.items() if isinstance(statistics, Mapping) else ():
            number = _real(value)
            if number and part == "avg":
                found[metric if scale == 1.0 else f"{metric}_s"] = number * scale
            elif number and scale != 1.0 and part in ("p50", "p90", "p99"):
                found[f"{metric}_{part}_s"] = number * scale
    return found


# What events of PyTorch's allocator do to the memory that it has reserved.
_SEGMENTS: Mapping[str, float] = MappingProxyType(
    {"segment_alloc": 1.0, "segment_map": 1.0, "segment_free": -1.0, "segment_unmap": -1.0}
)


def _of_snapshot(tree: Mapping[str, object]) -> dict[str, float]:
    """`torch.cuda.memory._snapshot()` as JSON: the most that the allocator had reserved, of the device that had most.

    Segments say what is reserved now; the trace of each device is walked backward from there.
    """
    segments, traces = tree.get("segments"), tree.get("device_traces")
    if not isinstance(segments, list):
        return {}
    now: dict[int, float] = {}
    for segment in segments:
        if isinstance(segment, Mapping):
            device = segment.get("device")
            key = device if isinstance(device, int) else 0
            now[key] = now.get(key, 0.0) + (_real(segment.get("total_size")) or 0.0)
    most = list(now.values())
    listed: list[object] = traces if isinstance(traces, list) else []
    for device, events in enumerate(listed):
        reserved = now.get(device, 0.0)
        known = [event for event in events if isinstance(event, Mapping)] if isinstance(events, list) else []
        for event in reversed(known):
            # Backward in time what was taken is given back.
            size = (_real(event.get("size")) or 0.0) * _SEGMENTS.get(str(event.get("action")), 0.0)
            reserved -= size
            most.append(reserved)
    return {"peak_mem_bytes": max(most)} if most and max(most) > 0.0 else {}


def _real(value: object) -> float | None:
    """Return a positive number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if value > 0 else None


_READERS: Mapping[str, Callable[[Mapping[str, object]], dict[str, float]]] = MappingProxyType(
    {
        "trainer_state.json of transformers": _of_trainer,
        "result of vllm bench serve or SGLang": _of_server,
        "result of genai-perf or aiperf": _of_statistics,
        "snapshot of PyTorch's allocator": _of_snapshot,
    }
)
