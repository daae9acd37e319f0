"""Levels of a network as people write them: what a file says beside the fields of a level, and what contradicts it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import nan, prod
from typing import Annotated, TypeAlias

from ....ir.errors import did_you_mean
from ...machine.files.kinds import BANDWIDTH, COUNT, Checked, Least
from ...machine.files.section import fields_of
from ...machine.files.shapes import AmountForm, Fields, Inside, Place
from ..algorithms.algorithm import BEST
from ..algorithms.menu import algorithm_names
from .edges import edge_faults, least_bytes_per_s, read_edges
from .level import Dragonfly, NetworkLevel, Topology
from .routes import members_of

# What a topology needs beside a size.
_NEEDS: Mapping[Topology, str] = {
    "torus": "dims",
    "mesh": "dims",
    "hyperx": "dims",
    "graph": "edges",
    "dragonfly": "dragonfly",
}
_TOLD = """One network level; without a size it joins any number of ranks.

Bandwidth is that of one rank into the level, or `links` times `link_bandwidth`. Text such as `4x4x4` gives the
dimensions of a torus or mesh; `edges` holds the links of a graph, one a line: `0 1 25 GB/s`."""
# The bandwidth of a rank may be given as that of its links.
_LINKS = {
    "links": Place(AmountForm(COUNT, bare=int), "links"),
    "link_bandwidth": Place(AmountForm(BANDWIDTH, bare=float), "link_bandwidth"),
}


def _fields() -> Fields:
    known = {**fields_of(NetworkLevel), **_LINKS}
    order = {key: place for place, key in enumerate(NetworkLevel.ORDER)}
    return {key: known[key] for key in sorted(known, key=lambda key: order.get(key, len(order)))}


def _level(found: Mapping[str, object]) -> NetworkLevel:
    """Make a level of what a file says; a rate that it leaves open is that of its links, nan where nothing says it."""
    told = {key: value for key, value in found.items() if key not in _LINKS}
    dims, edges = str(found.get("dims", "")), str(found.get("edges", ""))
    joined = read_edges(edges) if edges and not list(edge_faults(edges)) else ()
    links, each = _number(found, "links"), _number(found, "link_bandwidth")
    if "bytes_per_s" not in found:
        rate = nan if joined == () else least_bytes_per_s(joined)
        told["bytes_per_s"] = rate if links is None or each is None else links * each
    told |= {"dims": _lengths(dims) if dims else ()}
    told |= {"slices": _lengths(str(found["slices"])) if found.get("slices") else ()}
    told |= {"blocks": tuple(map(_lengths, str(found["blocks"]).split("/"))) if found.get("blocks") else ()}
    told |= {"edges": joined, "bidirectional": found.get("bidirectional") != "one"}
    return NetworkLevel(**told)  # type: ignore[arg-type]


def _lengths(text: str) -> tuple[int, ...]:
    return tuple(int(length) for length in text.split("x"))


def _number(found: Mapping[str, object], key: str) -> float | None:
    value = found.get(key)
    return value if isinstance(value, int | float) else None


def _faults(level: NetworkLevel, found: Mapping[str, object]) -> Iterator[str]:
    yield from _rate_faults(found)
    yield from _name_faults(level)
    yield from _shape_faults(level, found)


LEVEL = Inside(_fields, _level, _faults, title="NetworkLevel", told=_TOLD, called="level")


def _rate_faults(found: Mapping[str, object]) -> Iterator[str]:
    rate, links, each = (_number(found, key) for key in ("bytes_per_s", "links", "link_bandwidth"))
    if (links is None) != (each is None):
        yield "links and link_bandwidth belong together"
        return
    if rate is None and links is None and "edges" not in found:
        yield "missing bandwidth, or links and link_bandwidth"
    if "efficiency" not in found and "protocol" not in found:
        yield "missing efficiency (or a protocol, whose constants say it)"
    over = _number(found, "oversubscription")
    if over is not None and over < 1:
        yield f"oversubscription {over:g} is below 1: no uplink carries more than what comes to it"
    if rate is not None and links is not None and each is not None and rate > links * each * (1 + 1e-9):
        yield f"bandwidth {_rate(rate)} is above the sum of its links, {_rate(links * each)}"


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:g} GB/s"


def _name_faults(level: NetworkLevel) -> Iterator[str]:
    names = (BEST, *algorithm_names())
    if level.algorithm and level.algorithm not in names:
        yield f"unknown algorithm '{level.algorithm}'{did_you_mean(level.algorithm, names)} allowed: {', '.join(names)}"
    if not level.bidirectional and level.topology != "ring":
        yield f"direction: one is for a ring, not for {level.topology}"


def _shape_faults(level: NetworkLevel, found: Mapping[str, object]) -> Iterator[str]:
    """What a topology needs beside a size, and what only others have."""
    needs = _NEEDS.get(level.topology)
    if needs and needs not in found:
        yield f"a {level.topology} needs {needs}"
    others = (name for name in ("dims", "edges", "dragonfly") if found.get(name) and name != needs)
    yield from (f"{name} are not for {level.topology}" for name in others)
    yield from _block_faults(level)
    if level.size is None and level.topology in _SIZED:
        yield f"a {level.topology} needs a size"
    if level.topology == "graph" and found.get("edges"):
        faults = list(edge_faults(str(found["edges"])))
        yield from faults
        rate = _number(found, "bytes_per_s")
        least = least_bytes_per_s(level.edges) if level.edges else nan
        if rate is not None and rate > least * (1 + 1e-9):
            yield f"bandwidth {_rate(rate)} is above the sum of its links, {_rate(least)}"


def _block_faults(level: NetworkLevel) -> Iterator[str]:
    """Blocks that do not lie in the next larger ones, or in the dimensions of the level."""
    if level.slices and level.topology != "torus":
        yield f"slices are of a torus, not of a {level.topology}"
    pairs = [*pairwise((*level.blocks, level.dims)), *([(level.slices, level.dims)] if level.slices else [])]
    for inner, outer in pairs:
        block, around = ("x".join(map(str, lengths)) for lengths in (inner, outer))
        if len(inner) != len(outer):
            yield f"block {block} of '{level.name}' has {len(inner)} dimensions, its dims are {around or 'none'}"
        elif any(large % small for small, large in zip(inner, outer, strict=True)):
            yield f"block {block} of '{level.name}' does not divide {around} along each dimension"


_SIZED: frozenset[Topology] = frozenset(
    ("fully_connected", "ring", "line", "mesh", "torus", "hypercube", "hyperx", "dragonfly", "graph")
)


def nesting_faults(levels: Sequence[NetworkLevel]) -> Iterator[str]:
    """Yield what is wrong between levels: names, sizes, members that a topology does not have."""
    repeated = [name for name, times in Counter(level.name for level in levels).items() if times > 1]
    if repeated:
        yield f"level named twice: {', '.join(repeated)}"
    for inner, outer in pairwise(levels):
        if inner.size is None:
            yield f"only the last level may leave out its size, not '{inner.name}'"
        elif outer.size is not None and (outer.size <= inner.size or outer.size % inner.size):
            yield f"the size of '{outer.name}' must be a larger multiple of the size of '{inner.name}'"
    inner_size = 1
    for level in levels:
        if level.size is not None and level.size % inner_size == 0:
            yield from _member_faults(level, level.size // inner_size)
        inner_size = level.size or inner_size


def _member_faults(level: NetworkLevel, members: int) -> Iterator[str]:
    if level.dims and prod(level.dims) != members:
        dims = "x".join(map(str, level.dims))
        yield f"dims {dims} of '{level.name}' make {prod(level.dims)}, not the {members} that it joins"
    if level.topology == "hypercube" and members & (members - 1):
        yield f"a hypercube joins a power of 2, not the {members} of '{level.name}'"
    if level.edges and len(members_of(level.edges)) != members:
        found = len(members_of(level.edges))
        yield f"edges of '{level.name}' name {found} members, not the {members} that it joins"
    if level.dragonfly is not None:
        yield from _dragonfly_faults(level.name, level.dragonfly, members)


def _dragonfly_faults(name: str, d: Dragonfly, members: int) -> Iterator[str]:
    made = d.hosts * d.routers * d.groups
    if made != members:
        yield f"hosts x routers x groups of '{name}' make {made}, not the {members} that it joins"
    most = d.routers * d.global_links + 1
    if d.groups > most:
        yield f"{d.groups:g} groups of '{name}' are more than the {most} that their global links can join"


Levels: TypeAlias = Annotated[tuple[Annotated[NetworkLevel, LEVEL], ...], Least(), Checked(nesting_faults)]
