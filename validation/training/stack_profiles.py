"""Profiles that are fitted together: which number of which profile the steps of each stack take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...backends.catalogue import File, lineage, read_stack
from ...backends.stack import StackConstants
from ...backends.stack_limits import MOVABLE
from ...backends.stack_schema import StackSection
from ...backends.system import stack_names
from ...backends.system_build import build_stack, section_of
from ...ir.errors import UsageError
from .fitted import JUDGES_ONLY

if TYPE_CHECKING:
    from ...backends.system_tree import Tree


@dataclass(frozen=True, slots=True)
class Profile:
    """A stack that says what is free.

    Attributes:
        name: as it was asked for: a name of the catalogue, or a path.
        data_sets: whose rows move its numbers.
        free: paths of the numbers.
        file: where it was read.
    """

    name: str
    data_sets: tuple[str, ...]
    free: tuple[str, ...]
    file: File


@dataclass(frozen=True, slots=True)
class Slot:
    """One number that a fit moves: of which profile, and where it stands in it."""

    profile: str
    path: str


@dataclass(frozen=True, slots=True)
class Taken:
    """What steps with a stack take of a fit.

    Attributes:
        plain: the stack as people set it, without numbers that were fitted before.
        slots: path -> the number that stands there.
        profiles: names of the profiles that it is, or is like.
        data_sets: those of these profiles.
    """

    plain: StackConstants
    slots: Mapping[str, Slot]
    profiles: tuple[str, ...]
    data_sets: frozenset[str]


@dataclass(slots=True)
class Profiles:
    """Profiles that share a fit.

    A number that is free in a profile moves in every stack that is like it, unless that one sets or frees it itself.
    """

    members: tuple[Profile, ...]
    _taken: dict[str, Taken] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """How they were asked for."""
        return tuple(one.name for one in self.members)

    @property
    def data_sets(self) -> tuple[str, ...]:
        """Every data set of any of them."""
        return tuple(dict.fromkeys(name for one in self.members for name in one.data_sets))

    def of(self, stack: str) -> Taken:
        """Return what steps with a stack take, by its name or path."""
        if stack not in self._taken:
            self._taken[stack] = self._find(stack)
        return self._taken[stack]

    def _find(self, stack: str) -> Taken:
        known = {_place(one.file): one for one in self.members}
        chain = lineage(stack, unfitted=self.names)
        slots: dict[str, Slot] = {}
        fixed: set[str] = set()
        for file in chain:
            profile = known.get(_place(file))
            free = profile.free if profile is not None else ()
            for path in MOVABLE.keys() - slots.keys() - fixed:
                if profile is not None and path in free:
                    slots[path] = Slot(profile.name, path)
                elif _has(file.tree, path):
                    fixed.add(path)
        mine = [known[_place(file)] for file in chain if _place(file) in known]
        plain = build_stack(read_stack(stack, unfitted=self.names).tree, stack)
        return Taken(plain, slots, tuple(p.name for p in mine), frozenset(name for p in mine for name in p.data_sets))


def profiles_of(names: Sequence[str]) -> Profiles:
    """Read profiles that are fitted together.

    UsageError for one that says nothing of a fit, and for a data set that only judges.
    """
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"stack given twice: {', '.join(twice)}")
    return Profiles(tuple(_profile(name) for name in names))


def all_profiles() -> list[tuple[str, ...]]:
    """Name the profiles of the catalogue that say what is free; those that are like one another stand together."""
    found: list[set[str]] = []
    for name in stack_names():
        chain = lineage(name, unfitted=(name,))
        if "fit" in chain[0].tree:
            alike = [group for group in found if group & {file.name for file in chain} or _below(group, name)]
            found = [group for group in found if group not in alike]
            found.append({name}.union(*alike))
    return [tuple(sorted(group)) for group in sorted(found, key=min)]


def _below(group: set[str], name: str) -> bool:
    return any(file.name == name for one in group for file in lineage(one))


def _profile(name: str) -> Profile:
    file = read_stack(name, unfitted=(name,))
    fit = section_of(StackSection, file.tree, f"stack '{name}'").fit
    if fit is None:
        raise UsageError(
            f"stack '{name}' does not say what is free: give it 'fit: {{data_sets: [...], free: [host.layer, ...]}}'"
        )
    refused = sorted(JUDGES_ONLY.intersection(fit.data_sets))
    if refused:
        raise UsageError(f"stack '{name}': {', '.join(refused)} only judges: no stack is fitted to it")
    return Profile(name, fit.data_sets, fit.free, file)


def _place(file: File) -> str:
    return str(file.file.resolve()) if isinstance(file.file, Path) else file.where


def _has(tree: dict[str, Tree], path: str) -> bool:
    here: Tree = tree
    for key in path.split("."):
        if not isinstance(here, dict) or key not in here:
            return False
        here = here[key]
    return here is not None
