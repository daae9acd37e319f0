"""What stands around a designed chip: servers, racks and switches as those of a machine of the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from math import ceil
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

import numpy as np
import yaml

from ....ir.errors import UsageError
from ....ir.records import dataclass
from ....ir.sizes.expr import Num
from ....ir.units import split_quantity
from ...machine.files.catalogue import read_file
from ...machine.files.number import in_full

if TYPE_CHECKING:
    from ...machine.files.system_tree import Tree

USUAL = "dgx-h100"
# What is bought with another chip in it costs something else with this one.
_BOUGHT = ("price", "rest_power")


@dataclass(frozen=True, slots=True)
class SystemScale:
    """A node of the system that stands around, to which one of another size is in proportion.

    Attributes:
        packages: in it.
        bytes_per_s: of all its ranks into the innermost level of the network.
        switches: of that level; None where nobody counts them.
    """

    packages: float
    bytes_per_s: float
    switches: float | None

    def switches_for(self, bytes_per_s: Num) -> Num | None:
        """Return as many switches as carry so much of all ranks, as those of the node carry its own.

        >>> scale_of("dgx-h100").switches_for(16 * 450e9)
        8.0
        """
        if self.switches is None:
            return None
        found = np.ceil(self.switches * np.asarray(bytes_per_s) / self.bytes_per_s * (1 - 1e-12))
        return float(found) if found.ndim == 0 else found


@cache
def scale_of(like: str | Path) -> SystemScale:
    """Return what a node of a system has; UnknownNameError for a system that there is not."""
    from ...machine.load import load_system

    system = load_system(like)
    level, package = system.levels[0], system.package
    equipment = level.equipment
    return SystemScale(
        packages=system.node_size / (1 if package is None else package.num_ranks),
        bytes_per_s=float(level.bytes_per_s) * (level.size or system.node_size),
        switches=None if equipment is None or equipment.switches is None else float(equipment.switches),
    )


def cooling_of(like: str | Path) -> str:
    """Return what the servers of a system say that they are cooled by; nothing where they do not."""
    server = _tree(like)["server"]
    return str(server.get("cooling", "")) if isinstance(server, dict) else ""


def surroundings_lines(like: str | Path, packages: int, cooling: str = "") -> Iterator[str]:
    """Yield the sections `server` and `rack` of a system, without prices as bought, for nodes of so many packages.

    Parts are in proportion to the packages, whole ones; servers are cooled as they are, or as is said.

    UnknownNameError for a system that there is not; UsageError for one that says nothing of its servers.
    """
    tree = _tree(like)
    for key in ("server", "rack"):
        section = tree.get(key)
        if isinstance(section, dict):
            kept = {name: value for name, value in section.items() if name not in _BOUGHT}
            parts = kept.get("parts")
            if key == "server" and isinstance(parts, list):
                kept["parts"] = [_times(part, packages / scale_of(like).packages) for part in parts]
            if key == "server" and cooling:
                kept["cooling"] = cooling
            yield _dumped({key: kept})


def host_lines(like: str | Path, packages: int) -> Iterator[str]:
    """Yield the `host_memory` of a node of a system, as a node has it, in proportion to its packages."""
    node = _tree(like).get("node")
    memory = node.get("host_memory") if isinstance(node, dict) else None
    if isinstance(memory, dict):
        share = packages / scale_of(like).packages
        kept = {key: _scaled(leaf, share) if key != "efficiency" else leaf for key, leaf in memory.items()}
        yield indent(_dumped({"host_memory": kept}), "  ")


def equipment_lines(like: str | Path, bytes_per_s: float) -> Iterator[str]:
    """Yield the `equipment` of the innermost level of a system, with switches for so much of all ranks of a node."""
    network = _tree(like).get("network")
    first = network[0] if isinstance(network, list) and network else None
    equipment = first.get("equipment") if isinstance(first, dict) else None
    if not isinstance(equipment, dict):
        return
    switches = scale_of(like).switches_for(bytes_per_s)
    if switches is not None:
        source = f"as many as carry its lanes, as those of {like} do"
        counted: Tree = {"value": float(switches), "confidence": "estimated", "source": source}
        equipment = {**equipment, "switches": counted}
    yield indent(_dumped({"equipment": equipment}), "    ")


def _times(part: Tree, share: float) -> Tree:
    """So many times a part, whole ones."""
    if not isinstance(part, dict) or share == 1.0:
        return part
    count = part.get("count", {"value": 1, "source": "one"})
    return {**part, "count": _scaled(count, share, whole=True)}


def _scaled(leaf: Tree, share: float, whole: bool = False) -> Tree:
    """A number of the file times a share, with its unit."""
    number = in_full(leaf)
    if not isinstance(number, dict) or share == 1.0:
        return leaf
    amount, unit = split_quantity(str(number["value"]))
    value = amount * share
    source = f"{number['source']}; times {share:g}, in proportion to the packages of a node"
    kept: Tree = float(ceil(value - 1e-9)) if whole else f"{value:.12g} {unit}".strip()
    return {**number, "value": kept, "confidence": "estimated", "source": source}


def _tree(like: str | Path) -> Mapping[str, Tree]:
    tree = read_file("systems", like).tree
    if not isinstance(tree.get("server"), dict):
        raise UsageError(f"system '{like}' does not say what its servers are made of; {USUAL} does")
    return tree


def _dumped(tree: Mapping[str, Tree]) -> str:
    return yaml.safe_dump(dict(tree), sort_keys=False, width=110).rstrip()
