"""Placements of groups on tori: by hand, against the rules of blocks, and of many plans at once against each alone."""

import dataclasses
from itertools import pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_system
from slipstick.backends.network.collectives import collective_time
from slipstick.backends.network.topology.layout import lay_out, lay_out_placed
from slipstick.backends.network.topology.level import NetworkLevel, Topology
from slipstick.backends.network.topology.placement import place, placements_of, usual_placement
from slipstick.backends.pricing.places import placed_system
from slipstick.ir.errors import PlanError
from slipstick.ir.plan import PlanWords, plan_of

BASE = load_system("dgx-h100")
RATE, VOLUME = 400e9, 2.0**28


def torus(dims: tuple[int, ...], slices: tuple[int, ...] = ()) -> NetworkLevel:
    return NetworkLevel("ici", prod(dims), RATE, 0.0, "torus", dims=dims, slices=slices, algorithm="best")


def all_to_all_s(levels: tuple[NetworkLevel, ...], size: int, stride: int = 1) -> float:
    quick = dataclasses.replace(BASE.stack, collective_launch_s=0.0)
    system = dataclasses.replace(BASE, levels=levels, stack=quick)
    return float(collective_time("all_to_all", VOLUME, size, stride, system).time_s)


# 64 ranks of a 16^3 torus with B/3 a dimension send S: those of a line of 16 that closes and one of 4, 60/64 S over
# 15/64 of it; of three lines of 4, 48/64 S over 3/8; of three rings of 4, 48/64 S over 3/4. With 0.9 B and 400 GB/s
# these are the 8.96, 4.49 and 2.25 ms, microseconds of hops apart.
@pytest.mark.parametrize(
    ("placement", "vectors", "ms"),
    [
        ("ranks", (60 / 64) / (15 / 64) * 3, 8.96),
        ("blocks", (48 / 64) / (3 / 8) * 3, 4.49),
        ("ep=4x4x4", (48 / 64) / (3 / 8) * 3, 4.49),
        ("closed", (48 / 64) / (3 / 4) * 3, 2.25),
    ],
)
def test_one_word_places_an_all_to_all_of_64(placement: str, vectors: float, ms: float) -> None:
    levels = place([torus((16, 16, 16), (4, 4, 4))], placement, {"ep": 64}, 64)
    assert all_to_all_s(levels, 64) == pytest.approx(vectors * VOLUME / RATE)
    assert all_to_all_s(levels, 64) / 0.9 * 1e3 == pytest.approx(ms, rel=0.01)


def test_a_group_inside_a_slice_does_not_close() -> None:
    """A wire ends once: in a job of 4,096 the slice is closed, and its groups of 64 are open blocks."""
    one = torus((16, 16, 16), (4, 4, 4))
    of_job = place([one], "closed", {"ep": 64, "dp": 64}, 4096)
    assert of_job == place([one], "blocks", {"ep": 64, "dp": 64}, 4096)


@pytest.mark.parametrize(
    ("num_gpus", "dims"),
    [
        (64, (4, 4, 4)),
        (128, (4, 4, 8)),
        (256, (4, 8, 8)),
        (768, (8, 8, 12)),
        (4096, (16, 16, 16)),
        (8192, (16, 16, 16)),
    ],
)
def test_slices_are_whole_blocks_as_cubic_as_they_go(num_gpus: int, dims: tuple[int, ...]) -> None:
    (placed,) = place([torus((16, 16, 16), (4, 4, 4))], "closed", {"dp": num_gpus}, num_gpus)
    assert placed.dims == dims


@pytest.mark.parametrize("num_gpus", [16, 96])
def test_what_is_no_slice_lies_open_in_blocks(num_gpus: int) -> None:
    one = torus((16, 16, 16), (4, 4, 4))
    assert place([one], "closed", {"dp": num_gpus}, num_gpus) == place([one], "blocks", {"dp": num_gpus}, num_gpus)


SIDES = st.lists(st.sampled_from((1, 2, 3, 4, 6, 8, 12, 16)), min_size=1, max_size=4).map(tuple)
DEGREES = st.lists(st.sampled_from((1, 2, 3, 4, 5, 6, 8, 16, 64)), min_size=1, max_size=4)


@given(SIDES, DEGREES, st.sampled_from((1, 4)))
def test_blocks_lie_inside_one_another_and_hold_the_groups_that_divide(
    dims: tuple[int, ...], degrees: list[int], inner: int
) -> None:
    size, axes = prod(dims), ("tp", "cp", "ep", "dp")
    node = NetworkLevel("node", inner, RATE, 0.0) if inner > 1 else None
    level = dataclasses.replace(torus(dims), size=size * inner)
    *_, placed = place([*([node] if node else []), level], "blocks", dict(zip(axes, degrees, strict=False)), 1)
    chain = [(1,) * len(dims), *placed.blocks, dims]
    for small, large in pairwise(chain):
        assert all(b % a == 0 for a, b in zip(small, large, strict=True))
    ranks, reach = 1, 1
    for degree in degrees:
        ranks *= degree
        members = ranks // inner
        # A group that divides what is left fills a block; one that does not lies across some.
        if ranks % inner == 0 and members > reach and members % reach == 0 and size % members == 0:
            assert members in [prod(block) for block in chain]
            reach = members


# Groups of powers of two on tori of them: of an all-to-all, no block is slower than a drawn out line.
@pytest.mark.parametrize("dims", [(16, 16, 16), (8, 8), (4, 8, 16), (4, 4, 4)])
@pytest.mark.parametrize("inside", [1, 2, 4])
def test_blocks_carry_an_all_to_all_as_fast_as_ranks_in_order(dims: tuple[int, ...], inside: int) -> None:
    for size in (2**k for k in range(1, 13)):
        if size * inside <= prod(dims):
            drawn, block = (
                all_to_all_s(place([torus(dims)], word, {"tp": inside, "ep": size}, prod(dims)), size, inside)
                for word in ("ranks", "blocks")
            )
            assert block <= drawn * (1 + 1e-9), size


def test_groups_of_many_placements_are_laid_out_as_each_alone() -> None:
    levels = load_system("tpu-v4-pod").levels
    meshes = [({"tp": 4, "dp": 16}, 64), ({"tp": 2, "dp": 128}, 256), ({"tp": 8, "dp": 512}, 4096)]
    placed = [place(levels, "closed", degrees, num) for degrees, num in meshes]
    size = np.array([float(degrees["dp"]) for degrees, _ in meshes])
    stride = np.array([float(degrees["tp"]) for degrees, _ in meshes])
    together = lay_out_placed([(size, stride)], placed, np.arange(3.0))
    for k, own in enumerate(placed):
        alone = lay_out(size[k], stride[k], own)
        for one, all_of in zip(alone, together, strict=True):
            assert [float(c) for c in one.columns] == [float(c[k]) for c in all_of.columns]


def test_words_that_a_network_cannot_do_are_refused() -> None:
    flat, nodes = torus((4, 4)), BASE.levels
    assert placements_of([flat]) == ("ranks", "blocks")
    assert (usual_placement("auto", [flat]), usual_placement("auto", [torus((4, 4), (2, 2))])) == ("ranks", "closed")
    for levels, placement, message in (
        ([flat], "closed", "no level of the network has optical switches that close slices"),
        (nodes, "ep=2x2", "no level of the network has dimensions"),
        ([flat], "ep=4x1x1", "ep=4x1x1 does not lie in 'ici' of 4x4"),
        ([flat], "ep=1x8", "ep=1x8 does not lie in 'ici' of 4x4, of which axes inside fill 2x1"),
    ):
        with pytest.raises(PlanError, match=message):
            place(levels, placement, {"tp": 2, "ep": 4}, 16)


def test_shapes_hold_as_many_ranks_as_their_groups() -> None:
    def levels(placement: str) -> tuple[NetworkLevel, ...]:
        plan = plan_of(PlanWords(num_gpus=64, tp=4, dp=16, seq_len=128, placement=placement))
        return tuple(placed_system(load_system("tpu-v4-pod"), plan).levels)

    shaped = levels("tp=1x2x2+dp=4x2x2")[0]
    assert [b for b in shaped.blocks if prod(b) in (4, 64)] == [(1, 2, 2), (4, 4, 4)]
    with pytest.raises(PlanError, match="tp=4x4x4 holds 64 ranks, and tp has 4"):
        levels("tp=4x4x4")
    with pytest.raises(PlanError, match="placement=cube: write auto, ranks, blocks, closed, or the shapes"):
        levels("cube")
    with pytest.raises(PlanError, match="each once"):
        levels("tp=4x1x1+tp=1x2x2")


def test_slices_are_of_tori_and_divide_them() -> None:
    with pytest.raises(Exception, match="block 3x4x4 of 'ici' does not divide 16x16x16"):
        load_system("tpu-v4-pod", ["network.ici.slices=3x4x4"])
    with pytest.raises(Exception, match="slices are of a torus, not of a mesh"):
        load_system("tpu-v4-pod", ["network.ici.topology=mesh"])


def test_slices_of_a_fixed_torus_are_rectangles_that_wrap_around_on_whole_sides_alone() -> None:
    """TPU v5e: 8x8 is an open mesh, 8x16 wraps on its longer side ('How to Scale Your Model', jax-ml/scaling-book)."""
    levels = load_system("tpu-v5e-pod").levels
    shapes: tuple[tuple[int, tuple[int, int], Topology], ...]
    shapes = (64, (8, 8), "mesh"), (16, (4, 4), "mesh"), (256, (16, 16), "torus")
    for num, dims, topology in shapes:
        placed = dataclasses.replace(BASE, levels=place(levels, "auto", {"ep": num}, num))
        slice_of = dataclasses.replace(levels[0], size=num, dims=dims, topology=topology, blocks=())
        alone = dataclasses.replace(BASE, levels=(slice_of,))
        for kind in ("all_to_all", "all_reduce"):
            times = [float(collective_time(kind, 2.0**28, num, 1, system).time_s) for system in (placed, alone)]
            assert times[0] == pytest.approx(times[1], rel=1e-9), (num, kind)
    assert place(levels, "auto", {"tp": 8, "dp": 16}, 128)[0].blocks[-1] == (8, 16)
    # No slice has 24 chips: groups lie in open blocks of the pod.
    assert place(levels, "auto", {"tp": 8, "dp": 3}, 24) == place(levels, "blocks", {"tp": 8, "dp": 3}, 24)
