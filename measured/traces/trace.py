"""One rank's trace: kernels with the operators that launched them, or on a CPU the operators alone."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from sys import intern

from ...ir.errors import NotUnderstoodError
from .kinds import KernelKind, kind_of, message_of
from .stream import trace_events

_KERNELS = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"})
_OPS = frozenset({"cpu_op", "operator"})
_STEP = "ProfilerStep#"


@dataclass(frozen=True, slots=True)
class Span:
    """A name with the microseconds in which it ran."""

    name: str
    start_us: float
    time_us: float

    @property
    def end_us(self) -> float:
        """When it ended."""
        return self.start_us + self.time_us


@dataclass(frozen=True, slots=True)
class RanKernel(Span):
    """What ran on the device, or on a CPU an operator without those that it called.

    `op` launched it, empty where the trace does not say. `message`, `ranks` and `num_bytes` are of collectives; bytes
    are zero where the trace has none. `launched` says that its launch is in the trace: others were still to run when
    the profiler started.
    """

    op: str
    kind: KernelKind
    stream: str = ""
    message: str = ""
    ranks: int = 0
    num_bytes: float = 0.0
    launched: bool = True


@dataclass(frozen=True, slots=True)
class RankTrace:
    """A trace of one rank; `steps` are those that the profiler marked, `on_device` whether anything ran on a device."""

    path: str
    kernels: tuple[RanKernel, ...]
    steps: tuple[Span, ...]
    on_device: bool

    def by_op(self) -> Mapping[str, float]:
        """Microseconds of kernels by the operator that launched them, the longest first."""
        found: dict[str, float] = {}
        for kernel in self.kernels:
            found[kernel.op] = found.get(kernel.op, 0.0) + kernel.time_us
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))


@dataclass(slots=True)
class _Read:
    """What is kept of the events: all else, most of a file, goes by."""

    kernels: list[tuple[Span, Mapping[str, object], bool]]
    ops: dict[tuple[object, object], list[Span]]
    launches: dict[int, tuple[tuple[object, object], float]]
    by_external: dict[int, str]
    steps: list[Span]


def read_trace(path: Path) -> RankTrace:
    """Read a trace of torch.profiler; NotUnderstoodError for what is none, or holds nothing that ran."""
    read = _Read([], {}, {}, {}, [])
    for event in trace_events(path):
        if event.get("ph") == "X":
            _keep(read, event)
    for ops in read.ops.values():
        ops.sort(key=lambda op: (op.start_us, -op.time_us))
    # What has no number is linked to nothing.
    read.by_external.pop(-1, None)
    read.launches.pop(-1, None)
    kernels = _on_device(read) if read.kernels else _on_host(read)
    if not kernels:
        raise NotUnderstoodError(
            f"{path}: the trace holds neither kernels nor operators: profile with ProfilerActivity.CPU"
        )
    kernels.sort(key=lambda k: k.start_us)
    return RankTrace(str(path), tuple(kernels), tuple(sorted(read.steps, key=lambda s: s.start_us)), bool(read.kernels))


def _keep(read: _Read, event: Mapping[str, object]) -> None:
    category = str(event.get("cat", "")).lower()
    start, lasting = _number(event.get("ts")), _number(event.get("dur"))
    given = event.get("args")
    args = given if isinstance(given, dict) else {}
    # Millions of events have a few hundred names, of kernels half a kilobyte each.
    span = Span(intern(str(event.get("name", ""))), start, lasting)
    thread = (event.get("pid"), event.get("tid"))
    if category in _KERNELS:
        used = (
            "correlation",
            "External id",
            "external id",
            "stream",
            "Collective name",
            "Group size",
            "dtype",
            "In msg nelems",
            "Out msg nelems",
        )
        read.kernels.append((span, {key: args[key] for key in used if key in args}, category != "kernel"))
    elif category in _OPS:
        read.ops.setdefault(thread, []).append(span)
        read.by_external[_id(args, "External id", "external id")] = span.name
    elif category.endswith(("runtime", "driver")):
        read.launches[_id(args, "correlation")] = (thread, start)
    elif span.name.startswith(_STEP) and category != "gpu_user_annotation":
        read.steps.append(span)


def _on_device(read: _Read) -> list[RanKernel]:
    launched = _launchers(read)
    found = []
    for span, args, is_copy in read.kernels:
        correlation = _id(args, "correlation")
        op = launched.get(correlation) or read.by_external.get(_id(args, "External id", "external id"), "")
        kind = kind_of(span.name, op, is_copy)
        message, ranks, num_bytes = "", 0, 0.0
        if kind is KernelKind.COLLECTIVE:
            message = message_of(span.name, str(args.get("Collective name", "")))
            ranks, num_bytes = (
                int(_number(args.get("Group size"))),
                _SIZES.get(str(args.get("dtype", "")).lower(), 0)
                * max(_number(args.get("In msg nelems")), _number(args.get("Out msg nelems"))),
            )
        stream = str(args.get("stream", ""))
        found.append(
            RanKernel(
                span.name,
                span.start_us,
                span.time_us,
                op,
                kind,
                stream,
                message,
                ranks,
                num_bytes,
                correlation in read.launches,
            )
        )
    return found


def _launchers(read: _Read) -> Mapping[int, str]:
    """Return the innermost operator around each launch, by its correlation."""
    starts = {thread: [op.start_us for op in ops] for thread, ops in read.ops.items()}
    parents = {thread: _parents(ops) for thread, ops in read.ops.items()}
    found = {}
    for correlation, (thread, at) in read.launches.items():
        ops = read.ops.get(thread, [])
        k = bisect_right(starts.get(thread, []), at) - 1
        while k >= 0 and ops[k].end_us < at:
            k = parents[thread][k]
        if k >= 0:
            found[correlation] = ops[k].name
    return found


def _parents(ops: Sequence[Span]) -> list[int]:
    """Return the place of the operator around each, -1 where there is none; they stand in the order of their starts."""
    found: list[int] = []
    around: list[int] = []
    for k, op in enumerate(ops):
        while around and ops[around[-1]].end_us <= op.start_us:
            around.pop()
        found.append(around[-1] if around else -1)
        around.append(k)
    return found


def _on_host(read: _Read) -> list[RanKernel]:
    """Operators of a CPU, each with its own time alone."""
    found = []
    # What is used up goes at once: there may be millions of operators.
    read.by_external.clear()
    while read.ops:
        _, ops = read.ops.popitem()
        own = [op.time_us for op in ops]
        for k, parent in enumerate(_parents(ops)):
            if parent >= 0:
                own[parent] -= ops[k].time_us
        found += [
            RanKernel(op.name, op.start_us, max(time_us, 0.0), op.name, kind_of("", op.name, False))
            for op, time_us in zip(ops, own, strict=True)
        ]
    return found


_SIZES = {
    "byte": 1,
    "char": 1,
    "int8": 1,
    "float8": 1,
    "half": 2,
    "bfloat16": 2,
    "float": 4,
    "int": 4,
    "double": 8,
    "long": 8,
}


def _id(args: Mapping[str, object], *names: str) -> int:
    return next((found for name in names if isinstance(found := args.get(name), int)), -1)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return 0.0
    try:
        number = float(value)
    except ValueError:
        return 0.0
    return number if math.isfinite(number) else 0.0
