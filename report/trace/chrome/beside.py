"""A measured step and its prediction as two processes of one trace, for Perfetto."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np

from ....ir.records import dataclass
from ....ir.text.json_text import json_text
from ....measured.match.match import How, Matched
from ....measured.traces.ran import Floats, Ints
from .events import complete, nanoseconds, process, thread

_PREDICTED, _MEASURED = 1, 2
_COMPUTE, _MESSAGES = 1, 2
_CATEGORIES = {"collective": "nccl", "copy": "gpu_memcpy"}


@dataclass(frozen=True)
class BesideTrace:
    """The nodes of a step one behind the other, messages on a track of their own; and one step as it ran.

    Of a trace with marked steps it is that of median length, of another all that there is.
    """

    matched: Matched

    @property
    def num_processes(self) -> int:
        """The prediction and the run."""
        return 2

    def processes(self) -> Iterator[Iterator[str]]:
        """Yield the events of one and the other."""
        yield self._predicted()
        yield self._measured()

    def about(self) -> Mapping[str, object]:
        """Say what the trace is of."""
        return {"measured": self.matched.trace.path, "step": self._step}

    @cached_property
    def _step(self) -> int:
        times_us = self.matched.trace.step_times_us
        if not len(times_us) or self.matched.steps != len(times_us):
            return -1
        return sorted(range(len(times_us)), key=times_us.__getitem__)[len(times_us) // 2]

    def _predicted(self) -> Iterator[str]:
        yield from process(_PREDICTED, "predicted: nodes in their order", 1)
        yield thread(_PREDICTED, _COMPUTE, "nodes")[0]
        where = self.matched.positions
        compute = message = 0.0
        for node, layer in zip(where.node.tolist(), where.layer.tolist(), strict=True):
            n = where.planned.nodes[node]
            track = _COMPUTE if n.sent is None else _MESSAGES
            start = compute if n.sent is None else max(compute, message)
            args = _args({"node": n.node, "phase": n.phase, "layer": layer})
            end = start + n.time_s
            category = "kernel" if n.sent is None else "nccl"
            yield complete(_PREDICTED, track, n.label, category, nanoseconds(start), nanoseconds(end), args)
            compute, message = (end, message) if n.sent is None else (compute, end)
        if message:
            yield thread(_PREDICTED, _MESSAGES, "messages")[0]

    def _measured(self) -> Iterator[str]:
        m, ran = self.matched, self.matched.trace.ran
        calls = np.flatnonzero(m.counted & ((m.calls.step == self._step) | (self._step < 0)))
        yield from process(_MEASURED, f"measured: {m.trace.path}", 2)
        rows = m.calls.longest[calls]
        order = np.argsort(ran.start_us[rows], kind="stable")
        calls, rows = calls[order], rows[order]
        for number in np.unique(ran.stream[rows]).tolist():
            yield thread(_MEASURED, number + 1, f"stream {m.trace.streams[number]}".strip())[0]
        origin = float(ran.start_us[rows].min(initial=np.inf))
        ends = self._ends(rows)
        for call, row, end in zip(calls.tolist(), rows.tolist(), ends.tolist(), strict=True):
            start_s, end_s = (ran.start_us[row] - origin) * 1e-6, (end - origin) * 1e-6
            yield self._slice(call, row, nanoseconds(float(start_s)), nanoseconds(float(end_s)))

    def _ends(self, rows: Ints) -> Floats:
        """When each slice ends: an operator of a CPU at the latest where the next begins, which it may have called."""
        ran = self.matched.trace.ran
        ends: Floats = ran.start_us[rows] + ran.time_us[rows]
        if self.matched.trace.on_device:
            return ends
        following: Floats = np.append(ran.start_us[rows][1:], np.inf)
        until: Floats = np.minimum(ends, following)
        return until

    def _slice(self, call: int, row: int, start_ns: int, end_ns: int) -> str:
        m = self.matched
        trace, how = m.trace, How(int(m.how[call]))
        kernel = trace.name(int(trace.ran.name[row]))
        about: dict[str, object] = {
            "kernel": kernel,
            "op": trace.name(int(trace.ran.op[row])),
            "matched_by": how.name.lower(),
        }
        name = about["op"] or kernel
        if m.at[call] >= 0 and how is not How.OPTIMIZER:
            position = int(m.at[call])
            node = m.positions.planned.nodes[int(m.positions.node[position])]
            about |= {
                "node" if how is not How.BETWEEN else "behind": node.node,
                "layer": int(m.positions.layer[position]),
            }
            if how is not How.BETWEEN:
                name, about["predicted_us"] = node.label, round(node.time_s * 1e6, 3)
        category = _CATEGORIES.get(str(trace.kind_name(row)), "kernel" if trace.on_device else "cpu_op")
        return complete(_MEASURED, int(trace.ran.stream[row]) + 1, str(name), category, start_ns, end_ns, _args(about))


def _args(values: Mapping[str, object]) -> str:
    return json_text(values, separators=(",", ":"))[1:-1]
