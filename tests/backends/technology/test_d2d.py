"""Interfaces between dies: vectors by hand in both packagings, joins counted on networkx graphs, errors, arrays."""

from __future__ import annotations

import itertools
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.technology.d2d import JOINS, Join, as_join, check_shoreline, memory_reach, neighbours, span_mm
from slipstick.backends.technology.data import load_technology
from slipstick.backends.technology.design import Budget, design
from slipstick.ir.errors import SystemFileError, UnknownNameError, UsageError

TECHNOLOGY = load_technology()
STANDARD, ADVANCED = TECHNOLOGY.d2d("ucie-standard"), TECHNOLOGY.d2d("ucie-advanced")


def test_modules_count_one_direction() -> None:
    # 1024 Gbit/s both ways are 64 GB/s each way, 4096 are 256 GB/s: 1 TB/s needs 15.6 and 3.9 modules.
    assert (STANDARD.module_bytes_per_s, ADVANCED.module_bytes_per_s) == (64e9, 256e9)
    assert (STANDARD.modules(1e12), ADVANCED.modules(1e12)) == (16, 4)
    assert ADVANCED.modules(3 * 256e9) == 3
    assert ADVANCED.modules(0.0) == 0


def test_area_edge_and_power_by_hand() -> None:
    # Four modules of 0.4055184 mm2 and 0.3888 mm for each of two neighbours; 1 TB/s are 8 Tbit/s of 0.25 pJ.
    assert ADVANCED.phy_mm2(1e12, 400.0, 2) == pytest.approx(8 * 0.4055184)
    assert ADVANCED.shoreline_mm(1e12) == pytest.approx(4 * 0.3888)
    assert ADVANCED.power_w(1e12) == pytest.approx(8e12 * 0.25e-12)
    assert STANDARD.phy_mm2(1e12, 400.0) == pytest.approx(16 * 0.75438)


def test_the_edge_carries_what_the_standard_says() -> None:
    # UCIe 1.0: 224 GB/s and 1317 GB/s a millimetre of edge, both ways, at 32 GT/s.
    assert 2 * STANDARD.module_bytes_per_s / STANDARD.module_mm == pytest.approx(224e9, rel=1e-3)
    assert 2 * ADVANCED.module_bytes_per_s / ADVANCED.module_mm == pytest.approx(1317e9, rel=1e-3)


def test_a_flat_share_of_the_die_whatever_the_bandwidth() -> None:
    flat = TECHNOLOGY.d2d("area-share")
    found = flat.phy_mm2(np.array([0.0, 1e9, 1e13]), 400.0, 3)
    assert np.asarray(found).tolist() == [0.0, 40.0, 40.0]
    assert flat.shoreline_mm(1e13) == 0
    assert np.isinf(flat.widest_bytes_per_s(1.0))


def test_a_short_edge_says_what_fits() -> None:
    # 20 mm hold 51 modules of 0.3888 mm, 13.056 TB/s; 20 TB/s need 79, which take 30.7152 mm.
    assert ADVANCED.widest_bytes_per_s(20.0) == 51 * 256e9
    check_shoreline(ADVANCED, 51 * 256e9, 20.0)
    said = r"20 TB/s of ucie-advanced: 79 modules take 30\.72 mm of an edge of 20 mm; at most 13\.1 TB/s"
    with pytest.raises(UsageError, match=said):
        check_shoreline(ADVANCED, 20e12, 20.0)


@pytest.mark.parametrize("num_dies", [2, 4, 6, 8])
def test_neighbours_as_counted_on_graphs(num_dies: int) -> None:
    graphs: dict[Join, nx.Graph[int]] = {
        "line": nx.path_graph(num_dies),
        "ring": nx.cycle_graph(num_dies) if num_dies > 2 else nx.path_graph(2),
        "mesh": nx.convert_node_labels_to_integers(nx.grid_2d_graph(2, num_dies // 2)),
        "fully_connected": nx.complete_graph(num_dies),
    }
    for join, graph in graphs.items():
        assert neighbours(join, num_dies) == max(d for _, d in graph.degree)
        assert neighbours(join, 1) == 0


def test_only_pairs_of_dies_far_apart_have_a_way_to_go() -> None:
    # Eight dies in two rows of four: between the first and the last of a row lie two.
    assert span_mm("fully_connected", 8, 20.0) == 40
    assert [float(span_mm(join, 4, 20.0)) for join in JOINS] == [0, 0, 0, 0]


def test_names_of_joins() -> None:
    assert as_join("ring") == "ring"
    with pytest.raises(UnknownNameError, match="did you mean 'mesh'"):
        as_join("mesch")
    with pytest.raises(UnknownNameError, match="unknown D2D interface 'ucie-advance'; did you mean 'ucie-advanced'"):
        TECHNOLOGY.d2d("ucie-advance")


def test_an_interface_has_modules_or_a_share() -> None:
    with pytest.raises(SystemFileError, match="an interface with a share of the die has no modules"):
        load_technology(overrides=["d2d.ucie-advanced.share=10%"])
    assert load_technology(overrides=["d2d.ucie-advanced.energy=1pJ/bit"]).d2d("ucie-advanced").power_w(1e12) == 8


@given(st.floats(1.0, 1e14), st.floats(1.0, 100.0))
def test_more_bandwidth_never_takes_less(rate: float, factor: float) -> None:
    for one in (STANDARD, ADVANCED):
        before, after = rate, rate * factor
        assert one.phy_mm2(before, 400.0) <= one.phy_mm2(after, 400.0)
        assert one.shoreline_mm(before) <= one.shoreline_mm(after)
        assert one.power_w(before) <= one.power_w(after)


@given(st.floats(0.5, 50.0))
def test_what_fits_on_an_edge_fits(edge_mm: float) -> None:
    most = ADVANCED.widest_bytes_per_s(edge_mm)
    assert ADVANCED.shoreline_mm(most) <= edge_mm * (1 + 1e-9)
    assert ADVANCED.shoreline_mm(most + 256e9) > edge_mm * (1 - 1e-9)


def _busiest(join: Join, dies: int) -> float:
    """Return the load of the busiest link, one way, of all bytes of memory, by shortest paths along rows first."""

    def steps(a: int, b: int) -> list[tuple[tuple[int, int], float]]:
        if join == "fully_connected":
            return [((a, b), 1.0)]
        if join == "line":
            way = 1 if b > a else -1
            return [((k, k + way), 1.0) for k in range(a, b, way)]
        if join == "ring":
            ahead = (b - a) % dies
            ways = [1] if 2 * ahead < dies else [-1] if 2 * ahead > dies else [1, -1]
            hops = min(ahead, dies - ahead)
            return [(((a + w * k) % dies, (a + w * (k + 1)) % dies), 1 / len(ways)) for w in ways for k in range(hops)]
        columns = dies // 2
        (row, at), (to_row, to) = divmod(a, columns), divmod(b, columns)
        way = 1 if to > at else -1
        along = [((row * columns + k, row * columns + k + way), 1.0) for k in range(at, to, way)]
        return [*along, *([((row * columns + to, to_row * columns + to), 1.0)] if row != to_row else [])]

    loads: dict[tuple[int, int], float] = {}
    for a, b in itertools.permutations(range(dies), 2):
        for link, share in steps(a, b):
            loads[link] = loads.get(link, 0.0) + share / dies**2
    return max(loads.values())


@pytest.mark.parametrize("dies", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("join", JOINS)
def test_memory_of_one_device_goes_as_far_as_its_busiest_link(join: Join, dies: int) -> None:
    if join == "mesh" and (dies % 2 or dies == 2):
        return
    assert float(memory_reach(join, dies)) == pytest.approx(1 / _busiest(join, dies), rel=1e-12)


def test_one_device_of_two_dies_pays_for_its_interface_and_reads_through_it() -> None:
    free = Budget("N5", 1600.0, 1400.0, memory="hbm3e", num_dies=2)
    wide = replace(free, d2d="ucie-advanced", d2d_bytes_per_s=4e12, one_device=True)
    narrow = replace(wide, d2d_bytes_per_s=0.5e12)
    made, joined, starved = (design(budget, TECHNOLOGY) for budget in (free, wide, narrow))
    assert (joined.budget.num_ranks, joined.budget.one_device) == (1, True)
    # 16 modules of 256 GB/s on each of two dies.
    assert joined.areas.d2d_mm2 == pytest.approx(2 * 16 * 0.4055184)
    assert joined.compute.num_sms <= made.compute.num_sms
    assert joined.memory.bytes_per_s == pytest.approx(made.memory.bytes_per_s, rel=0.05)
    # Half of what a die reads comes from the other: of all bytes a fourth crosses each way.
    assert starved.memory.bytes_per_s == pytest.approx(4 * 0.5e12)
