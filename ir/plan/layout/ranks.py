"""How the ranks of a plan lie: mesh axes from neighbours outwards, and groups on networks that have dimensions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from math import prod
from types import MappingProxyType

from ...errors import PlanError
from ...placement import CP, DP, FSDP, UP, MeshAxis

ORDER = "tp-cp-ep-dp-pp"
# Axes that lie inside of what people call by one name.
INSIDE: Mapping[str, MeshAxis] = MappingProxyType({CP: UP, DP: FSDP})
# How groups lie on a torus, mesh or HyperX; shapes by axis are a placement too.
AUTO, RANKS, BLOCKS, CLOSED = PLACEMENTS = ("auto", "ranks", "blocks", "closed")
_SHAPE = re.compile(r"(tp|cp|ep|dp|pp)=([1-9][0-9]*(?:x[1-9][0-9]*)*)")


@lru_cache(maxsize=256)
def rank_order(order: str) -> tuple[MeshAxis, ...]:
    """Return the mesh axes from neighbouring ranks outwards; `up` lies right inside `cp`, `fsdp` inside `dp`.

    >>> rank_order("tp-cp-ep-dp-pp")
    ('tp', 'up', 'cp', 'ep', 'fsdp', 'dp', 'pp')
    """
    names = tuple(map(MeshAxis, order.split("-")))
    pairs = ((INSIDE.get(n), n) for n in names)
    return tuple(a for pair in pairs for a in pair if a is not None and (a in pair[1:] or a not in names))


def shapes_of(placement: str) -> Mapping[str, tuple[int, ...]]:
    """Return the shape of the group of each axis that a placement names, none for a word; PlanError for neither.

    >>> shapes_of("tp=2x1x1+ep=4x4x4"), shapes_of("closed")
    ({'tp': (2, 1, 1), 'ep': (4, 4, 4)}, {})
    """
    if placement in PLACEMENTS:
        return {}
    parts = [_SHAPE.fullmatch(part) for part in placement.split("+")]
    shapes = {part[1]: tuple(map(int, part[2].split("x"))) for part in parts if part}
    if None in parts or len(shapes) < len(parts):
        raise PlanError(
            f"placement={placement}: write {', '.join(PLACEMENTS)}, or the shapes of groups by axis, each once, as in "
            "ep=4x4x4 or tp=2x1x1+ep=4x4x4"
        )
    return shapes


def misfit(placement: str, degrees: Mapping[str, int]) -> str:
    """Return what is wrong with the shapes of a placement at these degrees; nothing where they hold as many ranks."""
    wrong = (
        f"{axis}={'x'.join(map(str, shape))} holds {prod(shape)} ranks, and {axis} has {degrees[axis]}"
        for axis, shape in shapes_of(placement).items()
        if prod(shape) != degrees[axis]
    )
    return ", ".join(wrong)
