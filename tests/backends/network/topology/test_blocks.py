"""Ranks in blocks of a torus, HyperX, and stated factors: by hand, along the routes of graphs, against relabellings."""

import dataclasses
from collections.abc import Iterator
from functools import cache
from itertools import permutations, product
from math import prod

import numpy as np
import pytest

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.backends.network.algorithms.algorithm import Collective
from slipstick.backends.network.collectives import collective_time
from slipstick.backends.network.topology.layout import lay_out
from slipstick.backends.network.topology.level import Edge, NetworkLevel, Topology
from slipstick.backends.network.topology.routes import loads

from ..bounds import bisection_bound

BASE = load_system("dgx-h100")
RATE, VOLUME = 400e9, 2.0**28
Blocks = tuple[tuple[int, ...], ...]


def level(topology: Topology, dims: tuple[int, ...], blocks: Blocks = (), contention: float = 1.0) -> NetworkLevel:
    size = prod(dims)
    return NetworkLevel(
        "net", size, RATE, 0.0, topology, dims=dims, blocks=blocks, algorithm="best", contention=contention
    )


def network(one: NetworkLevel) -> System:
    return dataclasses.replace(BASE, levels=(one,), stack=dataclasses.replace(BASE.stack, collective_launch_s=0.0))


def seconds(one: NetworkLevel, kind: Collective, size: int, stride: int = 1) -> float:
    return float(collective_time(kind, VOLUME, size, stride, network(one)).time_s)


def place(rank: int, dims: tuple[int, ...], blocks: Blocks) -> tuple[int, ...]:
    """Return the coordinates of a rank, counted out digit by digit."""
    at, below = [0] * len(dims), (1,) * len(dims)
    for block in (*blocks, dims):
        for k, (length, before) in enumerate(zip(block, below, strict=True)):
            rank, digit = divmod(rank, length // before)
            at[k] += digit * before
        below = block
    return tuple(at)


def torus_edges(dims: tuple[int, ...], names: dict[tuple[int, ...], int]) -> tuple[Edge, ...]:
    wire = RATE / len(dims) / 2
    ends = ((at, k) for at in product(*map(range, dims)) for k in range(len(dims)))
    after = ((at, (*at[:k], (at[k] + 1) % dims[k], *at[k + 1 :])) for at, k in ends)
    return tuple(Edge(str(names[a]), str(names[b]), wire) for a, b in after)


# Of 256 MiB on 16^3 with a ring of B/3 a dimension. In ranks' order 64 ranks fill a ring of 16 and a line of 4: 60/64 S
# over 15/64 of it is the busiest, or 48/64 S over a line's 3/8. In a block of 4^3 three lines of 48/64 S over 3/8.
@pytest.mark.parametrize(
    ("blocks", "vectors"), [((), (60 / 64) / (15 / 64) * 3), (((4, 4, 4),), (48 / 64) / (3 / 8) * 3)]
)
def test_an_all_to_all_of_64_on_a_torus(blocks: Blocks, vectors: float) -> None:
    found = seconds(level("torus", (16, 16, 16), blocks), "all_to_all", 64)
    assert found == pytest.approx(vectors * VOLUME / RATE)


# All-reduce and all-to-all of all 4^3 and 16^3 on HyperX: no wire idles, 2 (N-1)/N S/B and (1 - 1/k) D S/B.
@pytest.mark.parametrize("k", [4, 16])
def test_a_hyperx_uses_all_wires_at_once(k: int) -> None:
    one = level("hyperx", (k, k, k))
    assert seconds(one, "all_reduce", k**3) == pytest.approx(2 * (1 - k**-3) * VOLUME / RATE)
    assert seconds(one, "all_gather", k**3) == pytest.approx((1 - k**-3) * VOLUME / RATE)
    # Of what a rank sends, (k-1)/k has to move along each dimension, which has a third of the wires.
    assert seconds(one, "all_to_all", k**3) == pytest.approx((1 - 1 / k) * 3 * VOLUME / RATE)


# On the graph of the same torus, with members named by rank, messages are counted wire by wire.
@pytest.mark.parametrize("blocks", [(), ((2, 2),), ((2, 1),), ((4, 2),), ((2, 2), (4, 2))])
@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_blocks_carry_what_routes_do(blocks: Blocks, size: int) -> None:
    dims = (4, 4)
    names = {place(rank, dims, blocks): rank for rank in range(16)}
    counted = loads(torus_edges(dims, names), size, 1, "pairs").seconds_per_byte * VOLUME * (size - 1) / size
    assert seconds(level("torus", dims, blocks), "all_to_all", size) >= counted * (1 - 1e-9)
    if size in (4, 16) and blocks == ((2, 2),):
        assert seconds(level("torus", dims, blocks), "all_to_all", size) == pytest.approx(counted)


CUBE, PLACES = (4, 4, 4), list(product(range(4), repeat=3))
GROUPS: tuple[tuple[Collective, int], ...] = tuple(
    (kind, size) for kind in ("all_to_all", "all_reduce") for size in (4, 8, 16)
)


def fillings(at: tuple[int, ...] = (1, 1, 1)) -> Iterator[Blocks]:
    """Yield every chain of blocks that doubles one dimension of the cube at a time: any blocks fill it as one does."""
    if at == CUBE:
        yield ()
    for k in (k for k in range(3) if at[k] < 4):
        larger = (*at[:k], 2 * at[k], *at[k + 1 :])
        yield from ((*((larger,) if larger != CUBE else ()), *rest) for rest in fillings(larger))


def relabelled(names: dict[tuple[int, ...], int]) -> list[float]:
    """Return the times of all groups on the cube as a graph, whose members bear these names."""
    edges = torus_edges(CUBE, names)
    graph = NetworkLevel("net", 64, RATE, 0.0, "graph", edges=edges, algorithm="best")
    return [seconds(graph, kind, size) for kind, size in GROUPS]


@cache
def least_of_blocks() -> list[float]:
    """Return the least time of each of the groups over all ways to fill blocks."""
    chains = list(fillings())
    # Six doublings, two of each dimension: 6!/(2! 2! 2!).
    assert len(chains) == len(set(chains)) == 90
    return [min(seconds(level("torus", CUBE, c), kind, size) for c in chains) for kind, size in GROUPS]


def test_no_order_of_the_bits_of_a_torus_beats_the_best_block() -> None:
    """Bits of a rank as bits of its place, in all 6! orders: 120 of them but for the names of the three dimensions.

    All 90 ways to fill blocks are among them, and those in which neighbours lie two apart.
    """
    bits = [(k, weight) for k in range(3) for weight in (1, 2)]
    orders = [o for o in permutations(bits) if list(dict.fromkeys(k for k, _ in o)) == [0, 1, 2]]
    assert len(orders) == 120
    best = np.array(least_of_blocks()) * (1 - 1e-9)
    for order in orders:
        names = {
            tuple(sum(w for i, (k, w) in enumerate(order) if k == axis and rank >> i & 1) for axis in range(3)): rank
            for rank in range(64)
        }
        assert (best <= relabelled(names)).all(), order


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.deep)])
def test_no_relabelling_of_a_torus_by_chance_beats_the_best_block(count: int) -> None:
    best, generator = np.array(least_of_blocks()) * (1 - 1e-9), np.random.default_rng(0)
    for _ in range(count):
        names = {PLACES[k]: rank for rank, k in enumerate(generator.permutation(64).tolist())}
        assert (best <= relabelled(names)).all(), names


def test_interleaved_tetrahedra_beat_every_block() -> None:
    """Four corners of a cube that share no wire: a placement that is no block, and that no file can say yet.

    Cubes at even places hold the corners of even parity, those shifted by one in each dimension the odd ones, so that
    no two groups share a wire. Each wire, of B/6, carries half of what a corner sends to two others: S/4. Of a block
    of four in a row the two wires of a member carry S/4 (1 + 2/2) each.
    """
    corners = [c for c in product((0, 1), repeat=3) if sum(c) % 2 == 0]
    cubes = [(base, odd) for base in product((0, 2), repeat=3) for odd in (0, 1)]
    order = [tuple((b + odd + c) % 4 for b, c in zip(base, at, strict=True)) for base, odd in cubes for at in corners]
    assert sorted(order) == PLACES
    tetrahedra = relabelled({at: rank for rank, at in enumerate(order)})[0]
    assert tetrahedra == pytest.approx(6 / 4 * VOLUME / RATE)
    assert least_of_blocks()[0] == pytest.approx(6 / 2 * VOLUME / RATE)


# Wires between two halves, by dimensions: a torus is cut twice, a line once, and of k places all to all k/2 x k/2 meet.
@pytest.mark.parametrize("dims", [(4,), (8,), (4, 4), (8, 4), (8, 2), (4, 4, 4), (8, 4, 2), (16, 16, 16)])
@pytest.mark.parametrize(("topology", "cut"), [("torus", 2), ("mesh", 1), ("hyperx", 0)])
def test_no_all_to_all_is_faster_than_what_its_wires_carry_across_the_middle(
    topology: Topology, cut: int, dims: tuple[int, ...]
) -> None:
    one, longest, ranks = level(topology, dims), max(dims), prod(dims)
    wires = (longest // 2) ** 2 if topology == "hyperx" else cut
    each = RATE / len(dims) / (longest - 1 if topology == "hyperx" else 2)
    middle = ranks / longest * wires * each
    found = seconds(one, "all_to_all", ranks)
    assert found >= float(bisection_bound(np.array(float(ranks)), np.array(VOLUME), middle)) * (1 - 1e-9)


def test_blocks_spread_a_group_and_keep_its_size() -> None:
    one = level("torus", (8, 8, 8), ((2, 2, 2), (4, 4, 4)))
    assert [int(s.fanout) for s in lay_out(8, 1, [one])] == [2, 2, 2]
    assert [int(s.fanout) for s in lay_out(64, 8, [one])] == [4, 4, 4]
    assert [int(s.step) for s in lay_out(64, 8, [one])] == [2, 2, 2]
    assert [int(s.fanout) for s in lay_out(512, 1, [one])] == [8, 8, 8]


def test_contention_slows_messages_that_share_paths_alone() -> None:
    whole, half = (level("torus", (4, 4), contention=share) for share in (1.0, 0.5))
    assert seconds(half, "all_to_all", 16) == pytest.approx(2 * seconds(whole, "all_to_all", 16))
    rings = [
        next(c for c in collective_time("all_reduce", VOLUME, 16, 1, network(one)).compared() if c.algorithm == "ring")
        for one in (whole, half)
    ]
    assert float(rings[0].time_s) == float(rings[1].time_s)


def test_blocks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(Exception, match="block 3x4x4 of 'ici' does not divide 16x16x16"):
        load_system("tpu-v4-pod", ["network.ici.blocks=3x4x4"])
    with pytest.raises(Exception, match="block 4x4 of 'ici' has 2 dimensions, its dims are 16x16x16"):
        load_system("tpu-v4-pod", ["network.ici.blocks=4x4"])
    assert load_system("tpu-v4-pod", ["network.ici.blocks=4x4x4"]).levels[0].blocks == ((4, 4, 4),)


@pytest.mark.parametrize("topology", ["torus", "mesh", "hyperx"])
@pytest.mark.parametrize("blocks", [(), ((2, 2, 2),), ((4, 2, 1),), ((2, 2, 2), (4, 4, 2))])
@pytest.mark.parametrize("size", [2, 8, 32, 64])
def test_nothing_is_faster_than_what_a_member_can_send(topology: Topology, blocks: Blocks, size: int) -> None:
    one = level(topology, (4, 4, 4), blocks)
    for kind, passes in (("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1), ("all_to_all", 1)):
        for stride in (1, 2, 4):
            if size * stride <= 64:
                sent = passes * (size - 1) / size * VOLUME / RATE
                assert seconds(one, kind, size, stride) >= sent * (1 - 1e-9)  # type: ignore[arg-type]
