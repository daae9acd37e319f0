"""Times of steps as a device or the host sees them, with no wait for the device."""

from __future__ import annotations

import time
from dataclasses import field
from statistics import median

import torch

from ..ir.records import dataclass


@dataclass(slots=True)
class StepClock:
    """Times between the ends of steps; on CUDA by events on the stream, so that the host may run ahead.

    `waits_s` are the times of the host from the end of a step to the first forward pass of the next: data, logging.
    """

    on_cuda: bool
    times_s: list[float] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)
    _events: list[torch.cuda.Event] = field(default_factory=list)
    _last_s: float | None = None
    _waited: bool = False

    def stepped(self) -> None:
        """Note that a step has ended."""
        now = time.perf_counter()
        if self.on_cuda:
            self._events.append(_event())
        elif self._last_s is not None:
            self.times_s.append(now - self._last_s)
        self._last_s, self._waited = now, False

    def starts(self) -> None:
        """Note that a forward pass starts; the first behind a step ends what the host waited for."""
        if not self._waited and self._last_s is not None:
            self.waits_s.append(time.perf_counter() - self._last_s)
        self._waited = True

    def restart(self) -> None:
        """Forget when the last step ended: what came since, such as recording the model, is not of a step."""
        self._events.clear()
        self._last_s = None
        if self.on_cuda:
            self._events.append(_event())
        else:
            self._last_s = time.perf_counter()

    def taken(self) -> tuple[float, float, int]:
        """Return the median step, the median wait and the number of steps since the last call; zeros for none."""
        while len(self._events) > 1 and self._events[1].query():  # type: ignore[no-untyped-call]
            first = self._events.pop(0)
            self.times_s.append(first.elapsed_time(self._events[0]) * 1e-3)
        found = (median(self.times_s or [0.0]), median(self.waits_s or [0.0]), len(self.times_s))
        self.times_s.clear()
        self.waits_s.clear()
        return found


def _event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
