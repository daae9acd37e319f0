"""One level of a network as its makers describe it: what it joins, how, and how fast."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from ....ir.records import dataclass
from ....ir.sizes.expr import Num
from ...machine.files.kinds import BANDWIDTH, COUNT, LATENCY, OVERSUBSCRIPTION, RATIO, Key, OneWord, TextPattern
from ...machine.machine import LevelEquipment

Topology: TypeAlias = Literal[
    "switch",
    "crossbar",
    "fully_connected",
    "ring",
    "line",
    "mesh",
    "torus",
    "hypercube",
    "hyperx",
    "fat_tree",
    "rail_optimised",
    "rail_only",
    "dragonfly",
    "graph",
]
# Where no two members are joined by a wire of their own, every collective library finds the same: a switch.
SWITCHED: frozenset[Topology] = frozenset(("switch", "crossbar", "fat_tree", "rail_optimised", "rail_only"))


@dataclass(frozen=True, slots=True)
class Edge:
    """A link of a graph, both ways; a node named by a number is a member of the level, any other a switch."""

    one: str
    other: str
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Dragonfly:
    """A dragonfly: p hosts at a router, a routers in a group, g groups, h global links a router.

    Attributes:
        hosts: p.
        routers: a; all routers of a group are joined to one another.
        groups: g, at most a h + 1.
        global_links: h.
        global_bytes_per_s: bandwidth of one global link, one direction.
    """

    hosts: Annotated[int, COUNT]
    routers: Annotated[int, COUNT]
    groups: Annotated[int, COUNT]
    global_links: Annotated[int, COUNT]
    global_bytes_per_s: Annotated[float, Key("global_bandwidth"), BANDWIDTH]


@dataclass(frozen=True, slots=True)
class NetworkLevel:
    """One level of the network, inner to outer.

    Attributes:
        name: as people call it, `nvlink`.
        size: ranks in a group of this level, inner levels included; None outermost for no limit.
        bytes_per_s: bandwidth of one rank into this level, one direction, all its links together.
        latency_s: time of one step of a collective between neighbours for an empty message.
        topology: how the groups of the level below are joined.
        efficiency: part of `bytes_per_s` that large messages reach whatever the software.
        hop_latency_s: what each further hop adds; None for `latency_s` again.
        oversubscription: ranks below an uplink over those that it carries at full speed.
        dims: lengths of the dimensions of a mesh, torus or HyperX, innermost first.
        blocks: shapes, each inside of the next, that neighbouring ranks fill before they go on: `2x2x2/4x4x4`; empty
            for ranks that fill one dimension after the other.
        slices: the block of which optical switches join slices, each a torus that closes itself; empty without them.
        closes: whether switches close slices; else sides shorter than those of the level lie open.
        contention: part of the bandwidth that is left where messages share paths: 1 for ideal adaptive routing without
            incast, less where paths are hashed or many send to one.
        bidirectional: whether a ring runs both ways.
        reduction_latency_s: time of a step through switches that reduce and copy; None where they cannot.
        algorithm: the one to use, `best` for the fastest of all; empty for what libraries have on this topology.
        protocol: the kind of collective constants that its messages go by; empty for plain latency and bandwidth.
        edges: the links of a graph.
        dragonfly: the numbers of a dragonfly.
        equipment: what it is built of, for money, power and carbon; None where nobody said.
    """

    ORDER: ClassVar = (
        "name",
        "topology",
        "size",
        "bandwidth",
        "links",
        "link_bandwidth",
        "latency",
        "hop_latency",
        "efficiency",
    )
    called: ClassVar = "level"

    name: Annotated[str, TextPattern(r"^[A-Za-z0-9_-]+$")]
    size: Annotated[int | None, Key(column=False), COUNT]
    bytes_per_s: Annotated[Num, Key("bandwidth", moves=True, needed=False), BANDWIDTH]
    latency_s: Annotated[Num, Key("latency", moves=True), LATENCY]
    topology: Annotated[Topology, Key("topology", needed=True)] = "switch"
    efficiency: Annotated[Num, RATIO] = 1.0
    hop_latency_s: Annotated[Num | None, Key("hop_latency"), LATENCY] = None
    oversubscription: Annotated[Num, OVERSUBSCRIPTION] = 1.0
    dims: Annotated[tuple[int, ...], TextPattern(r"^[1-9][0-9]*(x[1-9][0-9]*)*$")] = ()
    blocks: Annotated[tuple[tuple[int, ...], ...], TextPattern(r"^[1-9][0-9]*([x/][1-9][0-9]*)*$")] = ()
    slices: Annotated[tuple[int, ...], TextPattern(r"^[1-9][0-9]*(x[1-9][0-9]*)*$")] = ()
    closes: bool = True
    contention: Annotated[Num, RATIO] = 1.0
    bidirectional: Annotated[bool, Key("direction"), OneWord(("both", "one"))] = True
    reduction_latency_s: Annotated[Num | None, Key("reduction_latency", form=True), LATENCY] = None
    algorithm: str = ""
    protocol: str = ""
    edges: Annotated[tuple[Edge, ...], TextPattern()] = ()
    dragonfly: Dragonfly | None = None
    equipment: LevelEquipment | None = None

    @property
    def further_hop_s(self) -> Num:
        """Time that each hop after the first adds to a step."""
        return self.latency_s if self.hop_latency_s is None else self.hop_latency_s
