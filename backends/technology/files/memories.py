"""Records of memories: one file says all of a kind, and each of its readers takes what is its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from ...machine.files.catalogue import File, read_at
from ...machine.files.faults import FileOrigin
from ...machine.files.section import fields_of
from ...machine.files.system_tree import Tree, assign
from .schema import MemorySection

# Keys of a record that stand elsewhere in the price book, among what is alike of all kinds.
_PLACES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"energy": ("energy", "memory"), "carbon": ("carbon", "memory")}
)
# Keys that only the price book reads, and those that a design reads as well.
_PRICED = frozenset({"price", "stack_price", "processed_cost", "carbon", "base_die"})
_BOTH = frozenset({"footprint", "density"})


def memory_file() -> File:
    """Read the records that are shipped."""
    file = Path(__file__).parents[1] / "data" / "memories.yaml"
    return read_at("memories", "technology/data/memories.yaml", file, "technology file 'memories'")


def designed(file: File) -> File:
    """Return a file with what a design needs of its memories."""
    records = file.tree.get("memories")
    if not isinstance(records, dict):
        return file
    kept: dict[str, Tree] = {
        kind: {key: leaf for key, leaf in record.items() if key not in _PRICED} if isinstance(record, dict) else record
        for kind, record in records.items()
    }
    return replace(file, tree={**file.tree, "memories": kept})


def priced(file: File) -> File:
    """Return a file with what the price book has of its memories, each key in its place there."""
    records = file.tree.get("memories")
    if not isinstance(records, dict):
        return file
    only_designed = fields_of(MemorySection).keys() - {*_BOTH, *_PLACES}
    tree: dict[str, Tree] = {**file.tree, "memories": {}}
    for kind, record in records.items():
        fields = record if isinstance(record, dict) else {}
        own = {key: leaf for key, leaf in fields.items() if key not in only_designed and key not in _PLACES}
        tree = assign(tree, ("memories", kind), own if isinstance(record, dict) else record)
        for key, place in _PLACES.items():
            if key in fields:
                tree = assign(tree, (*place, kind), fields[key])
    return replace(file, tree=tree)


def origins(file: File) -> list[FileOrigin]:
    """Say where the keys of records lie that stand elsewhere in the price book."""
    records = file.tree.get("memories")
    kinds = records if isinstance(records, dict) else {}
    places = ((kind, key, place) for kind in kinds for key, place in _PLACES.items())
    return [file.origin((*place, kind), ("memories", kind, key)) for kind, key, place in places]
