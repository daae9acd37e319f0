"""What stands around a designed chip: servers, racks and switches as those of a machine of the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

import yaml

from ...ir.errors import UsageError
from ..catalogue import read_file

if TYPE_CHECKING:
    from ..system_tree import Tree

USUAL = "dgx-h100"
# What is bought with another chip in it costs something else with this one.
_BOUGHT = ("price", "rest_power")


def surroundings_lines(like: str | Path) -> Iterator[str]:
    """Yield the sections `server` and `rack` of a system, built of the same parts, without prices as bought.

    UnknownNameError for a system that there is not; UsageError for one that says nothing of its servers.
    """
    tree = _tree(like)
    for key in ("server", "rack"):
        section = tree.get(key)
        if isinstance(section, dict):
            kept = {name: value for name, value in section.items() if name not in _BOUGHT}
            yield _dumped({key: kept})


def host_lines(like: str | Path) -> Iterator[str]:
    """Yield the `host_memory` of a node of a system, as a node has it."""
    node = _tree(like).get("node")
    memory = node.get("host_memory") if isinstance(node, dict) else None
    if memory is not None:
        yield indent(_dumped({"host_memory": memory}), "  ")


def equipment_lines(like: str | Path) -> Iterator[str]:
    """Yield the `equipment` of the innermost level of a system, as a level has it."""
    network = _tree(like).get("network")
    first = network[0] if isinstance(network, list) and network else None
    equipment = first.get("equipment") if isinstance(first, dict) else None
    if isinstance(equipment, dict):
        yield indent(_dumped({"equipment": equipment}), "    ")


def _tree(like: str | Path) -> Mapping[str, Tree]:
    tree = read_file("systems", like).tree
    if not isinstance(tree.get("server"), dict):
        raise UsageError(f"system '{like}' does not say what its servers are made of; {USUAL} does")
    return tree


def _dumped(tree: Mapping[str, Tree]) -> str:
    return yaml.safe_dump(dict(tree), sort_keys=False, width=110).rstrip()
