"""Interfaces between dies: vectors by hand in both packagings, joins counted on networkx graphs, errors, arrays."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.technology.d2d import JOINS, Join, as_join, check_shoreline, neighbours, span_mm
from slipstick.backends.technology.data import load_technology
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
