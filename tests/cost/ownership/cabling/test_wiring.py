"""Switches and links of every topology, against graphs that networkx builds and counts that are known."""

from dataclasses import replace
from math import prod

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.machine import LevelEquipment
from slipstick.backends.network.topology.edges import read_edges
from slipstick.backends.network.topology.level import Dragonfly, NetworkLevel, Topology
from slipstick.cost.ownership.cabling.wiring import LevelPorts, wiring
from slipstick.ir.errors import UsageError

PORTS_64 = LevelPorts(1.0, 64)


def level(topology: Topology, size: int | None = None, dims: tuple[int, ...] = ()) -> NetworkLevel:
    return NetworkLevel("level", size, 50e9, 1e-6, topology, dims=dims)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4).filter(lambda d: prod(d) > 1))
def test_cables_of_a_torus_and_a_mesh_are_the_edges_of_the_grid(dims: list[int]) -> None:
    size = prod(dims)
    shapes: tuple[tuple[Topology, bool], ...] = (("torus", True), ("mesh", False))
    for topology, periodic in shapes:
        # networkx closes a dimension of one by a cable from a node to itself.
        edges = [e for e in nx.grid_graph(dims, periodic).edges if e[0] != e[1]]
        assert wiring(level(topology, size, tuple(dims)), 1, size, LevelPorts()).num_links == pytest.approx(len(edges))


def test_cables_of_a_hyperx_are_those_of_full_meshes_in_each_dimension() -> None:
    graph = nx.cartesian_product(nx.complete_graph(4), nx.complete_graph(6))
    found = wiring(level("hyperx", 24, (4, 6)), 1, 24, LevelPorts())
    assert found.num_links == pytest.approx(graph.number_of_edges())
    assert found.switches == 0.0


@pytest.mark.parametrize(
    ("topology", "graph"),
    [
        ("ring", nx.cycle_graph(12)),
        ("line", nx.path_graph(12)),
        ("fully_connected", nx.complete_graph(12)),
        ("hypercube", nx.hypercube_graph(4)),
    ],
)
def test_cables_of_direct_topologies_are_the_edges_of_their_graphs(topology: Topology, graph: "nx.Graph[int]") -> None:
    size = graph.number_of_nodes()
    found = wiring(level(topology, size), 1, size, LevelPorts())
    assert found.num_links == pytest.approx(graph.number_of_edges())
    assert found.switches == 0.0
    assert found.ends == pytest.approx(2 * graph.number_of_edges())


def test_a_torus_of_three_dimensions_has_three_cables_a_node() -> None:
    assert wiring(level("torus", 8960, (16, 20, 28)), 1, 8960, LevelPorts()).num_links == 3 * 8960


def test_more_ports_are_more_cables_side_by_side() -> None:
    # Eight Gaudi 2, 21 ports of each to the seven others: three cables a pair.
    assert wiring(level("fully_connected", 8), 1, 8, LevelPorts(21.0)).num_links == 28 * 3


def test_full_groups_of_a_direct_topology_are_alike() -> None:
    assert wiring(level("fully_connected", 8), 1, 64, LevelPorts()).num_links == 8 * 28


@pytest.mark.parametrize(
    ("num_gpus", "switches", "links"),
    [
        (8, 0, 0),
        (16, 0, 8),
        (512, 8, 512),
        (1024, 48, 2048),
        (2048, 96, 4096),
        (16384, 768, 32768),
        (32768, 2560, 98304),
        (65536, 5120, 196608),
    ],
)
def test_rails_of_their_own_are_those_of_the_public_clusters(num_gpus: int, switches: int, links: int) -> None:
    """Counts of the public H100 cluster spreadsheet of August 2024, with 64 ports of 400 Gbit/s a switch."""
    found = wiring(level("rail_only"), 8, num_gpus, PORTS_64)
    assert (found.switches, found.num_links) == (switches, links)


def test_one_fabric_over_all_rails_has_spines() -> None:
    # 512 GPUs: eight rails of 64 ends, two leaves of 32 each; 512 links up, 8 spines.
    assert wiring(level("rail_optimised"), 8, 512, PORTS_64).switches == 16 + 8
    assert wiring(level("fat_tree"), 8, 512, PORTS_64).switches == 16 + 8


def test_a_node_alone_needs_no_network() -> None:
    topologies: tuple[Topology, ...] = ("switch", "fat_tree", "rail_only", "rail_optimised", "torus")
    for topology in topologies:
        found = wiring(level(topology, 64 if topology == "torus" else None, (4, 4, 4)), 8, 8, PORTS_64)
        assert (found.switches, found.num_links, found.ranks) == (0, 0, 0)


def test_two_members_are_joined_back_to_back() -> None:
    found = wiring(level("switch"), 8, 16, LevelPorts(2.0, 64))
    assert (found.switches, found.num_links, found.ends) == (0, 16, 32)


def test_groups_of_a_size_have_switches_of_their_own() -> None:
    pods = level("fat_tree", 1024)
    # Two full pods and one of 512, which is 16 leaves and 8 spines.
    assert wiring(pods, 8, 2560, PORTS_64).switches == 48 + 48 + 24


def test_switches_as_their_makers_count_them() -> None:
    nvlink = replace(level("switch", 8), equipment=LevelEquipment(switch="nvswitch-3", switches=4))
    assert wiring(nvlink, 1, 64, LevelPorts(18.0)).switches == 32
    assert wiring(nvlink, 1, 60, LevelPorts(18.0)).switches == 32


def test_a_spine_over_pods_joins_their_switches() -> None:
    """As the cluster of the Llama 3 report: pods of 3072 at full speed, a seventh of it between pods."""
    spine = replace(level("fat_tree"), oversubscription=7.0, equipment=LevelEquipment(joins="switches"))
    found = wiring(spine, 3072, 8 * 3072, PORTS_64)
    # ceil(24576 / 7 / 64): every switch of the spine reaches all eight pods.
    assert found.switches == 55
    assert found.ends == 0
    pods = wiring(level("fat_tree", 3072), 8, 8 * 3072, LevelPorts(1.0, 64, above=7 / 8))
    # Each pod: 96 leaves, 96 switches that 32 ports of each go down from, and 55 that have 56 of 64 down.
    assert pods.switches == 8 * (96 + 96 + 55)


def test_routers_and_links_of_a_dragonfly() -> None:
    # The balanced dragonfly of Kim et al. (ISCA 2008): p = h = 2, a = 4, nine groups, 72 hosts.
    balanced = replace(level("dragonfly", 72), dragonfly=Dragonfly(2, 4, 9, 2, 25e9))
    found = wiring(balanced, 1, 72, LevelPorts())
    assert found.switches == 36
    # Nine complete graphs of four, and one cable between each two groups.
    assert found.links == (72, 9 * 6, 9 * 8 // 2)


def test_a_graph_has_its_edges() -> None:
    edges = read_edges("0 leaf 50 GB/s\n1 leaf 50 GB/s\n0 1 25 GB/s")
    found = wiring(replace(level("graph", 2), edges=edges), 1, 4, LevelPorts())
    assert (found.switches, found.num_links, found.ends) == (2, 6, 8)


def test_switches_that_are_part_of_something_bought_are_not_counted() -> None:
    found = wiring(level("switch", 8), 1, 64, LevelPorts(2.0))
    assert (found.switches, found.ends) == (0, 128)


def test_a_switch_has_four_ports_or_more() -> None:
    with pytest.raises(UsageError, match="a switch of 2 ports makes no tree: 4 or more"):
        wiring(level("switch"), 8, 64, LevelPorts(1.0, 2))
