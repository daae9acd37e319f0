"""Algorithms: published vectors, bounds that none beats, laws over all topologies, and levels that force one."""

import dataclasses
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.kernels.collective import CollectiveConstants, RankLink
from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.backends.network.algorithms.algorithm import Collective
from slipstick.backends.network.algorithms.menu import ALGORITHMS, algorithm_names
from slipstick.backends.network.collectives import Candidate, collective_time
from slipstick.backends.network.sms import sm_share
from slipstick.backends.network.topology.level import Edge, NetworkLevel

from .bounds import bandwidth_bound, bisection_bound, latency_bound

GIB = 2.0**30
BASE = load_system("dgx-h100")
KINDS: tuple[Collective, ...] = get_args(Collective)
CUBE = tuple(Edge(str(a), str(a ^ bit), 50e9) for a in range(8) for bit in (1, 2, 4) if a < a ^ bit)


def network(*levels: NetworkLevel, overhead_s: float = 0.0) -> System:
    return dataclasses.replace(
        BASE, levels=levels, stack=dataclasses.replace(BASE.stack, collective_launch_s=overhead_s)
    )


def times(kind: Collective, volume: float, size: int, system: System, stride: int = 1) -> dict[str, Candidate]:
    return {c.algorithm: c for c in collective_time(kind, volume, size, stride, system).compared()}


def flat(gb_per_s: float = 300, us: float = 5, **more: object) -> NetworkLevel:
    made = NetworkLevel("flat", None, gb_per_s * 1e9, us * 1e-6, "switch", algorithm="best")
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "algorithm", "size", "milliseconds"),
    [
        # S = 1 GiB, alpha = 5 us, B = 300 GB/s; S/B = 3.579139 ms.
        ("all_reduce", "halving_doubling", 8, 6.293494),  # 6 alpha + 7/4 S/B
        ("all_reduce", "direct", 8, 6.273494),  # 2 alpha + 7/4 S/B
        ("all_reduce", "recursive_doubling", 8, 10.752418),  # 3 (alpha + S/B)
        ("all_reduce", "halving_doubling", 6, 12.556988),  # 4 alpha + 3/2 S/B, and 2 alpha + 2 S/B beyond 4
        ("all_reduce", "recursive_doubling", 6, 14.336558),  # 4 (alpha + S/B): 2, and 2 beyond 4
        ("all_gather", "bruck", 6, 2.997616),  # 3 alpha + 5/6 S/B
        ("all_gather", "direct", 8, 3.136747),  # alpha + 7/8 S/B
        ("all_to_all", "bruck", 8, 5.383709),  # 3 (alpha + S/(2 B))
        ("all_to_all", "direct", 8, 3.136747),  # alpha + 7/8 S/B
        ("broadcast", "scatter_gather", 8, 6.313494),  # 10 alpha + 7/4 S/B
    ],
)
def test_published_vectors(kind: Collective, algorithm: str, size: int, milliseconds: float) -> None:
    found = times(kind, GIB, size, network(flat()))[algorithm]
    assert float(found.time_s) == pytest.approx(milliseconds * 1e-3, abs=5e-10)


def test_a_chain_in_chunks() -> None:
    """Eight ranks in q = sqrt((n - 2) S/(alpha B)) chunks: n - 1 + q - 1 steps, (n - 2 + q)/q of S on the wire."""
    alpha, whole = 5e-6, GIB / 300e9
    q = np.sqrt(6 * whole / alpha)
    found = times("broadcast", GIB, 8, network(flat()))["chain"]
    assert float(found.time_s) == pytest.approx((7 + q - 1) * alpha + (6 + q) / q * whole)
    # A small message is not cut: it is passed on n - 1 times.
    small = times("broadcast", 8.0, 8, network(flat()))["chain"]
    assert float(small.time_s) == pytest.approx(7 * (alpha + 8 / 300e9))


def test_messages_to_all_at_once_are_issued_one_by_one() -> None:
    """Of eight ranks behind one switch: one step, and seven times what NCCL takes to post a message."""
    system = load_system("dgx-h100")
    nccl = system.kernels.collective["nccl"]
    term, *_ = times("all_to_all", 8.0, 8, system)["direct"].terms
    assert float(term.latency_s) == pytest.approx(system.levels[0].latency_s + nccl.step_s + 7 * nccl.issue_s)


def test_switches_that_reduce() -> None:
    """2 alpha_sw + S/B on one level; on two, what is left of the vector goes through the outer switches once."""
    one = network(flat(reduction_latency_s=2e-6))
    assert float(times("all_reduce", GIB, 8, one)["in_network"].time_s) == pytest.approx(4e-6 + GIB / 300e9)
    assert float(times("broadcast", GIB, 8, one)["in_network"].time_s) == pytest.approx(2e-6 + GIB / 300e9)
    inner = NetworkLevel("nvlink", 8, 400e9, 1e-6)
    outer = NetworkLevel("ib", None, 50e9, 5e-6, reduction_latency_s=3e-6)
    found = times("all_reduce", GIB, 32, network(inner, outer))["in_network"]
    assert float(found.terms[0].bandwidth_s) == pytest.approx(2 * 7 / 8 * GIB / 400e9)
    assert float(found.terms[1].bandwidth_s) == pytest.approx(GIB / 8 / 50e9)
    assert float(found.terms[1].latency_s) == pytest.approx(6e-6)
    assert "in_network" not in times("all_reduce", GIB, 8, network(flat()))


def test_chunks_hide_the_faster_level() -> None:
    """Two levels of 10 and 20 ms: with many chunks little more than the slower one is left."""
    system = network(NetworkLevel("a", 8, 175e9, 0.0), NetworkLevel("b", None, 10e9, 0.0, algorithm="best"))
    volume = 1e9  # 7/8 x 1 GB / 175 GB/s = 5 ms a pass; 1/2 x 1/8 GB / 10 GB/s = 6.25 ms a pass
    found = times("all_reduce", volume, 16, system)
    assert float(found["hierarchical_ring"].time_s) == pytest.approx(10e-3 + 12.5e-3)
    # sum_l T_l(S/q) + (q - 1) max_l T_l(S/q), q = 128.
    assert float(found["pipelined_hierarchical"].time_s) == pytest.approx(12.5e-3 + 10e-3 / 128)


def test_a_level_forces_its_algorithm() -> None:
    system = network(flat(algorithm="double_tree"))
    assert set(times("all_reduce", GIB, 8, system)) == {"double_tree"}
    # An all-gather knows no such tree: what libraries have is open to it.
    assert set(times("all_gather", GIB, 8, system)) == {"ring", "hierarchical_ring"}
    forced = load_system("dgx-h100", ["network.nvlink.algorithm=double_tree"])
    assert set(times("all_reduce", GIB, 8, forced)) == {"double_tree"}
    assert "ring" in times("all_reduce", GIB, 16, forced)  # the outer level has its own choice


def test_nccl_has_no_tree_behind_one_switch() -> None:
    system = load_system("dgx-h100")
    assert set(times("all_reduce", GIB, 8, system)) == {"ring", "hierarchical_ring", "in_network"}
    assert "double_tree" in times("all_reduce", GIB, 16, system)


LEVELS = (
    NetworkLevel("net", 8, 300e9, 2e-6, "switch", algorithm="best"),
    NetworkLevel("net", 8, 700e9, 2e-6, "fully_connected"),
    NetworkLevel("net", 8, 100e9, 2e-6, "ring"),
    NetworkLevel("net", 8, 50e9, 2e-6, "ring", bidirectional=False),
    NetworkLevel("net", 8, 100e9, 2e-6, "line"),
    NetworkLevel("net", 8, 300e9, 2e-6, "torus", dims=(2, 4)),
    NetworkLevel("net", 8, 300e9, 2e-6, "mesh", dims=(4, 2)),
    NetworkLevel("net", 8, 150e9, 2e-6, "hypercube"),
    NetworkLevel("net", 8, 150e9, 2e-6, "graph", edges=CUBE),
    NetworkLevel("net", 8, 300e9, 2e-6, "switch", algorithm="best", protocol="nccl"),
)
OUTER = NetworkLevel("outer", None, 50e9, 5e-6, "rail_optimised", oversubscription=2, algorithm="best")
level_cases = st.sampled_from(LEVELS)
kind_cases = st.sampled_from(KINDS)
volumes = st.floats(1, 1e11)
sizes = st.sampled_from([2, 3, 4, 5, 8, 16, 24, 64])


@given(kind_cases, volumes, sizes, level_cases)
def test_no_algorithm_beats_the_bounds(kind: Collective, volume: float, size: int, level: NetworkLevel) -> None:
    system = network(level, OUTER)
    # A rank has links of its own into both levels, and chunks may use them at the same time.
    n, rate = np.asarray(float(size)), float(level.bytes_per_s) + (float(OUTER.bytes_per_s) if size > 8 else 0.0)
    bytes_s = bandwidth_bound(kind, n, np.asarray(volume), rate)
    for name, found in times(kind, volume, size, system).items():
        assert float(found.time_s) >= float(bytes_s) * (1 - 1e-9), name
        at_once = size - 1 if name == "direct" else 1
        assert float(found.time_s) >= float(latency_bound(kind, n, 2e-6, at_once)) * (1 - 1e-9), name


@given(volumes, st.sampled_from(LEVELS[2:9]))
def test_no_all_to_all_beats_the_bisection(volume: float, level: NetworkLevel) -> None:
    # Links in the middle: 2 of a ring, 1 of a line, 4 of the 2 x 4 torus and mesh ... in units of one link each way.
    middle = {"ring": 2 if level.bidirectional else 1, "line": 1, "torus": 4, "mesh": 2, "hypercube": 4, "graph": 4}
    link = {"torus": 75e9, "mesh": 75e9}.get(level.topology, 50e9)
    bound_s = bisection_bound(np.asarray(8.0), np.asarray(volume), middle[level.topology] * link)
    for name, found in times("all_to_all", volume, 8, network(level)).items():
        assert float(found.time_s) >= float(bound_s) * (1 - 1e-9), name


@given(kind_cases, volumes, level_cases, st.sampled_from([1, 2, 8]))
def test_a_group_of_one_costs_nothing(kind: Collective, volume: float, level: NetworkLevel, stride: int) -> None:
    assert collective_time(kind, volume, 1, stride, network(level, OUTER)).time_s == 0.0


@given(kind_cases, volumes, st.floats(1, 100), sizes, level_cases, st.sampled_from([1, 2, 8]))
def test_more_bytes_never_take_less_time(
    kind: Collective, volume: float, factor: float, size: int, level: NetworkLevel, stride: int
) -> None:
    system = network(level, OUTER, overhead_s=8e-6)
    less, more = (collective_time(kind, volume * f, size, stride, system).time_s for f in (1, factor))
    assert float(more) >= float(less) * (1 - 1e-9)


@given(kind_cases, volumes, st.floats(1, 100), sizes, level_cases, st.sampled_from([1, 2, 8]), st.booleans())
def test_faster_links_and_shorter_ways_never_take_longer(
    kind: Collective, volume: float, factor: float, size: int, level: NetworkLevel, stride: int, rate: bool
) -> None:
    edges = tuple(dataclasses.replace(e, bytes_per_s=e.bytes_per_s * factor) for e in level.edges)
    better = dataclasses.replace(level, bytes_per_s=level.bytes_per_s * factor, edges=edges)
    if not rate:
        better = dataclasses.replace(level, latency_s=level.latency_s / factor)
    slow, fast = (collective_time(kind, volume, size, stride, network(v, OUTER)).time_s for v in (level, better))
    assert float(fast) <= float(slow) * (1 + 1e-9)


@given(kind_cases, level_cases, st.lists(st.tuples(volumes, sizes, st.sampled_from([1, 2, 8])), min_size=1, max_size=5))
def test_a_table_equals_its_plans(kind: Collective, level: NetworkLevel, plans: list[tuple[float, int, int]]) -> None:
    system = network(level, OUTER)
    volume, size, stride = (np.array(column, float) for column in zip(*plans, strict=True))
    table = collective_time(kind, volume, size, stride, system)
    for row, plan in enumerate(plans):
        assert np.asarray(table.time_s)[row] == collective_time(kind, *plan, system).time_s


@given(
    volumes,
    st.sampled_from([16, 64]),
    st.floats(1, 1000),
    st.sampled_from(["hierarchical_ring", "halving_doubling", "direct"]),
)
def test_equal_levels_move_what_one_level_moves(volume: float, size: int, gb: float, algorithm: str) -> None:
    levelled = network(flat(gb, 0, name="a", size=8), flat(gb, 0, name="b"))
    for kind in ("all_reduce", "all_gather", "reduce_scatter"):
        split, whole = (times(kind, volume, size, s)[algorithm] for s in (levelled, network(flat(gb, 0))))
        assert float(split.time_s) == pytest.approx(float(whole.time_s))


constants = st.builds(
    CollectiveConstants,
    overhead_s=st.just(8e-6),
    step_s=st.just(0.0),
    issue_s=st.just(0.0),
    fill_s=st.floats(0, 1e-4),
    start=st.floats(0.05, 1),
    own=st.floats(0, 2),
    all_reduce=st.floats(0.1, 1),
    gather=st.floats(0.1, 1),
    all_to_all=st.floats(0.1, 1),
    send=st.floats(0.1, 1),
    reduced=st.floats(0.1, 1),
    switching_s=st.floats(0, 3e-5),
    channels=st.just(16.0),
)


@given(kind_cases, constants, volumes, st.floats(1, 100), st.floats(1e9, 1e12), st.integers(2, 64))
def test_the_time_on_the_wire(
    kind: str, made: CollectiveConstants, volume: float, factor: float, rate: float, members: int
) -> None:
    n = np.asarray(float(members))
    base, larger, faster = (
        float(RankLink.under(made, kind, np.asarray(r), n).seconds(np.asarray(v)))
        for v, r in ((volume, rate), (volume * factor, rate), (volume, rate * factor))
    )
    assert faster <= base * (1 + 1e-9) <= larger * (1 + 2e-9)
    assert base >= volume / (rate * made.share(kind)) * (1 - 1e-9)
    # No slower than at the rate of the start throughout.
    most = volume / (rate * made.share(kind)) * (1 + made.own / (members - 1)) / made.start
    assert base <= most * (1 + 1e-9)


def test_a_kernel_of_its_own_for_small_messages() -> None:
    system = load_system("dgx-h100")
    serving = dataclasses.replace(system, stack=dataclasses.replace(system.stack, custom_all_reduce=True))
    own = serving.kernels.custom_all_reduce["default"]
    small = collective_time("all_reduce", 1024.0, 8, 1, serving)
    assert small.chosen().algorithm == "one_shot"
    expected = own.overhead_s * (1 + 7 * own.peer) + 7 * 1024 / (own.one_shot * 450e9)
    assert float(small.time_s) == pytest.approx(expected)
    assert collective_time("all_reduce", GIB, 8, 1, serving).chosen().algorithm == "ring"
    assert "one_shot" not in times("all_reduce", 1024.0, 16, serving)
    assert "one_shot" not in times("all_gather", 1024.0, 8, serving)
    assert collective_time("all_reduce", 1024.0, 1, 1, serving).time_s == 0.0


def test_the_overhead_is_that_of_the_protocol() -> None:
    system = load_system("dgx-h100", ["calibration.collective.nccl.overhead=20us", "stack.collective_overhead=3us"])
    inside, across = (collective_time("all_gather", GIB, 8, stride, system).overhead_s for stride in (1, 8))
    assert (float(inside), float(across)) == pytest.approx((20e-6, 3e-6))


def test_sms_beside_a_collective() -> None:
    system = load_system("dgx-h100", ["calibration.collective.nccl.channels=33"])
    assert sm_share(system, "nvlink") == pytest.approx(0.25)
    assert sm_share(system, "infiniband") == 0.0
    # No more than there are, on a chip of few.
    assert sm_share(load_system("dgx-h100", ["calibration.collective.nccl.channels=264"]), "nvlink") == 1.0


def test_every_collective_has_an_algorithm() -> None:
    assert set(ALGORITHMS) == set(KINDS)


def test_the_page_names_every_algorithm() -> None:
    page = (Path(__file__).parents[3] / "docs" / "networks.md").read_text(encoding="utf-8")
    assert [name for name in algorithm_names() if f"`{name}`" not in page] == []
