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
from ..profiles import Profile

KIND = "engines"


def engine_of(profile: Profile) -> str:
    """Return how rows name the engine of a profile: what its file says."""
    return str(profile.file.tree.get("name"))


def plain_engine(profile: Profile, chip: str) -> Engine:
    """Return an engine on a chip as people set it, without numbers that were fitted before."""
    return load_engine(profile.name, chip or None, fitted=False)


def profile_of(name: str) -> Profile:
    """Read an engine that is to be fitted.

    UsageError for one that says nothing of a fit.
    """
    file = read_stack(name, unfitted=(name,), kind=KIND)
    fit = _fit_of(file)
    if fit is None:
        raise UsageError(
            f"engine '{name}' does not say what is free: give it 'fit: {{data_sets: [...], free: [overheads.step]}}'"
        )
    return Profile(name, fit.data_sets, fit.free, file)


def all_profiles() -> Sequence[str]:
    """Name the engines of the catalogue that say what is free."""
    return [name for name in names(KIND) if _fit_of(read_stack(name, unfitted=(name,), kind=KIND)) is not None]


def _fit_of(file: File) -> EngineFitSection | None:
    tree: Tree = file.tree.get("fit")
    return section_of(EngineFitSection, tree, f"fit of engine '{file.name}'") if isinstance(tree, dict) else None
