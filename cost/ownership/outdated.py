"""Which prices are of another machine than the one that is timed, after numbers of it were set.

A price, a list of parts and a package are of the machine that its file describes. What follows from them by counting
(packages of a node, switches of a level by their ports, power) moves with the machine; one given number does not.
Where a number that such a description is of was set, and the description was not, the money is not of this machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...backends.machine.system import System
from ...backends.network.topology.level import NetworkLevel
from .server import Basis

# What dies are made for; memory has stacks of its own. Power moves energy and the building, latencies nothing.
_DIES = (
    "chip.matmul.",
    "chip.vector.",
    "chip.num_sms",
    "chip.clock",
    "chip.memory.l2.",
    "chip.array.",
    "chip.host_link.bandwidth",
)
_STACKS = ("chip.memory.hbm.bandwidth",)
_CHIP = (*_DIES, *_STACKS, "chip.memory.hbm.capacity")
_NODE = ("node.num_chips", "node.host_memory.")
# Keys of a network level that decide what it is built of.
_BUILT = frozenset(
    ("bandwidth", "links", "link_bandwidth", "size", "topology", "dims", "edges", "oversubscription", "dragonfly")
)
_RATES = frozenset(("bandwidth", "links", "link_bandwidth"))


def outdated(system: System, basis: Basis, rented: bool) -> tuple[str, ...]:
    """Return a line for each price or description that is of another machine: which numbers moved, and what to set.

    >>> from slipstick.backends.machine.load import load_system
    >>> outdated(load_system("dgx-h100", ["node.num_chips=4"]), "market", rented=True)
    ('prices.cloud.H100-SXM5-80GB.price: of a machine with another node.num_chips; set it',)
    """
    if not system.changed:
        return ()
    lines = _of_rent(system) if rented else _of_owning(system, basis)
    return tuple(dict.fromkeys(lines))


def _of_rent(system: System) -> Iterator[str]:
    paths = [*_under(system, (*_CHIP, *_NODE)), *_of_levels(system, system.levels, _BUILT)]
    yield from _line(system, f"prices.cloud.{system.chip.name}.price", paths, "prices.cloud.")


def _of_owning(system: System, basis: Basis) -> Iterator[str]:
    yield from _of_package(system)
    known = system.server is not None and system.server.rest_w is not None
    yield from _line(system, "server.rest_power", _under(system, ("node.num_chips",)) if known else [], "server.")
    rack, server = system.rack, system.server
    if basis == "market" and rack is not None and rack.price_usd is not None:
        yield from _bought(system, "rack.price", rack.has_adapters)
    elif basis == "market" and server is not None and server.price_usd is not None:
        yield from _bought(system, "server.price", server.has_adapters)
    else:
        yield from _of_parts(system, basis)
        yield from _of_equipment(system, system.levels)


def _bought(system: System, key: str, has_adapters: bool) -> Iterator[str]:
    """What is bought whole: its packages, hosts and the network in it; adapters of the levels outside."""
    inside = [level for level in system.levels if level.size is not None]
    outside = [level for level in system.levels if level.size is None]
    paths = [*_under(system, (*_CHIP, *_NODE)), *_of_levels(system, inside, _BUILT)]
    paths += _of_levels(system, outside, _RATES) if has_adapters else []
    # What it is made of, where that was set beside a price of the whole.
    paths += [path for path in _under(system, ("chip.package.", "server.parts.", "rack.parts.")) if path != key]
    paths += _of_levels(system, inside, frozenset(("equipment",)))
    adapters = [path for path in _of_levels(system, outside, frozenset(("equipment",))) if ".adapter" in path]
    paths += adapters if has_adapters else []
    yield from _line(system, key, paths, key)
    yield from _of_equipment(system, outside)


def _of_parts(system: System, basis: Basis) -> Iterator[str]:
    package, server = system.package, system.server
    if basis == "market" and package is not None and package.price_usd is not None:
        made = _under(system, ("chip.package.contents.", "chip.package.joint"))
        yield from _line(system, "chip.package.price", [*_under(system, _CHIP), *made], "chip.package.price")
    if server is not None and server.parts:
        host = ("node.num_chips", "node.host_memory.bandwidth")
        yield from _line(system, "server.parts", _under(system, host), "server.")


def _of_package(system: System) -> Iterator[str]:
    """What a package is made of; its stacks must hold the memory of the chip."""
    package = system.package
    if package is None:
        return
    yield from _line(system, "dies of chip.package", _under(system, _DIES), "chip.package.")
    yield from _line(system, "memory of chip.package", _under(system, _STACKS), "chip.package.")
    moved = _under(system, ("chip.memory.hbm.capacity", "chip.package."))
    if moved and not np.all(package.holds(system.chip.hbm_bytes)):
        held = float(np.max(np.asarray(package.rank_bytes))) / 1e9
        yield f"memory of chip.package: {held:.4g} GB a rank, with another {_listed(moved)}; set its stacks as well"


def _of_equipment(system: System, levels: Sequence[NetworkLevel]) -> Iterator[str]:
    """Kinds and numbers of parts that a level's file gives; what follows from ports and ranks moves by itself."""
    for level in levels:
        built, own = level.equipment, f"network.{level.name}.equipment"
        if built is None or not (built.switch or built.adapter):
            # Chips that are joined directly: their links are on their dies.
            links = _of_levels(system, [level], _BUILT if built is None or not built.cable else _RATES)
            yield from _line(system, "dies of chip.package", links, "chip.package.")
        if built is None:
            continue
        if built.adapter:
            yield from _line(system, f"{own}.adapter", _of_levels(system, [level], _RATES), own)
        if built.ports is not None:
            yield from _line(system, f"{own}.ports", _of_levels(system, [level], _RATES), own)
        if built.switches is not None:
            yield from _line(system, f"{own}.switches", _of_levels(system, [level], _BUILT), own)


def _under(system: System, prefixes: tuple[str, ...]) -> list[str]:
    return [path for path in system.changed if path.startswith(prefixes)]


def _of_levels(system: System, levels: Sequence[NetworkLevel], keys: frozenset[str]) -> list[str]:
    found = [path.split(".") for path in _under(system, ("network.",))]
    names = {level.name for level in levels}
    return [".".join(path) for path in found if len(path) > 2 and path[1] in names and path[2] in keys]


def _line(system: System, what: str, moved: Sequence[str], renewed: str) -> Iterator[str]:
    """Name what is of another machine, unless it was set as well."""
    if moved and not _under(system, (renewed,)):
        yield f"{what}: of a machine with another {_listed(moved)}; set it"


def _listed(paths: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(paths))
