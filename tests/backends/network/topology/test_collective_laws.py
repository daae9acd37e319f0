"""Laws of collectives over every system of the catalogue, and what NCCL may use where: each expected number by hand."""

from __future__ import annotations

import dataclasses
from functools import cache
from math import prod

import numpy as np
import pytest

from slipstick.backends.machine.load import load_system, system_names
from slipstick.backends.machine.system import System
from slipstick.backends.network.algorithms.algorithm import Collective
from slipstick.backends.network.collectives import collective_time
from slipstick.backends.network.topology.layout import lay_out
from slipstick.backends.network.topology.level import SWITCHED

KINDS: tuple[Collective, ...] = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "ring_gather", "ring_scatter",
)  # fmt: skip
# From 1 KB to 1 GB, two sizes a doubling.
SIZES = 1000.0 * np.exp2(np.arange(0, 20.5, 0.5))
RANKS = (2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 18, 24, 32, 36, 48, 64, 72, 96, 128, 144, 256, 512, 1024)


@cache
def machine(name: str) -> System:
    return load_system(name)


def switched_ranks(system: System) -> float:
    """Ranks of the largest group that meets nothing but switches, from the innermost level on."""
    reach = 1.0
    for level in system.levels:
        if level.topology not in SWITCHED:
            return reach
        reach = float(level.size or np.inf)
    return reach


def fills(ranks: int, system: System) -> bool:
    """Whether a group fills whole members of every level; one that does not is counted as if it did."""
    return prod(int(share.fanout) for share in lay_out(ranks, 1, system.levels)) == ranks


def seconds(kind: Collective, ranks: float, system: System) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.asarray(collective_time(kind, SIZES, ranks, 1.0, system).time_s)


@pytest.mark.parametrize("name", system_names())
def test_twice_the_ranks_behind_switches_never_take_less(name: str) -> None:
    """Twice the ranks have more to add up or to reach, and switches give none of them a further wire.

    Where members own wires (a ring, all joined to all) more members have more of them: nothing is said of those.
    """
    system = machine(name)
    most = switched_ranks(system)
    for kind in KINDS:
        for n in RANKS:
            if 2 * n <= most and fills(n, system):
                one, two = (seconds(kind, float(m), system) for m in (n, 2 * n))
                assert (two >= one * (1 - 1e-9)).all(), (kind, n)


@pytest.mark.parametrize("name", ["gb200-nvl72", "gb300-nvl72"])
def test_a_rack_is_no_dearer_than_two(name: str) -> None:
    """NVLS needs about 25 us whatever the ranks (NCCL, `src/graph/tuning.cc`); a tree of two racks comes on top."""
    system = machine(name)
    one, two = (float(collective_time("all_reduce", 1000.0, n, 1, system).time_s) for n in (64, 96))
    nccl = system.kernels.collective["nccl"]
    nvlink = system.levels[0]
    assert nvlink.reduction_latency_s is not None
    assert one == pytest.approx(nccl.overhead_s + 2 * nvlink.reduction_latency_s + nccl.switching_s, rel=0.01)
    assert 20e-6 < one < 30e-6
    # Over two racks one step of the tree up and one down the outer network.
    assert two == pytest.approx(one + 2 * system.levels[1].latency_s, rel=0.01)


def test_what_switches_reduce_by_hand() -> None:
    """O + 2 alpha_sw + O_r + V/B (V + t B)/(V + f t B), V = S, B = u_r x 900 GB/s: no rank keeps a share of its own."""
    system = machine("gb200-nvl72")
    nccl = system.kernels.collective["nccl"]
    volume, rate = 2.0**30, nccl.reduced * 900e9
    found = {c.algorithm: c for c in collective_time("all_reduce", volume, 64, 1, system).compared()}["in_network"]
    fill = nccl.fill_s * rate
    wire = volume / rate * (volume + fill) / (volume + nccl.start * fill)
    assert float(found.time_s) == pytest.approx(2 * 0.5e-6 + nccl.switching_s + wire)
    assert float(found.total_s) == pytest.approx(nccl.overhead_s + 2 * 0.5e-6 + nccl.switching_s + wire)


def test_switches_gather_for_32_ranks_and_broadcast_for_none() -> None:
    """Up to NCCL_MAX_NVLS_ARITY an all-gather has the latency of the switches, 0.5 + 16 us; beyond, that of a ring."""
    system = machine("gb200-nvl72")
    nccl = system.kernels.collective["nccl"]

    def latency_s(ranks: int) -> float:
        found = {c.algorithm: c for c in collective_time("all_gather", 1e3, ranks, 1, system).compared()}
        return float(found["in_network"].terms[0].latency_s)

    assert latency_s(32) == pytest.approx(0.5e-6 + nccl.switching_s)
    assert latency_s(33) == pytest.approx(32 * (0.5e-6 + nccl.step_s))
    broadcast = collective_time("broadcast", 1e3, 16, 1, system).compared()
    assert "in_network" not in {c.algorithm for c in broadcast}


def test_switches_below_a_tree() -> None:
    """On two nodes of dgx-h100 the switches work at the same time as the tree: the narrower of S/B and 2 S/(8 B)."""
    system = machine("dgx-h100")
    nccl = system.kernels.collective["nccl"]
    volume = 2.0**33
    found = {c.algorithm: c for c in collective_time("all_reduce", volume, 16, 1, system).compared()}
    inner, outer = found["in_network_tree"].terms
    level = system.levels[1]
    assert float(inner.latency_s) == pytest.approx(2 * 0.5e-6 + nccl.switching_s)
    assert float(outer.latency_s) == pytest.approx(2 * level.latency_s)
    inside = volume / (nccl.reduced * 450e9)
    outside = 2 * volume / 8 / (level.bytes_per_s * level.efficiency)
    wires = float(inner.bandwidth_s) + float(outer.bandwidth_s)
    assert wires == pytest.approx(max(inside, outside), rel=1e-3)
    assert min(float(inner.bandwidth_s), float(outer.bandwidth_s)) == 0.0
    without = load_system("dgx-a100-80gb")
    assert "in_network_tree" not in {
        c.algorithm for c in collective_time("all_reduce", volume, 16, 1, without).compared()
    }


def test_a_tree_of_nccl_is_a_chain_inside_of_a_node() -> None:
    """Latency of a double tree over 4 nodes of 8: 2 (8 - 1) steps inside, 2 log2 4 outside."""
    system = machine("dgx-h100")
    inner, outer = system.levels
    found = {c.algorithm: c for c in collective_time("all_reduce", 1e3, 32, 1, system).compared()}["double_tree"]
    by_level = {t.level: float(t.latency_s) for t in found.terms}
    step = inner.latency_s + system.kernels.collective["nccl"].step_s
    assert by_level == pytest.approx({inner.name: 2 * 7 * step, outer.name: 2 * 2 * outer.latency_s})


@pytest.mark.parametrize("name", ["dgx-h100", "gb200-nvl72"])
def test_nobody_keeps_a_share_of_a_broadcast(name: str) -> None:
    """Two ranks: one step, S over the wire at u B, where an all-gather of twos waits for its own copy."""
    system = machine(name)
    nccl = system.kernels.collective["nccl"]
    volume = 2.0**36
    broadcast = float(collective_time("broadcast", volume, 2, 1, system).time_s)
    assert broadcast == pytest.approx(volume / (nccl.gather * system.levels[0].bytes_per_s), rel=1e-3)
    gather = float(collective_time("all_gather", volume, 2, 1, system).time_s)
    assert gather == pytest.approx(broadcast / 2 * (1 + nccl.own), rel=1e-3)


def test_an_algorithm_that_a_group_may_not_use_is_never_taken() -> None:
    """A kernel in which ranks read one another's memory ends at the node, though over 16 GPUs it would be faster."""
    system = machine("dgx-h100")
    serving = dataclasses.replace(system, stack=dataclasses.replace(system.stack, custom_all_reduce=True))
    ranks = np.array([8.0, 16.0])
    inside, across = np.asarray(collective_time("all_reduce", 2.0**16, ranks, 1.0, serving).time_s)
    plain = np.asarray(collective_time("all_reduce", 2.0**16, ranks, 1.0, system).time_s)
    assert inside < plain[0]
    assert across == plain[1]
    assert float(collective_time("all_reduce", 2.0**16, 16, 1, serving).time_s) == plain[1]


def test_each_group_of_a_table_takes_only_what_its_levels_allow() -> None:
    """Beside a group over two nodes, one inside of a node takes no tree: the time is that of the best it may use."""
    system = load_system("dgx-a100-80gb", ["network.nvlink.latency=100us"])
    table = collective_time("all_reduce", 1e3, np.array([8.0, 16.0]), 1.0, system)
    for row in range(2):
        allowed = {c.algorithm: float(c.total_s) for c in table.compared(row)}
        assert ("double_tree" in allowed) == (row == 1)
        assert np.asarray(table.time_s)[row] == min(allowed.values())
    tree = next(c for c in table.candidates if c.algorithm == "hierarchical_tree")
    assert np.isinf(np.asarray(tree.total_s)[0])


def test_a_ring_exchange_starts_a_message_with_every_step() -> None:
    """Blocks passed on n - 1 times are n - 1 messages, each with the overhead of the library."""
    system = machine("dgx-h100")
    overhead_s = system.kernels.collective["nccl"].overhead_s
    assert float(collective_time("ring_gather", 1e6, 8, 1, system).overhead_s) == pytest.approx(7 * overhead_s)
    assert float(collective_time("all_gather", 1e6, 8, 1, system).overhead_s) == pytest.approx(overhead_s)
