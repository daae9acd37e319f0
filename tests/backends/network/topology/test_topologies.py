"""Topologies: times by counting messages on the busiest wire, by hand and along the routes of a graph."""

import dataclasses
from itertools import product

import numpy as np
import pytest

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.backends.network.algorithms.algorithm import Collective
from slipstick.backends.network.collectives import Candidate, collective_time
from slipstick.backends.network.topology.lanes import Pattern, lane
from slipstick.backends.network.topology.layout import lay_out
from slipstick.backends.network.topology.level import Dragonfly, Edge, NetworkLevel, Topology
from slipstick.backends.network.topology.parts import link_rates

GIB = 2.0**30
BASE = load_system("dgx-h100")
LINK = 50e9  # b, bandwidth of one link one way
ALPHA = 2e-6


def network(*levels: NetworkLevel) -> System:
    return dataclasses.replace(BASE, levels=levels, stack=dataclasses.replace(BASE.stack, collective_launch_s=0.0))


def level(topology: Topology, size: int, links: int, dims: tuple[int, ...] = (), **more: object) -> NetworkLevel:
    made = NetworkLevel("net", size, links * LINK, ALPHA, topology, dims=dims, algorithm="best")
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


def times(kind: Collective, size: int, system: System, stride: int = 1) -> dict[str, Candidate]:
    return {c.algorithm: c for c in collective_time(kind, GIB, size, stride, system).compared()}


def seconds(kind: Collective, algorithm: str, size: int, system: System, stride: int = 1) -> float:
    return float(times(kind, size, system, stride)[algorithm].time_s)


def edges(pairs: set[tuple[int, int]], bytes_per_s: float = LINK) -> tuple[Edge, ...]:
    return tuple(Edge(str(a), str(b), bytes_per_s) for a, b in sorted(pairs))


def torus_edges(dims: tuple[int, ...], wrap: bool) -> set[tuple[int, int]]:
    """Links of a torus or mesh whose members are numbered with the first dimension innermost."""
    found = set()
    places = list(product(*(range(d) for d in reversed(dims))))
    for place in places:
        for axis, length in enumerate(reversed(dims)):
            if place[axis] + 1 < length or wrap:
                other = list(place)
                other[axis] = (place[axis] + 1) % length
                a, b = places.index(place), places.index(tuple(other))
                found.add((min(a, b), max(a, b)))
    return found


FULL = network(level("fully_connected", 8, 7))
RING = network(level("ring", 8, 2))
ONE_WAY = network(level("ring", 8, 1, bidirectional=False))
LINE = network(level("line", 8, 2))
TORUS = network(level("torus", 64, 6, (4, 4, 4)))
MESH = network(level("mesh", 16, 4, (4, 4)))
CUBE = network(level("hypercube", 16, 4))


@pytest.mark.parametrize(
    ("system", "kind", "algorithm", "size", "steps", "vectors"),
    [
        # Steps of alpha, and S/b times what the busiest wire carries; b is one link.
        (FULL, "all_reduce", "direct", 8, 2, 2 / 8),
        (FULL, "all_to_all", "direct", 8, 1, 1 / 8),
        (RING, "all_reduce", "two_way_ring", 8, 14, 7 / 8),
        (RING, "all_reduce", "ring", 8, 14, 2 * 7 / 8),
        (RING, "all_to_all", "direct", 8, 4, 8 / 8),
        (ONE_WAY, "all_reduce", "ring", 8, 14, 2 * 7 / 8),
        (ONE_WAY, "all_to_all", "direct", 8, 7, 7 / 2),
        (LINE, "all_reduce", "ring", 8, 14 * 2, 2 * 7 / 8),
        (LINE, "all_to_all", "direct", 8, 7, 8 / 4),
        (TORUS, "all_reduce", "hierarchical_two_way_ring", 64, 2 * 9, (3 / 4 + 3 / 16 + 3 / 64)),
        (TORUS, "all_reduce", "concurrent_dimensions", 64, 2 * 9, 63 / 64 / 3),
        (TORUS, "all_to_all", "direct", 64, 3 * 2, 4 / 8),
        (MESH, "all_to_all", "direct", 16, 2 * 3, 4 / 4),
        (CUBE, "all_reduce", "halving_doubling", 16, 8, 2 * 15 / 16),
        (CUBE, "all_reduce", "concurrent_dimensions", 16, 8, 2 * 15 / 16 / 4),
        (CUBE, "all_to_all", "direct", 16, 4, 1 / 2),
    ],
)
def test_times_by_hand(system: System, kind: Collective, algorithm: str, size: int, steps: int, vectors: float) -> None:
    expected = steps * ALPHA + vectors * GIB / LINK
    assert seconds(kind, algorithm, size, system) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "all_to_all", "send"])
def test_a_torus_of_one_dimension_is_a_ring(kind: Collective, size: int) -> None:
    torus, ring = network(level("torus", 8, 2, (8,))), RING
    assert {n: c.time_s for n, c in times(kind, size, torus).items()} == pytest.approx(
        {n: c.time_s for n, c in times(kind, size, ring).items()}
    )


@pytest.mark.parametrize(
    ("topology", "dims", "links"),
    [("ring", (8,), 2), ("ring", (7,), 2), ("line", (8,), 2), ("line", (5,), 2), ("fully_connected", (6,), 5)],
)
@pytest.mark.parametrize("pattern", [Pattern.BOTH, Pattern.PEERS])
def test_the_closed_form_is_what_routes_carry(
    topology: Topology, dims: tuple[int, ...], links: int, pattern: Pattern
) -> None:
    (size,) = dims
    if topology == "fully_connected":
        joined = {(a, b) for a in range(size) for b in range(a)}
    else:
        joined = torus_edges(dims, wrap=topology == "ring")
    if topology != "ring" and pattern is Pattern.BOTH:
        return  # A line is folded, and a ring over all wires is several rings: what a plain walk does not take.
    (closed,) = lay_out(size, 1, [level(topology, size, links)])
    (routed,) = lay_out(size, 1, [level("graph", size, links, edges=edges(joined))])
    assert lane(pattern, closed).share == pytest.approx(lane(pattern, routed).share)
    assert lane(pattern, closed).hops >= lane(pattern, routed).hops


@pytest.mark.parametrize("step", [1, 2, 4])
def test_groups_side_by_side_share_the_wires_of_a_ring(step: int) -> None:
    size = 8 // step
    (closed,) = lay_out(size, step, [level("ring", 8, 2)])
    (routed,) = lay_out(size, step, [level("graph", 8, 2, edges=edges(torus_edges((8,), wrap=True)))])
    assert closed.step == step
    for pattern in (Pattern.BOTH, Pattern.PEERS):
        assert lane(pattern, closed).share == pytest.approx(lane(pattern, routed).share)


def test_strided_groups_of_a_switch_do_not_slow_one_another() -> None:
    switch = network(dataclasses.replace(level("switch", 8, 2), algorithm=""))
    assert seconds("all_reduce", "ring", 4, switch, stride=2) == seconds("all_reduce", "ring", 4, switch)


def test_an_uplink_carries_a_part() -> None:
    leaf, spine = NetworkLevel("leaf", 8, 50e9, 0.0), NetworkLevel("spine", None, 50e9, 0.0, "fat_tree")
    full, thin = network(leaf, spine), network(leaf, dataclasses.replace(spine, oversubscription=4.0))
    # Four ranks in four leaves, which all others do as well.
    assert seconds("all_gather", "ring", 4, thin, 8) == pytest.approx(4 * seconds("all_gather", "ring", 4, full, 8))
    assert seconds("all_gather", "ring", 8, thin) == seconds("all_gather", "ring", 8, full)


def test_rails() -> None:
    """Sixteen ranks in two nodes of eight: half of what a rank sends goes to the other node."""

    def rails(topology: Topology, o: float) -> System:
        node = NetworkLevel("nvlink", 8, 400e9, 0.0)
        return network(node, NetworkLevel("rail", None, 50e9, 0.0, topology, oversubscription=o, algorithm="best"))

    node, other = GIB / 2 / 400e9, GIB / 2 / 50e9
    full, thin, only = rails("rail_optimised", 1), rails("rail_optimised", 4), rails("rail_only", 1)
    assert seconds("all_to_all", "pairwise", 16, full) == pytest.approx(7 / 8 * node + other)
    assert seconds("all_to_all", "pairwise", 16, thin) == pytest.approx(7 / 8 * node + 4 * other)
    staged = 7 / 8 * GIB / 400e9 + other
    assert {s.name: seconds("all_to_all", "staged", 16, s) for s in (full, thin, only)} == {
        full.name: pytest.approx(staged)
    }
    assert set(times("all_to_all", 16, only)) <= {"staged", "bruck"}
    # Groups with one rank a node keep to their rails.
    assert seconds("all_to_all", "pairwise", 4, only, 8) == pytest.approx(3 / 4 * GIB / 50e9)


def test_a_dragonfly() -> None:
    """Two hosts a router, four routers a group, nine groups, two global links a router: a h + 1 groups."""
    d = Dragonfly(hosts=2, routers=4, groups=9, global_links=2, global_bytes_per_s=25e9)
    system = network(NetworkLevel("fly", 72, 50e9, 0.0, "dragonfly", dragonfly=d))
    # A host has h b_g / p = 25 GB/s of the global links; 64/72 of what it sends leaves its group of 8.
    found = times("all_to_all", 72, system)["direct"]
    assert float(found.terms[0].bandwidth_s) == pytest.approx(64 / 72 * GIB / 25e9)
    inside = times("all_to_all", 8, system)["direct"]
    assert float(inside.terms[0].bandwidth_s) == pytest.approx(7 / 8 * GIB / 50e9)
    # With global links as wide as that of a host, all that it sends leaves by its own link.
    wide = network(
        NetworkLevel("fly", 72, 50e9, 0.0, "dragonfly", dragonfly=dataclasses.replace(d, global_bytes_per_s=50e9))
    )
    for algorithm in ("direct", "pairwise"):
        assert seconds("all_to_all", algorithm, 72, wide) == pytest.approx(71 / 72 * GIB / 50e9)


def test_part_of_a_torus_is_no_ring() -> None:
    """Four of sixteen in a row: a line, whose folded ring has one wire each way."""
    system = network(level("torus", 256, 4, (16, 16)))
    assert seconds("all_reduce", "two_way_ring", 4, system) == pytest.approx(6 * 2 * ALPHA + 2 * 3 / 4 * GIB / LINK)


def test_a_graph_with_switches() -> None:
    """Four members at two leaves, and a spine: half of what each sends to others in turn crosses a link of 50 GB/s."""
    links = [("0", "l0"), ("1", "l0"), ("2", "l1"), ("3", "l1"), ("l0", "spine"), ("l1", "spine")]
    graph = tuple(Edge(a, b, LINK) for a, b in links)
    (share,) = lay_out(4, 1, [level("graph", 4, 1, edges=graph)])
    # 2 members x 2/3 of their bytes over one uplink.
    assert lane(Pattern.PEERS, share).share == pytest.approx(3 / 4)
    assert lane(Pattern.PEERS, share).hops == 4


def test_arrays_of_groups_over_a_graph() -> None:
    graph = network(level("graph", 8, 2, edges=edges(torus_edges((8,), wrap=True))))
    sizes = np.array([1.0, 2.0, 4.0, 8.0, 2.0])
    strides = np.array([1.0, 1.0, 2.0, 1.0, 4.0])
    table = collective_time("all_reduce", GIB, sizes, strides, graph)
    for row, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        assert np.asarray(table.time_s)[row] == collective_time("all_reduce", GIB, size, stride, graph).time_s


@pytest.mark.parametrize(
    ("made", "diameter"),
    [
        (level("ring", 64, 2), 32),
        (level("line", 64, 2), 63),
        (level("torus", 64, 4, (8, 8)), 8),
        (level("mesh", 64, 4, (8, 8)), 14),
    ],
    ids=["ring", "line", "torus", "mesh"],
)
def test_no_all_reduce_ends_before_the_farthest_have_heard_of_one_another(made: NetworkLevel, diameter: int) -> None:
    """Every member needs what every other has, over as many hops as lie between them; trees cannot jump either."""
    for name, found in times("all_reduce", 64, network(made)).items():
        assert sum(float(term.latency_s) for term in found.terms) >= diameter * ALPHA, name


def test_a_tree_walks_the_distances_between_its_ranks() -> None:
    """On a ring of 8: 3 levels up and down, each counted as the widest, 4 hops; the widest pairs share 4 wires."""
    found = times("all_reduce", 8, RING)["double_tree"]
    assert float(found.time_s) == pytest.approx(2 * 3 * 4 * ALPHA + 2 * GIB / (2 * LINK * 0.5 / 4))


def test_a_link_is_one_of_the_wires_of_a_member() -> None:
    # 600 GB/s of a member: to each of 4 others, either way round, or to one switch.
    wires: dict[Topology, int] = {"fully_connected": 4, "ring": 2, "line": 2, "switch": 1}
    for topology, count in wires.items():
        assert link_rates([NetworkLevel("net", 5, 600e9, ALPHA, topology)]) == {"net": 600e9 / count}


def test_a_ring_without_limit_never_closes() -> None:
    for pattern in Pattern:
        (ring,), (line,) = (
            lay_out(8, 1, [NetworkLevel("net", None, 100e9, ALPHA, shape)]) for shape in ("ring", "line")
        )
        ours, theirs = lane(pattern, ring), lane(pattern, line)
        assert (float(ours.hops), float(ours.share)) == (float(theirs.hops), float(theirs.share))
