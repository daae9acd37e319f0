"""Collectives: vectors worked out by hand, bounds that no algorithm beats, tables equal to single plans."""

import dataclasses
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.software.stack import MeasuredAllReduce
from slipstick.backends.machine.system import System
from slipstick.backends.network.algorithms.algorithm import Collective
from slipstick.backends.network.algorithms.measured import with_measured
from slipstick.backends.network.collectives import Candidate, CollectiveTime, collective_time
from slipstick.backends.network.topology.layout import lay_out
from slipstick.backends.network.topology.level import NetworkLevel
from slipstick.ir.errors import PlanError, UnknownNameError

GIB = 2.0**30
KINDS: tuple[Collective, ...] = get_args(Collective)
BASE = load_system("dgx-h100")


def level(name: str, size: int | None, gb_per_s: float, us: float, efficiency: float = 1.0) -> NetworkLevel:
    return NetworkLevel(name, size, gb_per_s * 1e9, us * 1e-6, "switch", efficiency)


def network(*levels: NetworkLevel, overhead_s: float = 0.0) -> System:
    stack = dataclasses.replace(BASE.stack, collective_launch_s=overhead_s)
    return dataclasses.replace(BASE, levels=levels, stack=stack)


def by_name(result: CollectiveTime) -> dict[str, Candidate]:
    return {candidate.algorithm: candidate for candidate in result.candidates}


def scalar(value: object) -> float:
    assert isinstance(value, float)
    return value


FLAT = network(level("flat", None, 300, 5))
TWO = network(level("nvlink", 8, 400, 1), level("ib", None, 50, 5))

sizes = st.integers(1, 600)
strides = st.sampled_from([1, 2, 3, 4, 8, 16, 24])
volumes = st.floats(1, 1e12)
kinds = st.sampled_from(KINDS)
networks = st.builds(
    lambda b0, b1, b2, a0, a1, a2, o: network(
        level("inner", 8, b0, a0), level("middle", 32, b1, a1), level("outer", None, b2, a2), overhead_s=o
    ),
    *[st.floats(1, 1000)] * 3,
    *[st.floats(0, 50)] * 3,
    st.sampled_from([0.0, 8e-6]),
)


def test_rows_that_cross_to_a_node_once_are_copied_there() -> None:
    # 16 ranks on two nodes of 8, S = 1 GiB; half of what goes to the other node crosses: 7/8 S at 400 GB/s inside,
    # 1/2 x 1/2 S at 50 GB/s outside, and 7 and 1 latencies.
    limited = by_name(collective_time("all_to_all", GIB, 16, 1, TWO, across=0.5))["node_limited"]
    inner, outer = limited.terms
    assert scalar(inner.bandwidth_s) == pytest.approx(7 / 8 * GIB / 400e9)
    assert scalar(outer.bandwidth_s) == pytest.approx(1 / 4 * GIB / 50e9)
    assert (scalar(inner.latency_s), scalar(outer.latency_s)) == pytest.approx((7e-6, 5e-6))


def test_nothing_is_limited_where_all_crosses_or_nothing_is_exchanged() -> None:
    assert "node_limited" not in by_name(collective_time("all_to_all", GIB, 16, 1, TWO))
    assert "node_limited" not in by_name(collective_time("all_gather", GIB, 16, 1, TWO, across=0.5))


@given(volume=volumes, size=sizes, across=st.floats(0.01, 1))
def test_a_limit_never_costs_time(volume: float, size: int, across: float) -> None:
    limited, plain = (collective_time("all_to_all", volume, size, 1, TWO, across=a) for a in (across, 1.0))
    assert scalar(limited.time_s) <= scalar(plain.time_s)


@pytest.mark.parametrize(
    ("kind", "algorithm", "milliseconds"),
    [
        # n = 8, S = 1 GiB, alpha = 5 us, B = 300 GB/s; S/B = 3.579139 ms.
        ("all_reduce", "ring", 6.333494),  # 14 alpha + 7/4 S/B
        ("all_reduce", "double_tree", 7.188279),  # 6 alpha + 2 S/B
        ("all_gather", "ring", 3.166747),  # 7 alpha + 7/8 S/B
        ("reduce_scatter", "ring", 3.166747),
        ("all_to_all", "pairwise", 3.166747),
        ("broadcast", "binomial_tree", 10.752418),  # 3 (alpha + S/B)
        ("send", "direct", 3.584139),  # alpha + S/B
    ],
)
def test_flat_network(kind: Collective, algorithm: str, milliseconds: float) -> None:
    result = by_name(collective_time(kind, GIB, 8, 1, FLAT))[algorithm]
    assert scalar(result.time_s) == pytest.approx(milliseconds * 1e-3, abs=5e-10)


def test_two_levels_by_hand() -> None:
    # 32 ranks on 4 nodes of 8, S = 1 GiB: S/B0 = 2.684355 ms, S/B1 = 21.474836 ms, a node has 8 B1 = B0.
    inner, outer = GIB / 400e9, GIB / 50e9
    times = {name: scalar(c.time_s) for name, c in by_name(collective_time("all_reduce", GIB, 32, 1, TWO)).items()}
    assert times == {
        # 62 steps, 6 of them between nodes; both levels are equally narrow.
        "ring": pytest.approx(56e-6 + 30e-6 + 2 * 31 / 32 * inner),
        "double_tree": pytest.approx(6e-6 + 20e-6 + 2 * inner),
        "hierarchical_ring": pytest.approx(14e-6 + 7 / 4 * inner + 30e-6 + 2 * 3 / 4 * outer / 8),
        "hierarchical_tree": pytest.approx(14e-6 + 7 / 4 * inner + 20e-6 + 2 * outer / 8),
    }
    exchange = by_name(collective_time("all_to_all", GIB, 32, 1, TWO))
    assert scalar(exchange["pairwise"].time_s) == pytest.approx(7e-6 + 120e-6 + 7 / 32 * inner + 24 / 32 * outer)
    assert scalar(exchange["staged"].time_s) == pytest.approx(7e-6 + 15e-6 + 7 / 8 * inner + 3 / 4 * outer)


def test_a_group_of_one_rank_a_node_sees_only_the_outer_level() -> None:
    result = collective_time("all_reduce", GIB, 4, 8, TWO)
    assert scalar(by_name(result)["ring"].time_s) == pytest.approx(6 * 5e-6 + 2 * 3 / 4 * GIB / 50e9)
    assert [term.level for term in result.chosen().terms if term.bandwidth_s] == ["ib"]


def test_efficiency_and_overhead_count() -> None:
    system = network(level("flat", None, 300, 5, efficiency=0.5), overhead_s=8e-6)
    result = collective_time("all_gather", GIB, 8, 1, system)
    assert scalar(result.time_s) == pytest.approx(8e-6 + 7 * 5e-6 + 7 / 8 * GIB / 150e9)


@pytest.mark.parametrize(
    ("size", "stride", "fanouts"),
    [
        (1, 1, [1, 1]),
        (8, 1, [8, 1]),
        (64, 1, [8, 8]),
        (16, 2, [4, 4]),
        (4, 8, [1, 4]),
        (4, 64, [1, 4]),
        (2, 4, [2, 1]),
    ],
)
def test_members_at_each_level(size: int, stride: int, fanouts: list[int]) -> None:
    assert [int(share.fanout) for share in lay_out(size, stride, TWO.levels)] == fanouts


def test_a_ragged_group_counts_as_full() -> None:
    assert [int(share.fanout) for share in lay_out(12, 1, TWO.levels)] == [8, 2]


def test_small_messages_take_the_algorithm_with_few_steps() -> None:
    small, large = (collective_time("all_reduce", volume, 8, 1, FLAT).chosen() for volume in (1e3, 1e9))
    assert (small.algorithm, large.algorithm) == ("double_tree", "ring")
    small, large = (collective_time("all_to_all", volume, 64, 1, TWO).chosen() for volume in (1e3, 1e10))
    assert (small.algorithm, large.algorithm) == ("staged", "pairwise")


def test_the_explanation_adds_up() -> None:
    result = collective_time("all_reduce", np.array([1e3, 1e6, 1e9]), 64, 1, BASE)
    assert isinstance(result.time_s, np.ndarray)
    assert isinstance(result.overhead_s, np.ndarray)
    for plan in range(3):
        chosen = result.chosen(plan)
        parts = sum(scalar(term.latency_s) + scalar(term.bandwidth_s) for term in chosen.terms)
        assert parts + result.overhead_s[plan] == pytest.approx(result.time_s[plan])


def test_refusals() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'all_reduce'"):
        collective_time("allreduce", 1.0, 8, 1, FLAT)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="at least one rank"):
        collective_time("all_reduce", 1.0, np.array([8.0, 0.0]), 1, FLAT)
    one_node = network(level("nvlink", 8, 450, 1))
    assert scalar(collective_time("all_reduce", 1.0, 2, 7, one_node).time_s) > 0
    with pytest.raises(PlanError, match="spans 9 ranks; the outermost level 'nvlink' holds 8"):
        collective_time("all_reduce", 1.0, 2, 8, one_node)


@given(kinds, volumes, strides, networks)
def test_a_group_of_one_costs_nothing(kind: Collective, volume: float, stride: int, system: System) -> None:
    assert collective_time(kind, volume, 1, stride, system).time_s == 0.0


@given(kinds, volumes, st.integers(2, 600), strides, networks)
def test_never_below_the_bounds(kind: Collective, volume: float, size: int, stride: int, system: System) -> None:
    time_s = scalar(collective_time(kind, volume, size, stride, system).time_s)
    share = 1.0 if kind in ("broadcast", "send") else (size - 1) / size * (2 if kind == "all_reduce" else 1)
    fastest = max(item.bytes_per_s for item in system.levels)
    steps = 1 if kind == "send" else int(np.ceil(np.log2(size))) * (2 if kind == "all_reduce" else 1)
    assert time_s >= share * volume / fastest * (1 - 1e-9)
    assert time_s >= steps * min(item.latency_s for item in system.levels) * (1 - 1e-9)


@given(kinds, volumes, st.floats(1, 100), sizes, strides, networks)
def test_more_bytes_never_take_less_time(
    kind: Collective, volume: float, factor: float, size: int, stride: int, system: System
) -> None:
    less = scalar(collective_time(kind, volume, size, stride, system).time_s)
    more = scalar(collective_time(kind, volume * factor, size, stride, system).time_s)
    assert more >= less * (1 - 1e-9)


@given(kinds, volumes, st.floats(1, 100), sizes, strides, networks, st.integers(0, 2))
def test_a_faster_level_never_takes_more_time(
    kind: Collective, volume: float, factor: float, size: int, stride: int, system: System, index: int
) -> None:
    levels = list(system.levels)
    levels[index] = dataclasses.replace(levels[index], bytes_per_s=levels[index].bytes_per_s * factor)
    faster = dataclasses.replace(system, levels=tuple(levels))
    slow_s = scalar(collective_time(kind, volume, size, stride, system).time_s)
    assert scalar(collective_time(kind, volume, size, stride, faster).time_s) <= slow_s * (1 + 1e-9)


@given(kinds, st.lists(st.tuples(volumes, sizes, strides), min_size=1, max_size=8), networks)
def test_a_table_equals_its_plans(kind: Collective, plans: list[tuple[float, int, int]], system: System) -> None:
    volume, size, stride = (np.array(column, float) for column in zip(*plans, strict=True))
    table = collective_time(kind, volume, size, stride, system)
    assert isinstance(table.time_s, np.ndarray)
    for row, plan in enumerate(plans):
        single = collective_time(kind, *plan, system)
        assert table.time_s[row] == single.time_s
        assert table.chosen(row) == single.chosen()


@given(volumes, st.sampled_from([8, 16, 64, 256]), st.floats(1, 1000), st.floats(0, 50))
def test_equal_levels_move_what_a_flat_network_moves(volume: float, size: int, gb: float, us: float) -> None:
    levelled = network(level("a", 8, gb, us), level("b", None, gb, us))
    flat = network(level("a", None, gb, us))
    for kind in ("all_reduce", "all_gather", "reduce_scatter"):
        rings = by_name(collective_time(kind, volume, size, 1, levelled))
        expected = by_name(collective_time(kind, volume, size, 1, flat))["ring"]
        moved = sum(scalar(term.bandwidth_s) for term in rings["hierarchical_ring"].terms)
        assert moved == pytest.approx(scalar(expected.terms[0].bandwidth_s))
        assert scalar(rings["ring"].time_s) == pytest.approx(scalar(expected.time_s))
        assert scalar(rings["hierarchical_ring"].time_s) <= scalar(expected.time_s) * (1 + 1e-9)
    pairs = by_name(collective_time("all_to_all", volume, size, 1, levelled))["pairwise"]
    flat_pairs = by_name(collective_time("all_to_all", volume, size, 1, flat))["pairwise"]
    assert scalar(pairs.time_s) == pytest.approx(scalar(flat_pairs.time_s))


@given(volumes, st.integers(2, 600), strides, networks)
def test_reduce_scatter_and_all_gather_make_a_ring_all_reduce(
    volume: float, size: int, stride: int, system: System
) -> None:
    halves = [by_name(collective_time(k, volume, size, stride, system)) for k in ("reduce_scatter", "all_gather")]
    whole = by_name(collective_time("all_reduce", volume, size, stride, system))
    for algorithm in ("ring", "hierarchical_ring"):
        parts = sum(scalar(half[algorithm].time_s) for half in halves)
        assert parts == pytest.approx(scalar(whole[algorithm].time_s))


def test_a_measured_all_reduce_goes_before_the_model_between_and_beyond_its_sizes() -> None:
    measured = (MeasuredAllReduce(1e3, 4, 1e-3), MeasuredAllReduce(1e9, 4, 1e-2))
    sizes = np.array([10.0, 1e3, 1e6, 1e9, 3e9, 0.0])
    four, one, modelled = np.full(6, 4.0), np.ones(6), np.full(6, 7.0)
    # As the smallest below it, in proportion to the bytes above the largest; half way in logarithms the geometric mean.
    wanted = np.array([1e-3, 1e-3, (1e-3 * 1e-2) ** 0.5, 1e-2, 3e-2])
    found = with_measured("all_reduce", modelled, sizes, four, one, measured)
    np.testing.assert_allclose(found, [*wanted, 7.0])
    halves = with_measured("reduce_scatter", modelled, sizes, four, one, measured)
    np.testing.assert_allclose(halves, [*wanted / 2, 7.0])
    for kind, ranks, stride in (("all_to_all", four, one), ("all_reduce", 2 * four, one), ("all_reduce", four, four)):
        assert with_measured(kind, modelled, sizes, ranks, stride, measured).tolist() == modelled.tolist()
