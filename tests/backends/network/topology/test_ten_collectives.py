"""Ten topologies, each number by hand: what the busiest wire carries, and the steps until the last byte is there."""

from __future__ import annotations

import dataclasses

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.backends.network.algorithms.algorithm import Collective
from slipstick.backends.network.collectives import collective_time
from slipstick.backends.network.topology.level import Dragonfly, Edge, NetworkLevel, Topology

BASE = load_system("dgx-h100")
LINK, ALPHA, VOLUME = 50e9, 2e-6, 2.0**30
# Two cliques of four, each member with a wire to the same place of the other: K4 x K2.
TWO_CLIQUES = tuple(
    Edge(str(a), str(b), LINK) for a in range(8) for b in range(a + 1, 8) if a // 4 == b // 4 or b - a == 4
)
# 2 hosts, 4 routers, 9 groups, 2 global links a router of 25 GB/s: 25 GB/s of global links a host, half of its own.
FLY = Dragonfly(hosts=2, routers=4, groups=9, global_links=2, global_bytes_per_s=LINK / 2)


def net(topology: Topology, size: int, links: int, dims: tuple[int, ...] = (), **more: object) -> NetworkLevel:
    plain = NetworkLevel("net", size, links * LINK, ALPHA, topology, dims=dims, algorithm="best")
    return dataclasses.replace(plain, **more)  # type: ignore[arg-type]


# Eight leaves of eight ranks; a leaf has half of the uplinks that its ranks could fill.
TREE = (net("switch", 8, 1), net("fat_tree", 64, 1, name="spine", oversubscription=2.0))


# Steps of alpha, and what the busiest wire carries in S/b, b one wire one way. All-reduce is twice a gather of (n-1)/n
# over all wires of a member where every wire can work; all-to-all is the sum of the distances over the wires, or what
# crosses the middle of a dimension: n/2 members x half of S.
@pytest.mark.parametrize(
    ("levels", "kind", "algorithm", "size", "steps", "vectors"),
    [
        # Ring of 16: both ways round, 2 x 15 steps. Across the middle 8 S/2 over 2 wires; 8 hops to the farthest.
        ((net("ring", 16, 2),), "all_reduce", "two_way_ring", 16, 30, 15 / 16),
        ((net("ring", 16, 2),), "all_to_all", "direct", 16, 8, 16 / 8),
        # Torus 8 x 8: two chunks in turn along both dimensions, 2 x 2 x 7 steps over 4 wires. 32 S/2 over 2 x 8 wires.
        ((net("torus", 64, 4, (8, 8)),), "all_reduce", "concurrent_dimensions", 64, 28, 2 * 63 / 64 / 4),
        ((net("torus", 64, 4, (8, 8)),), "all_to_all", "direct", 64, 8, 8 / 8),
        # Torus 8^3: 6 wires, 2 x 3 x 7 steps. 256 S/2 over 2 x 64 wires, 3 x 4 hops.
        ((net("torus", 512, 6, (8, 8, 8)),), "all_reduce", "concurrent_dimensions", 512, 42, 2 * 511 / 512 / 6),
        ((net("torus", 512, 6, (8, 8, 8)),), "all_to_all", "direct", 512, 12, 8 / 8),
        # Mesh 8 x 8: rings folded into lines use one of a dimension's wires and hop over a neighbour. 32 S/2 over 8.
        ((net("mesh", 64, 4, (8, 8)),), "all_gather", "concurrent_dimensions", 64, 28, 63 / 64 / 2),
        ((net("mesh", 64, 4, (8, 8)),), "all_to_all", "direct", 64, 14, 8 / 4),
        # HyperX 4^3: 9 wires; a step a dimension and pass. Of S 3/4 goes along each dimension over 3 wires.
        ((net("hyperx", 64, 9, (4, 4, 4)),), "all_reduce", "concurrent_direct", 64, 6, 2 * 63 / 64 / 9),
        ((net("hyperx", 64, 9, (4, 4, 4)),), "all_to_all", "direct", 64, 3, 3 / 4 / 3),
        # Fat tree: 7/64 S to ranks of the leaf, 56/64 S over half a wire a rank; one latency for each of the levels.
        (TREE, "all_to_all", "direct", 64, 2, 7 / 64 + 2 * 56 / 64),
        # Inside the leaf 7/8 S, then an eighth of it 7/8 around 8 leaves at half rate; both twice, 7 steps each.
        (TREE, "all_reduce", "hierarchical_ring", 64, 28, 2 * (7 / 8 + 2 * 7 / 64)),
        # Dragonfly: 64/72 S leaves the group over half a wire; a step inside, one of 3 hops between groups.
        ((net("dragonfly", 72, 1, dragonfly=FLY),), "all_to_all", "direct", 72, 4, 2 * 64 / 72),
        # Inside 7/8 S; an eighth of it goes around 9 groups by a third, twice over half a wire: 8 steps of 5 hops.
        ((net("dragonfly", 72, 1, dragonfly=FLY),), "all_gather", "hierarchical_ring", 72, 47, 7 / 8 + 4 * 8 / 72),
        # Hypercube of 64: 6 wires, a step a dimension and pass. 32 S/2 over 32 wires.
        ((net("hypercube", 64, 6),), "all_reduce", "concurrent_dimensions", 64, 12, 2 * 63 / 64 / 6),
        ((net("hypercube", 64, 6),), "all_to_all", "direct", 64, 6, 1 / 2),
        # A wire to each of 15 others: S/16 over each, there and back.
        ((net("fully_connected", 16, 15),), "all_reduce", "direct", 16, 2, 2 / 16),
        ((net("fully_connected", 16, 15),), "all_to_all", "direct", 16, 1, 1 / 16),
        # Two cliques as a graph: own wires across have S/8 for the place itself and half of 2 x 3 S/8 that turn before
        # or after; a wire inside has S/8, and a half each of the two that turn over it.
        ((net("graph", 8, 4, edges=TWO_CLIQUES),), "all_to_all", "direct", 8, 2, 4 / 8),
        # What all gather goes the same ways.
        ((net("graph", 8, 4, edges=TWO_CLIQUES),), "all_gather", "direct", 8, 2, 4 / 8),
    ],
)
def test_ten_topologies_by_hand(
    levels: tuple[NetworkLevel, ...], kind: Collective, algorithm: str, size: int, steps: int, vectors: float
) -> None:
    stack = dataclasses.replace(BASE.stack, collective_launch_s=0.0)
    system = dataclasses.replace(BASE, levels=levels, stack=stack)
    found = {c.algorithm: c for c in collective_time(kind, VOLUME, size, 1, system).compared()}[algorithm]
    assert float(found.time_s) == pytest.approx(steps * ALPHA + vectors * VOLUME / LINK, rel=1e-12)
