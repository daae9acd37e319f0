"""Many systems that differ in a few numbers: their files are read once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import field

from ....ir.kept import RecentResults
from ....ir.records import dataclass
from ...kernels.constants import Layers, MergedConstants, lay_constants
from ..system import System
from .catalogue import Assembled, assemble
from .faults import in_files
from .system_build import build_system

# Files of so many systems.
_FILES = 32


class Systems:
    """Loads systems as `load_system` does, and keeps what files say: the next one may differ in a number alone."""

    __slots__ = ("_read",)

    def __init__(self) -> None:
        """Read nothing yet."""
        self._read = RecentResults[tuple[str, str | None, str | None], _Read](_FILES)

    def load(
        self,
        name: str,
        overrides: Sequence[str] = (),
        stack: str | None = None,
        calibration: str | None = None,
        prices: str | None = None,
    ) -> System:
        """Return what `load_system` returns; the same errors. A file that changes meanwhile is not read again.

        >>> Systems().load("dgx-h100", ["chip.memory.hbm.bandwidth=4.8TB/s"]).chip.hbm_bytes_per_s
        4800000000000.0
        """
        from ...prices.given import with_prices
        from ...prices.parts import with_parts

        read = self._read.of((name, stack, calibration), lambda: _Read(assemble(name, stack, calibration)))
        fitted, numbers = with_parts(read.files, overrides, prices)
        found = with_prices(fitted, prices, numbers)
        where, locate = found.file.name, in_files(found.origins)
        return build_system(found.tree, numbers, where, found.layers, locate, read.constants)


def files_digest(name: str, stack: str | None = None, calibration: str | None = None, prices: str | None = None) -> str:
    """Return what tells the files of a system from any others: all that they say, wherever each part stands.

    >>> files_digest("dgx-h100") == files_digest("dgx-h100"), files_digest("dgx-h100") == files_digest("dgx-b200")
    (True, False)
    """
    from ...prices.given import with_prices

    found = with_prices(assemble(name, stack, calibration), prices, ())
    return hashlib.sha256(repr((found.tree, found.layers)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Read:
    """The files of a system, and the constants of its kernels as they were laid for each library."""

    files: Assembled
    laid: dict[str, MergedConstants] = field(default_factory=dict)

    def constants(self, name: str, layers: Layers, library: str) -> MergedConstants:
        """Lay calibrations over one another, once a library; what is set on the way is laid anew."""
        if len(layers) > len(self.files.layers):
            return lay_constants(name, layers, library)
        if library not in self.laid:
            self.laid[library] = lay_constants(name, layers, library)
        return self.laid[library]
