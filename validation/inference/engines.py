"""Engines, and systems as engines run them, each read once for many rows."""

from __future__ import annotations

from dataclasses import field
from functools import cache

from ...backends.machine.files.catalogue import read_file
from ...backends.machine.load import load_system
from ...backends.machine.software.engine import Engine
from ...backends.machine.software.engine_file import load_engine
from ...backends.machine.system import System
from ...ir.records import dataclass


@dataclass(slots=True)
class EngineRoom:
    """Engines of the catalogue on the chips of systems.

    Kernels are priced under a `calibration` where one is named, else under that of each chip.
    """

    calibration: str | None = None
    _engines: dict[tuple[str, str], Engine] = field(default_factory=dict)
    _systems: dict[tuple[str, str], System] = field(default_factory=dict)

    def engine(self, name: str, system: str) -> Engine:
        """Return an engine as it is on the chip of a system."""
        chip = chip_of(system)
        if (name, chip) not in self._engines:
            self._engines[name, chip] = load_engine(name, chip or None)
        return self._engines[name, chip]

    def system(self, name: str, engine: str) -> System:
        """Return a system under the stack of an engine, as that engine runs it."""
        if (name, engine) not in self._systems:
            one = self.engine(engine, name)
            self._systems[name, engine] = one.under(load_system(name, (), one.stack, self.calibration))
        return self._systems[name, engine]

    def put(self, system: str, engine: Engine) -> None:
        """Take an engine in the place of that of the catalogue, on one system."""
        plain = load_system(system, (), engine.stack, self.calibration)
        self._engines[engine.name, chip_of(system)] = engine
        self._systems[system, engine.name] = engine.under(plain)


@cache
def chip_of(system: str) -> str:
    """Name the chip of a system as files of engines name it; empty where the system describes its own."""
    chip = read_file("systems", system).tree.get("chip")
    return chip if isinstance(chip, str) else ""
