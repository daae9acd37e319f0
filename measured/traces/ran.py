"""Columns of events into columns of what ran: each kernel with the operator that launched it, and its phase."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import IntEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...ir.records import dataclass
from .columns import OPTIMIZER, Events, KeptEvents

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
# Rows that are Python's own numbers at a time, which take four times the room of a column's.
_BLOCK = 1 << 16
# What autograd calls a node of its graph; its operators are those of the backward phase.
_BACKWARD = "autograd::engine::evaluate_function"


class Stretch(IntEnum):
    """Where in a step an operator runs, as marks of the trace say; what is in none is forward."""

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZER = 2


@dataclass(frozen=True, slots=True)
class RanKernels:
    """What ran, in the order of its launches: numbers of names, and times in microseconds.

    `call` tells calls of operators apart, `around` is that around the call; -1 where there is none. `launched_us` is
    when the host asked for it, its own start on a CPU. `op` is the operator that launched it and `inputs` what the
    innermost operator with shapes around it reads; both are 0, an empty text, where the trace does not say. `known`
    says that its launch is in the trace: others were still to run when the profiler started.
    """

    name: Ints
    op: Ints
    call: Ints
    around: Ints
    inputs: Ints
    message: Ints
    stream: Ints
    stretch: Ints
    start_us: Floats
    time_us: Floats
    launched_us: Floats
    known: Flags

    def __len__(self) -> int:
        """How many."""
        return len(self.start_us)

    def of(self, chosen: Flags | Ints) -> RanKernels:
        """Return some of it."""
        return RanKernels(
            self.name[chosen],
            self.op[chosen],
            self.call[chosen],
            self.around[chosen],
            self.inputs[chosen],
            self.message[chosen],
            self.stream[chosen],
            self.stretch[chosen],
            self.start_us[chosen],
            self.time_us[chosen],
            self.launched_us[chosen],
            self.known[chosen],
        )


@dataclass(frozen=True, slots=True)
class _Tree:
    """Operators of all threads, thread by thread in the order of their starts; `parent` is -1 where there is none."""

    name: Ints
    place: Ints
    start_us: Floats
    time_us: Floats
    word: Ints
    external: Ints
    parent: Ints

    @classmethod
    def of(cls, ops: Events) -> _Tree:
        """Sort operators, and find what is around each; the columns are used up."""
        place, start, lasting = _taken(ops.place), np.array(ops.start_us), np.array(ops.time_us)
        order = np.lexsort((-lasting, start, place))
        place, start, lasting = place[order], start[order], lasting[order]
        name, word, external = (np.array(column)[order] for column in (ops.name, ops.word, ops.external))
        return cls(name, place, start, lasting, word, external, _parents(place, start, lasting))

    def inherited(self, own: Ints, none: int) -> Ints:
        """Return what each operator has, or else the nearest around it that has one."""
        found = own.copy()
        # Parents stand before their children, so that one pass does; levels are few, and each is an array's work.
        missing = np.flatnonzero((found == none) & (self.parent >= 0))
        at = self.parent[missing]
        while len(missing):
            found[missing] = own[at]
            up = self.parent[at]
            still = (found[missing] == none) & (up >= 0)
            missing, at = missing[still], up[still]
        return found

    def around(self, place: Ints, at_us: Floats) -> Ints:
        """Return the innermost operator around moments of threads, -1 where there is none."""
        found = np.full(len(at_us), -1, dtype=np.int64)
        for thread in np.unique(place).tolist() if len(self.place) else ():
            low, high = np.searchsorted(self.place, [thread, thread + 1])
            mine = np.flatnonzero(place == thread)
            k = low + np.searchsorted(self.start_us[low:high], at_us[mine], side="right") - 1
            k[k < low] = -1
            while (outside := (k >= 0) & (self.start_us[k] + self.time_us[k] < at_us[mine])).any():
                k[outside] = self.parent[k[outside]]
            found[mine] = k
        return found


def _taken(column: Sequence[int]) -> Ints:
    return np.array(column, dtype=np.int64)


def _parents(place: Ints, start: Floats, lasting: Floats) -> Ints:
    """Return the row of the operator around each."""
    found = array("q")
    around: list[tuple[float, int]] = []
    last, ends = -1, start + lasting
    for low in range(0, len(place), _BLOCK):
        block = slice(low, low + _BLOCK)
        rows = zip(place[block].tolist(), start[block].tolist(), ends[block].tolist(), strict=True)
        for k, (thread, begin, end) in enumerate(rows, low):
            if thread != last:
                last, around = thread, []
            while around and around[-1][0] <= begin:
                around.pop()
            found.append(around[-1][1] if around else -1)
            around.append((end, k))
    return np.array(found)


def ran(kept: KeptEvents) -> RanKernels:
    """Return what ran: kernels of a device where there are any, else operators with their own time alone."""
    names = kept.names.texts
    tree = _Tree.of(kept.ops)
    stretches = np.array([_stretch(name) for name in names], dtype=np.int64)[tree.name]
    stretch = tree.inherited(stretches, -1)
    stretch[stretch < 0] = Stretch.FORWARD
    inputs = tree.inherited(tree.word, 0)
    found = _on_device(kept, tree, inputs, stretch) if len(kept.kernels.name) else _on_host(names, tree, stretch)
    return found.of(np.argsort(found.launched_us, kind="stable"))


def _stretch(name: str) -> int:
    if name.startswith(_BACKWARD):
        return Stretch.BACKWARD
    return Stretch.OPTIMIZER if name.startswith(OPTIMIZER) else -1


def _on_host(names: Sequence[str], tree: _Tree, stretch: Ints) -> RanKernels:
    inner = tree.parent >= 0
    own = tree.time_us - np.bincount(tree.parent[inner], tree.time_us[inner], len(tree.name))
    number = len(tree.name)
    found = RanKernels(
        tree.name,
        tree.name,
        np.arange(number),
        tree.parent,
        tree.word,
        np.zeros(number, dtype=np.int64),
        np.zeros(number, dtype=np.int64),
        stretch,
        tree.start_us,
        np.maximum(own, 0.0),
        tree.start_us,
        np.ones(number, dtype=np.bool_),
    )
    marks = np.array([name.startswith(OPTIMIZER) for name in names])
    return found.of(~marks[tree.name])


def _on_device(kept: KeptEvents, tree: _Tree, inputs: Ints, stretch: Ints) -> RanKernels:
    kernels = kept.kernels
    start = np.array(kernels.start_us)
    launch = _found(np.array(kernels.link), np.array(kept.launches.link))
    known = launch >= 0
    launched = np.where(known, np.array([*kept.launches.start_us, 0.0])[launch], start)
    op = np.full(len(start), -1, dtype=np.int64)
    op[known] = tree.around(_taken(kept.launches.place)[launch[known]], launched[known])
    # A launch outside of all operators, or none: the operator that the kernel itself names.
    op = np.where(op >= 0, op, _found(np.array(kernels.external), tree.external))

    # The last row is of what no operator launched.
    def at(column: Ints) -> Ints:
        return np.append(column, 0)[op]

    return RanKernels(
        np.array(kernels.name),
        at(tree.name),
        op,
        at(tree.parent),
        at(inputs),
        np.array(kernels.word),
        np.array(kernels.place),
        at(stretch),
        start,
        np.array(kernels.time_us),
        launched,
        known,
    )


def _found(wanted: Ints, given: Ints) -> Ints:
    """Return where each number stands last in what is given, -1 where it does not, or is negative: no number."""
    if not len(given):
        return np.full(len(wanted), -1, dtype=np.int64)
    order = np.argsort(given, kind="stable")
    at = order[np.searchsorted(given, wanted, side="right", sorter=order) - 1]
    return np.where((given[at] == wanted) & (wanted >= 0), at, -1)
