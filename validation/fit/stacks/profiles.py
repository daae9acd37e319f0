"""Profiles that are fitted together: which number of which profile the steps of each stack take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from ....backends.machine.files.catalogue import File, lineage, on_chip, read_file, read_stack
from ....backends.machine.files.section import section_of
from ....backends.machine.files.system_build import build_stack
from ....backends.machine.load import stack_names
from ....backends.machine.software.stack import StackConstants
from ....backends.machine.software.stack_limits import MOVABLE, keys_of, split_chip
from ....backends.machine.software.stack_schema import STACK
from ....ir.errors import UsageError
from ....ir.records import dataclass
from ...training.cases import TrainingCase
from ..profiles import Profile

if TYPE_CHECKING:
    from ....backends.machine.files.system_tree import Tree


@dataclass(frozen=True, slots=True)
class ProfileSlot:
    """One number that a fit moves: of which profile, and where it stands in it."""

    profile: str
    path: str


@dataclass(frozen=True, slots=True)
class Taken:
    """What steps with a stack on a chip take of a fit.

    Attributes:
        plain: the stack as people set it, without numbers that were fitted before.
        slots: path -> the number that stands there; what is said of the chip goes before what is said of any.
        profiles: names of the profiles that it is, or is like.
        data_sets: those of these profiles.
    """

    plain: StackConstants
    slots: Mapping[str, ProfileSlot]
    profiles: tuple[str, ...]
    data_sets: frozenset[str]


@dataclass(slots=True)
class Profiles:
    """Profiles that share a fit.

    A number that is free in a profile moves in every stack that is like it, unless that one sets or frees it itself.
    """

    members: tuple[Profile, ...]
    _taken: dict[tuple[str, str], Taken] = field(default_factory=dict)
    _chips: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """How they were asked for."""
        return tuple(one.name for one in self.members)

    @property
    def data_sets(self) -> tuple[str, ...]:
        """Every data set of any of them."""
        return tuple(dict.fromkeys(name for one in self.members for name in one.data_sets))

    def of(self, case: TrainingCase) -> Taken:
        """Return what a step takes."""
        if case.system not in self._chips:
            # Name the chip of a system as stacks name it; empty where the system describes its own.
            chip = read_file("systems", case.system).tree.get("chip")
            self._chips[case.system] = chip if isinstance(chip, str) else ""
        return self.of_stack(case.stack, self._chips[case.system])

    def of_stack(self, stack: str, chip: str = "") -> Taken:
        """Return what steps with a stack take, by its name or path, on a chip; without one what all chips take."""
        key = (stack, chip)
        if key not in self._taken:
            self._taken[key] = self._find(stack, chip)
        return self._taken[key]

    def start(self, slot: ProfileSlot) -> StackConstants:
        """Return the stack that has the number from which a fit moves it."""
        return self.of_stack(slot.profile, split_chip(slot.path)[0]).plain

    def _find(self, stack: str, chip: str) -> Taken:
        chain = lineage(stack, unfitted=self.names)
        found = {path: self._slot(chain, [f"chips.{chip}.{path}", path] if chip else [path]) for path in MOVABLE}
        slots = {path: slot for path, slot in found.items() if slot is not None}
        mine = [one for one in map(self._member, chain) if one is not None]
        plain = build_stack(on_chip(read_stack(stack, unfitted=self.names).tree, chip), stack)
        return Taken(plain, slots, tuple(p.name for p in mine), frozenset(name for p in mine for name in p.data_sets))

    def _slot(self, chain: Sequence[File], paths: Sequence[str]) -> ProfileSlot | None:
        """Return the nearest of the paths that is free, None where one that is set comes before."""
        for path in paths:
            for file in chain:
                profile = self._member(file)
                if profile is not None and path in profile.free:
                    return ProfileSlot(profile.name, path)
                if _has(file.tree, path):
                    return None
        return None

    def _member(self, file: File) -> Profile | None:
        return next((one for one in self.members if _place(one.file) == _place(file)), None)


def profiles_of(names: Sequence[str]) -> Profiles:
    """Read profiles that are fitted together.

    UsageError for one that says nothing of a fit.
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
            alike = [
                group
                for group in found
                if group & {file.name for file in chain}
                or any(file.name == name for one in group for file in lineage(one))
            ]
            found = [group for group in found if group not in alike]
            found.append({name}.union(*alike))
    return [tuple(sorted(group)) for group in sorted(found, key=min)]


def _profile(name: str) -> Profile:
    file = read_stack(name, unfitted=(name,))
    fit = section_of(STACK, on_chip(file.tree, None), f"stack '{name}'").fit
    if fit is None:
        raise UsageError(
            f"stack '{name}' does not say what is free: give it 'fit: {{data_sets: [...], free: [host.layer, ...]}}'"
        )
    return Profile(name, fit.data_sets, fit.free, file)


def _place(file: File) -> str:
    return str(file.file.resolve()) if isinstance(file.file, Path) else file.where


def _has(tree: dict[str, Tree], path: str) -> bool:
    here: Tree = tree
    for key in keys_of(path):
        if not isinstance(here, dict) or key not in here:
            return False
        here = here[key]
    return here is not None
