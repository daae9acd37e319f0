"""The data of the technology engine, read from the files beside it, with a user's file laid over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import TypeVar

from ...ir.errors import SystemFileError, UnknownNameError
from ...ir.records import dataclass
from ..machine.files.catalogue import File, read_at
from ..machine.files.faults import FileOrigin, in_files
from ..machine.files.section import section_of
from ..machine.files.system_overrides import override
from ..machine.files.system_tree import Tree
from .d2d import D2dKind
from .files.area_schema import DieSection, MultiprocessorSection
from .files.memories import designed, memory_file
from .files.schema import LinkSection, MemorySection, NodeGains, TechnologySection, UnitSection

T = TypeVar("T")
# How logic shrinks from node to node, where nobody says otherwise; a file of the folder `scalings` each.
USUAL_SCALING = "papers"
# What a file says of its own nodes.
_OWN_SCALING = "own"
_SCALING = "scaling="
_DATA = Path(__file__).parent / "data"
# Files that are shipped, and what a file may hold; the last one holds all that the area model has.
FILES = ("units", "links", "d2d", "cooling", "area")
PARTS = (
    "nodes",
    "units",
    "memories",
    "links",
    "d2d",
    "cooling",
    "densities",
    "circuits",
    "phys",
    "multiprocessors",
    "dies",
)


@dataclass(frozen=True, slots=True)
class NodeScale:
    """What a node makes of one unit of another: areas and power at the same clock."""

    logic: float
    cache: float
    analog: float
    power: float


@dataclass(frozen=True, slots=True)
class Technology:
    """All that the engine builds from.

    Attributes:
        section: the data, checked.
        scaling: name of the nodes: `papers`, `foundry`, or `own` for those of the user's file.
        own_memories: records of memories of the user's file, which no price book has.
    """

    section: TechnologySection
    scaling: str = USUAL_SCALING
    own_memories: Mapping[str, Tree] = field(default_factory=dict)

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

    def flux_w_per_mm2(self, cooling: str) -> float:
        """Return what a kind of cooling takes from dies, of an empty name the best; UnknownNameError names the nearest.

        >>> load_technology().flux_w_per_mm2("air"), load_technology().flux_w_per_mm2("")
        (1.0, 3.0)
        """
        kinds = self.section.cooling
        return _named("cooling", kinds, cooling).flux.si if cooling else max(kind.flux.si for kind in kinds.values())

    def cooling_for(self, w_per_mm2: float) -> str:
        """Name the least cooling that takes so much; empty where none does."""
        return next((name for name, kind in self.section.cooling.items() if w_per_mm2 <= kind.flux.si), "")

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
        overrides: `units.a100.area_shares.core=0.6`, as `--set` of a system; `scaling=foundry` chooses the nodes.

    Raises:
        SystemFileError: a file that cannot be read or breaks the schema; all faults with their lines.
        UnknownNameError: an override of a key that there is not, a scaling that there is not.
    """
    if path is None and not overrides:
        return _shipped_technology()
    return _read(path, overrides)


@cache
def _shipped_technology() -> Technology:
    return _read(None, ())


def scaling_names() -> tuple[str, ...]:
    """Name the scalings of logic by node.

    >>> scaling_names()
    ('foundry', 'papers')
    """
    return tuple(sorted(file.stem for file in (_DATA / "scalings").glob("*.yaml")))


def _read(path: str | Path | None, overrides: Sequence[str]) -> Technology:
    own = None if path is None else _own(path)
    scaling = _scaling_of(own, overrides)
    files = [_shipped(f"scalings/{scaling}"), *map(_shipped, FILES), memory_file(), *([] if own is None else [own])]
    tree: dict[str, Tree] = {}
    origins: list[FileOrigin] = []
    for file in map(designed, files):
        for part, found in file.tree.items():
            if part == "scaling":
                continue
            before = {} if part == "nodes" else tree.get(part, {})
            tree[part] = {**before, **found} if isinstance(before, dict) and isinstance(found, dict) else found
            inside = found if isinstance(found, dict) else {}
            origins += [file.origin((part,), (part,)), *(file.origin((part, n), (part, n)) for n in inside)]
    for text in overrides:
        if not text.startswith(_SCALING):
            tree = override(tree, text, TechnologySection, "the technology")
    memories = {} if own is None else own.tree.get("memories")
    if own is not None and "nodes" in own.tree:
        scaling = _OWN_SCALING
    section = section_of(TechnologySection, tree, "technology", in_files(origins[::-1]))
    return Technology(section, scaling, memories if isinstance(memories, dict) else {})


def _scaling_of(own: File | None, overrides: Sequence[str]) -> str:
    """Return the scaling that is said last; UnknownNameError names the nearest."""
    said = [str(own.tree.get("scaling", USUAL_SCALING))] if own is not None else [USUAL_SCALING]
    said += [text.removeprefix(_SCALING) for text in overrides if text.startswith(_SCALING)]
    if said[-1] not in scaling_names():
        raise UnknownNameError.of("scaling", said[-1], scaling_names())
    return said[-1]


def _shipped(name: str) -> File:
    file = _DATA / f"{name}.yaml"
    return read_at(name, f"technology/data/{name}.yaml", file, f"technology file '{name}'")


def _own(path: str | Path) -> File:
    file = read_at(Path(path).name, str(path), Path(path), f"technology file '{path}'")
    if not set(file.tree) & {*PARTS, "scaling"}:
        raise SystemFileError(f"technology file '{path}' has none of: {', '.join(PARTS)}")
    return file


def _named(kind: str, known: Mapping[str, T], name: str) -> T:
    if name not in known:
        size = name.lower().removesuffix("nm").strip()
        if kind == "node" and f"N{size}" in known:
            raise UnknownNameError(f"unknown node '{name}'; did you mean 'N{size}'? allowed: {', '.join(known)}")
        raise UnknownNameError(f"{UnknownNameError.of(kind, name, known)}; or one of your own in a --technology FILE")
    return known[name]
