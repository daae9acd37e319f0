"""One rank's trace: kernels with the operators that launched them, or on a CPU the operators alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from ...ir.errors import NotUnderstoodError, UsageError
from ...ir.records import dataclass
from .columns import STEP, KeptEvents, number_of
from .kinds import KernelKind, kind_of, message_of
from .nsys import is_report, report_events
from .ran import Flags, Floats, Ints, RanKernels, ran
from .stream import trace_events

KINDS = tuple(KernelKind)
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


_MOST = 2.0**63


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
class Message:
    """What a kernel of a collective does: kind, ranks, bytes and the group's name; zero where the trace has none."""

    kind: str
    ranks: int = 0
    num_bytes: float = 0.0
    group: str = ""


@dataclass(frozen=True)
class RankTrace:
    """A trace of one rank, what ran in the order of its launches.

    `steps` are those that the profiler marked; where it marked none, those between updates of the optimizer.

    `names`, `inputs` and `streams` are texts by the numbers of the columns, as `messages` are; `on_device` says whether
    anything ran on a device. `last_us` is when the last event ended.
    """

    path: str
    ran: RanKernels = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    inputs: tuple[str, ...] = field(repr=False)
    streams: tuple[str, ...]
    steps: tuple[Span, ...]
    on_device: bool

    @property
    def is_marked(self) -> bool:
        """Whether the profiler marked the steps."""
        return any(step.name.startswith(STEP) for step in self.steps)

    def name(self, number: int) -> str:
        """Return a kernel's or an operator's name."""
        return self.names[number].lstrip("\n")

    @cached_property
    def kind(self) -> Ints:
        """The class of each kernel, as its place in `KINDS`."""
        pairs, which = np.unique(np.stack((self.ran.name, self.ran.op)), axis=1, return_inverse=True)
        kinds = [self._kind(name, op) for name, op in pairs.T.tolist()]
        return np.array(kinds, dtype=np.int64)[which.reshape(-1)]

    def _kind(self, name: int, op: int) -> int:
        kernel = self.names[name] if self.on_device else ""
        return KINDS.index(kind_of(kernel, self.names[op], kernel.startswith("\n")))

    def kind_name(self, row: int) -> KernelKind:
        """Return the class of one kernel."""
        return KINDS[int(self.kind[row])]

    def is_kind(self, *kinds: KernelKind) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Return which kernels are of these classes."""
        return np.isin(self.kind, [KINDS.index(kind) for kind in kinds])

    @cached_property
    def step_of(self) -> Ints:
        """The marked step in which each kernel was launched, -1 for none."""
        starts = np.array([s.start_us for s in self.steps])
        ends = np.array([s.end_us for s in self.steps])
        if not len(starts):
            return np.full(len(self.ran), -1, dtype=np.int64)
        at = np.searchsorted(starts, self.ran.launched_us, side="right") - 1
        return np.where((at >= 0) & self.ran.known & (self.ran.launched_us < ends[at]), at, -1)

    def counted(self, num_steps: int | None) -> Flags:
        """Return which kernels count: those of the marked steps, or all where none is marked or a number is given.

        Args:
            num_steps: how many steps the trace holds, as its user says.

        Raises:
            UsageError: more steps than kernels.
            NotUnderstoodError: nothing ran in the steps that are marked.
        """
        if num_steps is not None and num_steps > len(self.ran):
            raise UsageError(
                f"--steps {num_steps}: {self.path} holds {len(self.ran):,} kernels or operators, and each step has one "
                f"at least: give --steps of at most {len(self.ran):,}"
            )
        if num_steps is not None or not self.steps:
            return np.ones(len(self.ran), dtype=np.bool_)
        inside = self.step_of >= 0
        if not inside.any():
            raise NotUnderstoodError(f"{self.path}: nothing ran in the steps that it marks; give --steps N")
        return inside

    @cached_property
    def step_times_us(self) -> Floats:
        """How long each step took: from its first kernel to that of the next, since the host runs ahead of a device.

        The last one takes what its mark does, or until its last kernel where that ends later. On a CPU all take what
        their marks do, as they do where one of them launched nothing.
        """
        ran, own = self.ran, np.array([step.time_us for step in self.steps])
        inside = self.step_of >= 0
        which = self.step_of[inside]
        if not self.on_device or not len(own) or len(np.unique(which)) < len(own):
            return own
        starts, last = np.full(len(own), np.inf), ran.start_us[inside] + ran.time_us[inside]
        np.minimum.at(starts, which, ran.start_us[inside])
        end_us = float(last[which == len(own) - 1].max())
        return np.append(np.diff(starts), own[-1] if end_us <= self.steps[-1].end_us else end_us - starts[-1])

    def message(self, row: int) -> Message:
        """Return what a kernel of a collective does."""
        name, given = self.name(int(self.ran.name[row])), self.inputs[int(self.ran.message[row])]
        return _message(name, given)

    def by_op(self) -> Mapping[str, float]:
        """Microseconds of kernels by the operator that launched them, the longest first."""
        sums = np.bincount(self.ran.op, self.ran.time_us, len(self.names)).tolist()
        there = np.flatnonzero(np.bincount(self.ran.op, minlength=len(self.names)))
        return {self.name(k): sums[k] for k in sorted(there.tolist(), key=lambda k: -sums[k])}


def read_trace(path: Path) -> RankTrace:
    """Read a trace of torch.profiler, or a report of Nsight Systems as SQLite.

    NotUnderstoodError for what is none, or holds nothing that ran, or times that no run has.
    """
    kept = KeptEvents()
    for event in report_events(path) if is_report(path) else trace_events(path):
        if event.get("ph") == "X":
            kept.keep(event)
    kept.check_times(str(path))
    found = ran(kept)
    if not len(found):
        raise NotUnderstoodError(
            f"{path}: the trace holds neither kernels nor operators: profile with ProfilerActivity.CPU"
        )
    marked = sorted((Span(*step) for step in kept.steps), key=lambda step: step.start_us)
    steps = tuple(marked) or between_updates([Span(*mark) for mark in kept.updates])
    texts = kept.names.texts, kept.words.texts, kept.places.texts
    return RankTrace(str(path), found, *texts, steps, bool(len(kept.kernels.name)))


def between_updates(marks: Sequence[Span]) -> tuple[Span, ...]:
    """Return the steps between updates of the weights; what lies before the first may be part of a step alone.

    Of several optimizers in turn, that which comes last in a step ends it.
    """
    marks = sorted(marks, key=lambda mark: mark.start_us)
    last = [mark for mark in marks if mark.name == marks[-1].name]
    return tuple(
        Span(f"{after.name} {number}", before.end_us, after.end_us - before.end_us)
        for number, (before, after) in enumerate(pairwise(last), 1)
    )


def _message(name: str, given: str) -> Message:
    if not given:
        return Message(message_of(name, ""))
    told, ranks, dtype, sent, received, group = given.split("|")
    num_ranks, num_bytes = number_of(ranks), _SIZES.get(dtype.lower(), 0) * max(number_of(sent), number_of(received))
    # What no machine can hold is not known, as what is no number.
    known = [number if 0.0 <= number < _MOST else 0.0 for number in (num_ranks, num_bytes)]
    return Message(message_of(name, told), int(known[0]), known[1], group)
