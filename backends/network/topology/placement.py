"""Where the groups of a plan lie on levels that have dimensions: in ranks' order, in blocks, on closed slices.

A group in a compact block loads its wires less than one that is drawn out along a dimension: of an all-to-all, the
busiest wire of a line of n carries n/2 shares, that of a ring of n, which wraps around, n/4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TypeAlias

from ....ir.errors import PlanError
from ....ir.plan.layout.ranks import AUTO, BLOCKS, CLOSED, RANKS, shapes_of
from .level import NetworkLevel

Shape: TypeAlias = tuple[int, ...]


def placements_of(levels: Sequence[NetworkLevel]) -> tuple[str, ...]:
    """Return the words of placement that make a difference on a network."""
    blocks = (BLOCKS,) if any(level.dims for level in levels) else ()
    return (RANKS, *blocks, *((CLOSED,) if any(level.slices for level in levels) else ()))


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as people write it: `4x4x8`."""
    return "x".join(map(str, shape))


def usual_placement(placement: str, levels: Sequence[NetworkLevel]) -> str:
    """Resolve `auto`: closed slices where the network has them, else the order of ranks."""
    if placement != AUTO:
        return placement
    return CLOSED if any(level.slices for level in levels) else RANKS


def place(
    levels: Sequence[NetworkLevel], placement: str, degrees: Mapping[str, int], num_gpus: int
) -> tuple[NetworkLevel, ...]:
    """Return the levels as a plan fills them: with blocks for its groups, and cut to its slice.

    Args:
        levels: of the system, innermost first.
        placement: a word, or shapes by axis; a group without a shape is as compact as it goes.
        degrees: ranks of the group of each axis, innermost first.
        num_gpus: devices of the plan, which a slice holds.

    Raises:
        PlanError: slices that nothing closes, shapes that do not fit.

    >>> torus = NetworkLevel("ici", 4096, 3e11, 1e-6, "torus", dims=(16, 16, 16), slices=(4, 4, 4))
    >>> place([torus], "closed", {"tp": 4, "dp": 32}, 128)[0].dims
    (4, 4, 8)
    >>> place([torus], "blocks", {"tp": 4, "dp": 1024}, 4096)[0].blocks[:3]
    ((2, 1, 1), (2, 2, 1), (2, 2, 2))
    """
    word, shapes, able = usual_placement(placement, levels), shapes_of(placement), placements_of(levels)
    if (word == CLOSED and CLOSED not in able) or (shapes and BLOCKS not in able):
        lacks = "optical switches that close slices (slices)" if word == CLOSED else "dimensions (dims)"
        raise PlanError(f"placement={placement}: no level of the network has {lacks}; allowed: {', '.join(able)}")
    found, inner = list[NetworkLevel](), 1
    for level in levels:
        whole, room = level, level.dims
        if level.dims and word != RANKS:
            num, left = divmod(num_gpus // inner, prod(level.slices))
            # What is no slice of whole blocks lies in the open ones of the level.
            if level.slices and word == CLOSED and num and not left and num_gpus < prod(level.dims) * inner:
                dims = compact_dims(level.slices, num)
                if level.closes:
                    whole, room = replace(level, dims=dims, size=prod(dims) * inner), dims
                elif not any(side % own for side, own in zip(level.dims, dims, strict=True)):
                    room = dims
            whole = replace(whole, blocks=tuple(_blocks(whole, room, inner, degrees, shapes)))
        found.append(whole)
        inner = level.size or inner
    return tuple(found)


def compact_dims(block: Shape, times: int) -> Shape:
    """Return the most cubic dimensions of a number of blocks, the shorter ones first.

    >>> compact_dims((4, 4, 4), 6), compact_dims((1, 1), 32)
    ((4, 8, 12), (4, 8))
    """
    dims = list(block)
    for prime in _primes(times):
        dims[min(range(len(dims)), key=lambda k: (dims[k], -k))] *= prime
    return tuple(dims if len(set(block)) > 1 else sorted(dims))


def _blocks(
    level: NetworkLevel, dims: Shape, inner: int, degrees: Mapping[str, int], shapes: Mapping[str, Shape]
) -> Iterator[Shape]:
    """Yield nested blocks such that each group fills one where its size allows, first those inside of a slice."""
    at, ranks, every = (1,) * len(dims), 1, prod(dims)
    for axis, degree in degrees.items():
        ranks *= degree
        here, shape = min(ranks // inner, every), shapes.get(axis, ()) if degree > 1 else ()
        room = shape or tuple(dim // side for dim, side in zip(dims, at, strict=True))
        steps = here // prod(at)
        if shape:
            _check_shape(level, axis, shape, at, steps)
        if here > prod(at) and here % prod(at) == 0 and prod(room) % steps == 0 and ranks % inner == 0:
            grown = list(_grown(level, at, room, steps))
            yield from grown
            at = grown[-1]
    room = tuple(dim // side for dim, side in zip(level.dims, at, strict=True))
    yield from (block for block in _grown(level, at, room, prod(room)) if block != level.dims)


def _check_shape(level: NetworkLevel, axis: str, shape: Shape, at: Shape, ranks: int) -> None:
    apart = len(shape) != len(at) or any(d % (a * s) for d, a, s in zip(level.dims, at, shape, strict=True))
    if apart or prod(shape) != ranks:
        given, dims, inside = map(shape_text, (shape, level.dims, at))
        raise PlanError(
            f"placement {axis}={given} does not lie in '{level.name}' of {dims}, of which axes inside fill {inside}: "
            f"write {len(at)} lengths that times these divide it, or blocks"
        )


def _grown(level: NetworkLevel, at: Shape, room: Shape, ranks: int) -> Iterator[Shape]:
    """Yield blocks that grow by one prime factor at a time, along the dimension that stays shortest."""
    start, left, now = at, list(room), list(at)
    wraps = level.topology == "torus"

    def reach(k: int, prime: int) -> tuple[int, int]:
        sides = [side * prime if i == k else side for i, side in enumerate(now)]
        costs = [
            side * (1 if wraps and side == dim else 2)
            for side, first, dim in zip(sides, start, level.dims, strict=True)
            if side > first
        ]
        return max(costs), sum(costs)

    for prime in _primes(ranks):
        k = min((k for k in range(len(now)) if left[k] % prime == 0), key=lambda k: reach(k, prime))
        now[k] *= prime
        left[k] //= prime
        yield tuple(now)


def _primes(number: int) -> list[int]:
    """Return the prime factors of a number, largest first."""
    found, prime = list[int](), 2
    while prime * prime <= number:
        while number % prime == 0:
            found.append(prime)
            number //= prime
        prime += 1
    return sorted([*found, number] if number > 1 else found, reverse=True)
