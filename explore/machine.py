"""A system as a search asks for it: its name, and what is said of it beside its file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from ..backends.machine.files.many_systems import Systems, files_digest
from ..backends.machine.software.engine_file import load_engine
from ..backends.machine.system import System
from ..ir.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineChoice:
    """A system by name, and what is said of it beside its file.

    Attributes:
        name: of the catalogue, or a path.
        overrides: `chip.memory.hbm.bandwidth=4.8TB/s`, in order.
        stack: the software that runs on it; None for its own, or that of the engine of a server.
        calibration: constants of its kernels; None for its own.
        prices: profile of the price book; None for its own.
        served_by: the engine that runs single steps of inference; None for the stack alone.
        assumed: flags that nobody typed and that choose its software.
    """

    name: str
    overrides: tuple[str, ...] = ()
    stack: str | None = None
    calibration: str | None = None
    prices: str | None = None
    served_by: str | None = None
    assumed: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def load(self, systems: Systems | None = None) -> System:
        """Load the system; `systems` keeps files of those that are alike."""
        files = systems or Systems()
        system = files.load(self.name, self.overrides, self.stack, self.calibration, self.prices)
        if self.served_by is not None:
            system = load_engine(self.served_by, system.chip.name).under(system)
        return replace(system, assumed=self.assumed) if self.assumed else system

    def __str__(self) -> str:
        """Print as people call it: the name, and what is set."""
        return " ".join((self.name, *self.overrides))


def contents(machines: Iterable[MachineChoice]) -> tuple[str, ...]:
    """Return the digests of all that the files of machines say: it is part of what is searched."""
    named = dict.fromkeys((m.name, m.stack, m.calibration, m.prices) for m in machines)
    return tuple(files_digest(*names) for names in named)
