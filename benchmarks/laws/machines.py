"""The same machine with one resource better: twice the bandwidth, half the latency, and so on, one after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from slipstick.backends.machine.system import System
from slipstick.backends.machine.system_table import machine_at, machine_numbers, tabled

# The last word of the path of a number: a machine is better with more of it, with less of it, or with none lost.
_MORE = ("bandwidth", "capacity", "clock", "special")
_LESS = ("latency", "reduction_latency", "hop_latency")
_TO_ONE = ("efficiency", "oversubscription")
# A clock makes the peaks of its units; with the same peaks it is that of fewer or narrower ones.
CLOCK, NARROWER = "chip.clock", "chip.clock, of the same peaks"


@dataclass(frozen=True, slots=True)
class Better:
    """A machine with one resource better, and the name of that resource without the names of network levels."""

    resource: str
    system: System


def better_machines(system: System, factor: float) -> Iterator[Better]:
    """Yield the machine with each of its resources better by a factor; the peaks of all types go together."""
    numbers = {path: float(np.ravel(number)[0]) for path, number in machine_numbers(system).items()}
    peaks = {path: n * factor for path, n in numbers.items() if path.startswith(("chip.matmul.", "chip.vector."))}
    yield Better("chip.peaks", _with(system, peaks))
    if CLOCK in numbers:
        yield Better(CLOCK, _with(system, {**peaks, CLOCK: numbers[CLOCK] * factor}))
    for path, number in numbers.items():
        word = path.rpartition(".")[2]
        better = number * factor if word in _MORE else number / factor if word in _LESS else 1.0
        if path not in peaks and word in (*_MORE, *_LESS, *_TO_ONE) and better != number:
            yield Better(_resource(path, word), _with(system, {path: better}))


def _resource(path: str, word: str) -> str:
    return f"network.{word}" if path.startswith("network.") else NARROWER if path == CLOCK else path


def _with(system: System, numbers: dict[str, float]) -> System:
    return machine_at(tabled(system, {path: [number] for path, number in numbers.items()}), 0)
