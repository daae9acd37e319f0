"""The network part of a system file: levels as people write them, checked and turned into plain numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from ....ir.errors import UsageError, did_you_mean
from ...machine.files.system_numbers import Bandwidth, Count, Latency, Number, Ratio, Section
from ...machine.machine_schema import EquipmentSection, equipment_of
from ..algorithms.algorithm import BEST
from ..algorithms.menu import algorithm_names
from .edges import edge_faults, least_bytes_per_s, read_edges
from .level import Dragonfly, NetworkLevel, Topology
from .routes import members_of


class Oversubscription(Number):
    """Ranks below an uplink over those that it carries at full speed: one or more."""

    maximum = 1000.0


class DragonflySection(Section):
    """The numbers of a dragonfly: hosts at a router, routers in a group, groups, global links a router."""

    hosts: Count
    routers: Count
    groups: Count
    global_links: Count
    global_bandwidth: Bandwidth


class LevelSection(Section):
    """One network level; without a size it joins any number of ranks.

    Bandwidth is that of one rank into the level, or `links` times `link_bandwidth`. Text such as `4x4x4` gives the
    dimensions of a torus or mesh; `edges` holds the links of a graph, one a line: `0 1 25 GB/s`.
    """

    called: ClassVar[str] = "level"

    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    topology: Topology
    size: Count | None = None
    bandwidth: Bandwidth | None = None
    links: Count | None = None
    link_bandwidth: Bandwidth | None = None
    latency: Latency
    hop_latency: Latency | None = None
    efficiency: Ratio | None = None
    oversubscription: Oversubscription | None = None
    dims: str | None = Field(default=None, pattern=r"^[1-9][0-9]*(x[1-9][0-9]*)*$")
    direction: Literal["both", "one"] = "both"
    reduction_latency: Latency | None = None
    algorithm: str | None = None
    protocol: str | None = None
    edges: str | None = None
    dragonfly: DragonflySection | None = None
    equipment: EquipmentSection | None = None

    @model_validator(mode="after")
    def _check(self) -> LevelSection:
        faults = [*_rate_faults(self), *_name_faults(self), *_shape_faults(self)]
        if faults:
            raise UsageError("; ".join(faults))
        return self


def _rate_faults(level: LevelSection) -> Iterator[str]:
    if (level.links is None) != (level.link_bandwidth is None):
        yield "links and link_bandwidth belong together"
        return
    if level.bandwidth is None and level.links is None and level.edges is None:
        yield "missing bandwidth, or links and link_bandwidth"
    if level.efficiency is None and level.protocol is None:
        yield "missing efficiency (or a protocol, whose constants say it)"
    if level.oversubscription is not None and level.oversubscription.si < 1:
        yield f"oversubscription {level.oversubscription.si:g} is below 1: no uplink carries more than what comes to it"
    if level.bandwidth is not None and level.links is not None and level.link_bandwidth is not None:
        most = level.links.si * level.link_bandwidth.si
        if level.bandwidth.si > most * (1 + 1e-9):
            yield f"bandwidth {_rate(level.bandwidth.si)} is above the sum of its links, {_rate(most)}"


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:g} GB/s"


def _name_faults(level: LevelSection) -> Iterator[str]:
    names = (BEST, *algorithm_names())
    if level.algorithm is not None and level.algorithm not in names:
        yield f"unknown algorithm '{level.algorithm}'{did_you_mean(level.algorithm, names)} allowed: {', '.join(names)}"
    if level.direction == "one" and level.topology != "ring":
        yield f"direction: one is for a ring, not for {level.topology}"


def _shape_faults(level: LevelSection) -> Iterator[str]:
    """What a topology needs beside a size, and what only others have."""
    has = {"dims": level.dims, "edges": level.edges, "dragonfly": level.dragonfly}
    needs = {"torus": "dims", "mesh": "dims", "graph": "edges", "dragonfly": "dragonfly"}.get(level.topology)
    if needs and has[needs] is None:
        yield f"a {level.topology} needs {needs}"
    yield from (f"{name} are not for {level.topology}" for name, given in has.items() if given and name != needs)
    if level.size is None and level.topology in _SIZED:
        yield f"a {level.topology} needs a size"
    if level.topology == "graph" and level.edges:
        yield from _graph_faults(level, level.edges)


def _graph_faults(level: LevelSection, text: str) -> Iterator[str]:
    faults = list(edge_faults(text))
    yield from faults
    if not faults and level.bandwidth is not None:
        least = least_bytes_per_s(read_edges(text))
        if level.bandwidth.si > least * (1 + 1e-9):
            yield f"bandwidth {_rate(level.bandwidth.si)} is above the sum of its links, {_rate(least)}"


_SIZED: frozenset[Topology] = frozenset(
    ("fully_connected", "ring", "line", "mesh", "torus", "hypercube", "dragonfly", "graph")
)


def level_faults(levels: Sequence[LevelSection]) -> Iterator[str]:
    """Yield what is wrong between levels: names, sizes, members that a topology does not have."""
    repeated = [name for name, times in Counter(level.name for level in levels).items() if times > 1]
    if repeated:
        yield f"level named twice: {', '.join(repeated)}"
    for inner, outer in pairwise(levels):
        if inner.size is None:
            yield f"only the last level may leave out its size, not '{inner.name}'"
        elif outer.size is not None and (outer.size.si <= inner.size.si or outer.size.si % inner.size.si):
            yield f"the size of '{outer.name}' must be a larger multiple of the size of '{inner.name}'"
    inner_size = 1
    for level in levels:
        if level.size is not None and level.size.si % inner_size == 0:
            yield from _member_faults(level, int(level.size.si) // inner_size)
        inner_size = int(level.size.si) if level.size is not None else inner_size


def _member_faults(level: LevelSection, members: int) -> Iterator[str]:
    if level.dims is not None and prod(_dims(level)) != members:
        yield f"dims {level.dims} of '{level.name}' make {prod(_dims(level))}, not the {members} that it joins"
    if level.topology == "hypercube" and members & (members - 1):
        yield f"a hypercube joins a power of 2, not the {members} of '{level.name}'"
    if level.edges is not None and not list(edge_faults(level.edges)):
        found = len(members_of(read_edges(level.edges)))
        if found != members:
            yield f"edges of '{level.name}' name {found} members, not the {members} that it joins"
    if level.dragonfly is not None:
        yield from _dragonfly_faults(level, level.dragonfly, members)


def _dragonfly_faults(level: LevelSection, d: DragonflySection, members: int) -> Iterator[str]:
    made = int(d.hosts.si * d.routers.si * d.groups.si)
    if made != members:
        yield f"hosts x routers x groups of '{level.name}' make {made}, not the {members} that it joins"
    most = int(d.routers.si * d.global_links.si) + 1
    if d.groups.si > most:
        yield f"{d.groups.si:g} groups of '{level.name}' are more than the {most} that their global links can join"


def _dims(level: LevelSection) -> tuple[int, ...]:
    return tuple(int(n) for n in level.dims.split("x")) if level.dims else ()


def network_level(level: LevelSection) -> NetworkLevel:
    """Turn a checked level into plain numbers."""
    edges = read_edges(level.edges) if level.edges else ()
    return NetworkLevel(
        name=level.name,
        size=None if level.size is None else int(level.size.si),
        bytes_per_s=_bytes_per_s(level),
        latency_s=level.latency.si,
        topology=level.topology,
        efficiency=1.0 if level.efficiency is None else level.efficiency.si,
        hop_latency_s=None if level.hop_latency is None else level.hop_latency.si,
        oversubscription=1.0 if level.oversubscription is None else level.oversubscription.si,
        dims=_dims(level),
        bidirectional=level.direction == "both",
        reduction_latency_s=None if level.reduction_latency is None else level.reduction_latency.si,
        algorithm=level.algorithm or "",
        protocol=level.protocol or "",
        edges=edges,
        dragonfly=_dragonfly(level.dragonfly),
        equipment=equipment_of(level.equipment),
    )


def _bytes_per_s(level: LevelSection) -> float:
    """The bandwidth as given, else of all links of a rank; in a graph of the member with the least."""
    if level.bandwidth is not None:
        return level.bandwidth.si
    if level.links is not None and level.link_bandwidth is not None:
        return level.links.si * level.link_bandwidth.si
    return least_bytes_per_s(read_edges(level.edges or ""))


def _dragonfly(section: DragonflySection | None) -> Dragonfly | None:
    if section is None:
        return None
    return Dragonfly(
        hosts=int(section.hosts.si),
        routers=int(section.routers.si),
        groups=int(section.groups.si),
        global_links=int(section.global_links.si),
        global_bytes_per_s=section.global_bandwidth.si,
    )
