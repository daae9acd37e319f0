"""A network level and the number of ranks on it into switches, links and adapters, as its topology has them.

Ranks of level k lie in groups of `inner`, those of the level below; each rank has ports of its own into the level.
Direct topologies have no switches: links are half of the ports that they use.

    ring, torus     a cable to the next in each dimension: D a rank; one for both where a dimension has two members
    line, mesh      the same without the cable that closes it: (d - 1)/d a rank and dimension
    fully connected (m - 1)/2 a rank, hyperx that in each dimension;  hypercube log2(m)/2;  graph its edges
    dragonfly       a router for p hosts; a (a - 1)/2 links in a group and a h/2 global ones for each group
    switched        trees, see `trees`; rails of their own have a tree each, optimised rails share all but the leaves

Servers that are only two are joined back to back, without a switch.
"""

from __future__ import annotations

from itertools import zip_longest
from math import log2

import numpy as np

from ....backends.network.topology.level import SWITCHED, NetworkLevel
from ....backends.network.topology.parts import dims_of
from ....backends.network.topology.routes import members_of
from ....ir.errors import UsageError
from ....ir.records import dataclass
from ....ir.sizes.expr import Num
from .trees import Array, Tree, joined, plain, tree


@dataclass(frozen=True, slots=True)
class LevelPorts:
    """How a level meets its ranks and switches.

    Attributes:
        of_rank: ports of a rank; None for one to each neighbour, which is all that direct topologies need.
        of_switch: ports of a switch; None where switches are part of something that is bought, and are not counted.
        above: part of the ports of the topmost tier that go down; the others are for a level above.
        back_to_back: whether two groups of ranks may be joined without a switch, as two servers are.
    """

    of_rank: Num | None = None
    of_switch: int | None = None
    above: Num = 1.0
    back_to_back: bool = True


@dataclass(frozen=True, slots=True)
class Wiring:
    """What a level takes.

    Attributes:
        switches: of all tiers.
        links: tier by tier from the ranks up; those of the first tier end at ranks.
        ends: ends of links at ranks; the others are in ports of switches.
        ranks: ranks that the level joins; none where there is nothing to join.
    """

    switches: Num
    links: tuple[Num, ...]
    ends: Num
    ranks: Num

    @property
    def num_links(self) -> Num:
        """Links of all tiers."""
        return sum(self.links, start=0.0)

    def times(self, count: Num) -> Wiring:
        """Return so many of it."""
        return Wiring(
            self.switches * count, tuple(n * count for n in self.links), self.ends * count, self.ranks * count
        )

    def plus(self, other: Wiring) -> Wiring:
        """Return both together."""
        links = tuple(a + b for a, b in zip_longest(self.links, other.links, fillvalue=0.0))
        return Wiring(self.switches + other.switches, links, self.ends + other.ends, self.ranks + other.ranks)


def wiring(level: NetworkLevel, inner: int, num_ranks: Num, ports: LevelPorts) -> Wiring:
    """Count what a level takes for so many ranks.

    Args:
        level: with its topology, and its equipment where it has any.
        inner: ranks in a group of the level below.
        num_ranks: of the whole system.
        ports: of a rank and of a switch.

    Raises:
        UsageError: a switch of so few ports that no tree can be made of it.

    >>> torus = NetworkLevel("ici", 64, 600e9, 1e-6, "torus", dims=(4, 4, 4))
    >>> wiring(torus, 1, 64, LevelPorts()).num_links
    192.0
    """
    ranks = np.where(np.asarray(num_ranks, dtype=np.float64) > inner, num_ranks, 0.0)
    found = _of(level, inner, ranks, ports)
    return Wiring(plain(found.switches), tuple(map(plain, found.links)), plain(found.ends), plain(found.ranks))


def _of(level: NetworkLevel, inner: int, ranks: Array, ports: LevelPorts) -> Wiring:
    if level.topology in SWITCHED:
        return _in_groups(level, inner, ranks, ports)
    if level.topology == "dragonfly":
        return _dragonfly(level, inner, ranks, ports)
    assert level.size is not None  # a level file without one is refused
    members = level.size // inner
    if level.topology == "graph":
        return _graph(level, members, ranks)
    used, each = direct_ports(level, members)
    links = ranks * each * (1.0 if ports.of_rank is None else ports.of_rank / used)
    return Wiring(0.0, (links,), 2.0 * links, ranks)


def _in_groups(level: NetworkLevel, inner: int, ranks: Array, ports: LevelPorts) -> Wiring:
    """A switched level: full groups all alike, and one that is not full."""
    if level.size is None:
        return _switched(level, inner, ranks, ports)
    full = np.floor(ranks / level.size)
    rest = np.where(full > 0, ranks - full * level.size, 0.0)
    whole = _switched(level, inner, np.minimum(ranks, float(level.size)), ports)
    return whole.times(np.maximum(full, 1.0)).plus(_switched(level, inner, np.where(rest > inner, rest, 0.0), ports))


def _switched(level: NetworkLevel, inner: int, ranks: Array, ports: LevelPorts) -> Wiring:
    """One group of a switched level."""
    given = None if level.equipment is None else level.equipment.switches
    if given is not None:
        ends = ranks * (given if ports.of_rank is None else ports.of_rank)
        return Wiring(np.where(ranks > 0, given, 0.0), (ends,), ends, ranks)
    if ports.of_switch is None or ports.of_rank is None:
        ends = ranks * (1.0 if ports.of_rank is None else ports.of_rank)
        return Wiring(0.0 * ranks, (ends,), ends, ranks)
    if ports.of_switch < 4:
        raise UsageError(f"network.{level.name}: a switch of {ports.of_switch} ports makes no tree: 4 or more")
    up = _joins_switches(level)
    found = _tree(level, inner, ranks * ports.of_rank, ranks, ports.of_switch, ports.above)
    pair = (ranks > 0) & (ranks <= 2 * inner) & (not up) & ports.back_to_back
    links = tuple(np.where(pair, n / 2.0 if tier == 0 else 0.0, n) for tier, n in enumerate(found.links))
    return Wiring(np.where(pair, 0.0, found.num_switches), links, 0.0 * ranks if up else ranks * ports.of_rank, ranks)


def _tree(level: NetworkLevel, inner: int, ends: Array, ranks: Array, radix: int, above: Num) -> Tree:
    if _joins_switches(level):
        return joined(ends / level.oversubscription, np.ceil(ranks / inner), radix, above)
    if level.topology == "rail_only":
        return tree(ends / inner, radix, level.oversubscription, above).times(inner)
    rails = float(inner) if level.topology == "rail_optimised" else 1.0
    return tree(ends, radix, level.oversubscription, above, rails)


def _joins_switches(level: NetworkLevel) -> bool:
    return level.equipment is not None and level.equipment.joins == "switches"


def _dragonfly(level: NetworkLevel, inner: int, ranks: Array, ports: LevelPorts) -> Wiring:
    """Routers of p hosts each; of a network that is not full, all links of the routers that there are."""
    d = level.dragonfly
    assert d is not None
    ends = ranks * (1.0 if ports.of_rank is None else ports.of_rank)
    routers = np.ceil(ends / d.hosts)
    local = routers * (d.routers - 1) / 2.0
    far = routers * d.global_links / 2.0 * (d.groups > 1)
    return Wiring(routers, (ends, local, far), ends, ranks)


def direct_ports(level: NetworkLevel, members: int) -> tuple[float, float]:
    """Return the ports of a rank that a direct topology uses with one link to a neighbour, and links for each rank."""
    if level.topology == "fully_connected":
        return members - 1.0, (members - 1) / 2.0
    if level.topology == "hypercube":
        return log2(members), log2(members) / 2.0
    if level.topology == "hyperx":
        return sum(d - 1.0 for d in level.dims), sum((d - 1) / 2.0 for d in level.dims)
    dims = [d for d in dims_of(level, members) or (members,) if d > 1]
    closed = level.topology in ("ring", "torus")
    return sum(min(d - 1.0, 2.0) for d in dims), sum(1.0 if closed and d > 2 else (d - 1.0) / d for d in dims)


def _graph(level: NetworkLevel, members: int, ranks: Array) -> Wiring:
    """Each edge is a cable; a group of the level below has as many planes of them as it has ranks."""
    planes = ranks / members
    nodes = {name for edge in level.edges for name in (edge.one, edge.other)}
    at_members = set(members_of(level.edges))
    ends = sum((edge.one in at_members) + (edge.other in at_members) for edge in level.edges)
    switches = len(nodes - at_members)
    return Wiring(planes * switches, (planes * len(level.edges),), planes * ends, ranks)
