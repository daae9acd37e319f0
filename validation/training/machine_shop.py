"""Systems with their overrides and stacks, each read once, for many rows."""

from __future__ import annotations

from dataclasses import field, replace

from ...backends.machine.load import load_system
from ...backends.machine.system import System
from ...ir.records import dataclass


@dataclass(slots=True)
class MachineShop:
    """Systems of the catalogue under one calibration, or under their own where none is named."""

    calibration: str | None = None
    _systems: dict[tuple[str, tuple[str, ...], str], System] = field(default_factory=dict)

    def system(self, name: str, overrides: tuple[str, ...], stack: str) -> System:
        """Return a system as it was for a row."""
        key = (name, overrides, stack)
        if key not in self._systems:
            self._systems[key] = load_system(name, overrides, stack, self.calibration)
        return self._systems[key]

    def late(self, system: System, step_latency_s: float) -> System:
        """Return the system with every step of a collective over more than two nodes late by so much."""
        if step_latency_s == 0.0:
            return system
        network = replace(system.stack.network, step_latency_s=step_latency_s)
        return replace(system, stack=replace(system.stack, network=network))
