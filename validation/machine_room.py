"""Systems and constants by name, each read once, for many rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..backends.constants import KernelConstants, read_constants
from ..backends.system import (
    System,
    calibration_layers,
    chip_of,
    default_calibration,
    load_system,
    read_calibration,
    system_names,
)
from .rows import NotJudged
from .split import Fitted, fits_of

if TYPE_CHECKING:
    from ..backends.system_tree import Tree

Layers = list[tuple[str, "dict[str, Tree]"]]


@dataclass(slots=True)
class MachineRoom:
    """The systems of the catalogue under one calibration, or under their own where none is named."""

    calibration: str | None = None
    _systems: dict[str, System] = field(default_factory=dict)
    _layers: dict[str, Layers] = field(default_factory=dict)
    _constants: dict[tuple[str, str], KernelConstants] = field(default_factory=dict)

    def check(self) -> None:
        """Read the calibration that was named; UsageError where there is none."""
        if self.calibration is not None:
            read_constants(self.calibration, [default_calibration(), read_calibration(self.calibration)], "")

    def system(self, name: str) -> System:
        """Return a system; NotJudged where the catalogue has none of the name."""
        if name not in self._systems:
            if name not in system_names():
                raise NotJudged(f"the catalogue has no system '{name}'")
            self._systems[name] = load_system(name, calibration=self.calibration)
        return self._systems[name]

    def chip(self, system: str) -> str:
        """Name the chip of a system, which is what has a calibration of its own."""
        return chip_of(system) or system

    def constants(self, system: str, library: str, cls: str, kind: str) -> object:
        """Return the constants of a kind of kernel; NotJudged where there are none."""
        key = (system, library)
        if key not in self._constants:
            self._constants[key] = read_constants(system, self._of(system), library)[0]
        kinds: Mapping[str, object] = getattr(self._constants[key], cls)
        if kind not in kinds:
            raise NotJudged(f"no calibration of '{system}' has constants of {cls} '{kind}'")
        return kinds[kind]

    def fits(self, system: str, cls: str, kind: str) -> tuple[Fitted, ...]:
        """Return what the constants of a kind of kernel were fitted to."""
        return fits_of(self._of(system), cls, kind)

    def _of(self, system: str) -> Layers:
        if system not in self._layers:
            self._layers[system] = calibration_layers(system, self.calibration)
        return self._layers[system]
