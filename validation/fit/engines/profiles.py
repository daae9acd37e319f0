"""Engines that say what is free, and on which chips their requests were measured."""

from __future__ import annotations

from collections.abc import Sequence

from ....backends.machine.files.catalogue import File, names, read_stack
from ....backends.machine.files.section import section_of
from ....backends.machine.files.system_tree import Tree
from ....backends.machine.software.engine import Engine
from ....backends.machine.software.engine_file import load_engine
from ....backends.machine.software.engine_schema import EngineFitSection
from ....ir.errors import UsageError
from ....ir.records import dataclass
from ...inference.sources import SOURCES

KIND = "engines"


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """An engine that says what a fit may move.

    Attributes:
        name: as it was asked for: a name of the catalogue, or a path.
        data_sets: whose rows move its numbers.
        free: paths of the numbers, moved on each chip by themselves.
        file: where it was read.
    """

    name: str
    data_sets: tuple[str, ...]
    free: tuple[str, ...]
    file: File

    @property
    def engine(self) -> str:
        """How rows name it: what its file says."""
        return str(self.file.tree.get("name"))

    def plain(self, chip: str) -> Engine:
        """Return the engine on a chip as people set it, without numbers that were fitted before."""
        return load_engine(self.name, chip or None, fitted=False)


def profile_of(name: str) -> EngineProfile:
    """Read an engine that is to be fitted.

    UsageError for one that says nothing of a fit, and for a data set that only judges.
    """
    file = read_stack(name, unfitted=(name,), kind=KIND)
    fit = _fit_of(file)
    if fit is None:
        raise UsageError(
            f"engine '{name}' does not say what is free: give it 'fit: {{data_sets: [...], free: [overheads.step]}}'"
        )
    only = {data_set for data_set, source in SOURCES.items() if source.judges_only}
    refused = sorted(only.intersection(fit.data_sets))
    if refused:
        raise UsageError(f"engine '{name}': {', '.join(refused)} only judges: no engine is fitted to it")
    return EngineProfile(name, fit.data_sets, fit.free, file)


def all_profiles() -> Sequence[str]:
    """Name the engines of the catalogue that say what is free."""
    return [name for name in names(KIND) if _fit_of(read_stack(name, unfitted=(name,), kind=KIND)) is not None]


def _fit_of(file: File) -> EngineFitSection | None:
    tree: Tree = file.tree.get("fit")
    return section_of(EngineFitSection, tree, f"fit of engine '{file.name}'") if isinstance(tree, dict) else None
