"""The data of the technology engine, read from the files beside it, with a user's file laid over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ...ir.errors import SystemFileError, UnknownNameError
from ...ir.records import dataclass
from ..machine.files.catalogue import File, read_at
from ..machine.files.faults import FileOrigin, in_files
from ..machine.files.section import section_of
from ..machine.files.system_overrides import override
from .d2d import D2dKind
from .files.area_schema import DieSection, MultiprocessorSection
from .files.schema import LinkSection, MemorySection, NodeGains, TechnologySection, UnitSection

if TYPE_CHECKING:
    from ..machine.files.system_tree import Tree

T = TypeVar("T")
# Files that are shipped, and what a file may hold; the last one holds all that the area model has.
FILES = ("nodes", "units", "memories", "links", "d2d", "area")
PARTS = (*FILES[:-1], "densities", "circuits", "phys", "multiprocessors", "dies")


@dataclass(frozen=True, slots=True)
class NodeScale:
    """What a node makes of one unit of another: areas and power at the same clock."""

    logic: float
    cache: float
    analog: float
    power: float


@dataclass(frozen=True, slots=True)
class Technology:
    """All that the engine builds from."""

    section: TechnologySection

    @property
    def node_names(self) -> tuple[str, ...]:
        """Name the nodes, oldest first."""
        return tuple(self.section.nodes)

    def node(self, name: str) -> NodeGains:
        """Return a node; UnknownNameError names the nearest."""
        return _named("node", self.section.nodes, name)

    def unit(self, name: str) -> UnitSection:
        """Return a unit of compute; UnknownNameError names the nearest."""
        return _named("unit of compute", self.section.units, name)

    def memory(self, name: str) -> MemorySection:
        """Return a memory; UnknownNameError names the nearest."""
        return _named("memory", self.section.memories, name)

    def link(self, name: str) -> LinkSection:
        """Return a link; UnknownNameError names the nearest."""
        return _named("link", self.section.links, name)

    def d2d(self, name: str) -> D2dKind:
        """Return an interface between dies; UnknownNameError names the nearest.

        >>> load_technology().d2d("ucie-advanced").module_bytes_per_s
        256000000000.0
        """
        return _named("D2D interface", self.section.d2d, name).kind(name)

    def multiprocessor(self, name: str) -> MultiprocessorSection:
        """Return a multiprocessor of the area model; UnknownNameError names the nearest."""
        return _named("multiprocessor", self.section.multiprocessors, name)

    def die(self, name: str) -> DieSection:
        """Return a die that exists; UnknownNameError names the nearest."""
        return _named("die", self.section.dies, name)

    def scale(self, before: str, after: str) -> NodeScale:
        """Return what is left of area and power when a circuit of one node is made on another.

        >>> half = load_technology().scale("N7", "N5")
        >>> round(half.logic, 4), round(half.cache, 4), half.analog, round(half.power, 4)
        (0.5556, 0.7692, 1.0, 0.7692)
        """
        for name in (before, after):
            self.node(name)
        old, new = self.node_names.index(before), self.node_names.index(after)
        steps = [self.section.nodes[n] for n in self.node_names[min(old, new) + 1 : max(old, new) + 1]]
        logic = cache = analog = power = 1.0
        for step in steps:
            logic, cache = logic / step.logic.si, cache / step.cache.si
            analog, power = analog / step.analog.si, power / step.power.si
        return (
            NodeScale(logic, cache, analog, power)
            if old <= new
            else NodeScale(1 / logic, 1 / cache, 1 / analog, 1 / power)
        )


def load_technology(path: str | Path | None = None, overrides: Sequence[str] = ()) -> Technology:
    """Read the data that is shipped, with a file of the user over it.

    A file holds any of the parts. Its nodes stand in place of all nodes, since they are
    an order; what else it holds stands beside what is shipped, or in its place where it has the same name.

    Args:
        path: a YAML file, None for none.
        overrides: `units.a100.area_shares.core=0.6`, as `--set` of a system.

    Raises:
        SystemFileError: a file that cannot be read or breaks the schema; all faults with their lines.
        UnknownNameError: an override of a key that there is not.
    """
    if path is None and not overrides:
        return _shipped_technology()
    return _read(path, overrides)


@cache
def _shipped_technology() -> Technology:
    return _read(None, ())


def _read(path: str | Path | None, overrides: Sequence[str]) -> Technology:
    files = [_shipped(name) for name in FILES] + ([] if path is None else [_own(path)])
    tree: dict[str, Tree] = {}
    origins: list[FileOrigin] = []
    for file in files:
        for part, found in file.tree.items():
            before = {} if part == "nodes" else tree.get(part, {})
            tree[part] = {**before, **found} if isinstance(before, dict) and isinstance(found, dict) else found
            inside = found if isinstance(found, dict) else {}
            origins += [file.origin((part,), (part,)), *(file.origin((part, n), (part, n)) for n in inside)]
    for text in overrides:
        tree = override(tree, text, TechnologySection, "the technology")
    return Technology(section_of(TechnologySection, tree, "technology", in_files(origins[::-1])))


def _shipped(name: str) -> File:
    file = Path(__file__).parent / "data" / f"{name}.yaml"
    return read_at(name, f"technology/data/{name}.yaml", file, f"technology file '{name}'")


def _own(path: str | Path) -> File:
    file = read_at(Path(path).name, str(path), Path(path), f"technology file '{path}'")
    if not set(file.tree) & set(PARTS):
        raise SystemFileError(f"technology file '{path}' has none of: {', '.join(PARTS)}")
    return file


def _named(kind: str, known: Mapping[str, T], name: str) -> T:
    if name not in known:
        size = name.lower().removesuffix("nm").strip()
        if kind == "node" and f"N{size}" in known:
            raise UnknownNameError(f"unknown node '{name}'; did you mean 'N{size}'? allowed: {', '.join(known)}")
        raise UnknownNameError(f"{UnknownNameError.of(kind, name, known)}; or one of your own in a --technology FILE")
    return known[name]
