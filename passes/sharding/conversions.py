"""How a value gets from one placement along an axis to another: by which operator, along which dim, on which way."""

from __future__ import annotations

from dataclasses import replace

from ...ir.placement import Partial, Placement, Shard
from .ask import DATA_AXES


def is_alike(axis: str, have: Placement, want: Placement) -> bool:
    """Whether nothing is to be converted; samples of a replica are its own, packed among those of others or not."""
    if axis not in DATA_AXES or have == want or not isinstance(have, Shard) or not isinstance(want, Shard):
        return have == want
    return have == replace(want, packed=have.packed)


def goes_through_whole(have: Placement, want: Placement) -> bool:
    """Whether no collective leads from one placement to the other: from a shard to a summand, or to other rows.

    Shards of a dim as a whole and shards of the tensors side by side in it (packed) are different sets of rows.
    """
    if not isinstance(have, Shard):
        return False
    return isinstance(want, Partial) or (isinstance(want, Shard) and have == replace(want, packed=have.packed))


def conversion_of(have: Placement, want: Placement) -> tuple[str, int]:
    """Return the op that turns one placement into another, and the tensor dim it works on."""
    if isinstance(want, Shard):
        if isinstance(have, Partial):
            return "reduce_scatter", want.dim
        return ("all_to_all" if isinstance(have, Shard) else "slice"), want.dim
    if isinstance(want, Partial):
        return "identity", -1
    return ("all_gather", have.dim) if isinstance(have, Shard) else ("all_reduce", -1)
