"""Systems and constants by name, each read once, for many rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ...backends.kernels.constants import KernelConstants, read_constants
from ...backends.machine.files.catalogue import Layers, assemble, carried_over, names, read_file
from ...backends.machine.load import load_system
from ...backends.machine.system import System
from ...ir.records import dataclass
from .rows import NotJudged
from .split import FittedKernel, fits_of


def base_layers() -> Layers:
    """Return the constants that carry over to any chip, over which those of a chip lie."""
    return [(name, read_file("calibration", name).tree) for name in carried_over()]


@dataclass(slots=True)
class MachineRoom:
    """The systems of the catalogue under one calibration, or under their own where none is named.

    With `plain`, under nothing but what people set: where a fit over many chips begins.
    """

    calibration: str | None = None
    plain: bool = False
    _systems: dict[str, System] = field(default_factory=dict)
    _layers: dict[str, Layers] = field(default_factory=dict)
    _constants: dict[tuple[str, str], KernelConstants] = field(default_factory=dict)

    def check(self) -> None:
        """Read the calibration that was named; UsageError where there is none."""
        if self.calibration is not None:
            given = read_file("calibration", self.calibration)
            read_constants(given.name, [*base_layers(), (given.name, given.tree)], "")

    def system(self, name: str) -> System:
        """Return a system; NotJudged where the catalogue has none of the name."""
        if name not in self._systems:
            if not is_file(name) and name not in names("systems"):
                raise NotJudged(f"the catalogue has no system '{name}'")
            self._systems[name] = load_system(name, calibration=self.calibration)
        return self._systems[name]

    def chip(self, system: str) -> str:
        """Name the chip of a system, which is what has a calibration of its own."""
        chip = read_file("systems", system).tree.get("chip")
        return chip if isinstance(chip, str) else system

    def constants(self, system: str, library: str, cls: str, kind: str) -> object:
        """Return the constants of a kind of kernel; NotJudged where there are none."""
        key = (system, library)
        if key not in self._constants:
            self._constants[key] = read_constants(system, self._of(system), library)[0]
        kinds: Mapping[str, object] = getattr(self._constants[key], cls)
        if kind not in kinds:
            raise NotJudged(f"no calibration of '{system}' has constants of {cls} '{kind}'")
        return kinds[kind]

    def fits(self, system: str, cls: str, kind: str) -> tuple[FittedKernel, ...]:
        """Return what the constants of a kind of kernel were fitted to."""
        return fits_of(self._of(system), cls, kind)

    def _of(self, system: str) -> Layers:
        if system not in self._layers:
            layers = assemble(system, None, self.calibration).layers
            self._layers[system] = layers[:1] if self.plain else layers
        return self._layers[system]


def is_file(system: str) -> bool:
    """Whether a system is named by its file and not by its name in the catalogue."""
    return system.endswith((".yaml", ".yml"))
