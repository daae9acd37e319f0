"""Where a tensor lies along one mesh axis: sharded, replicated or partial, in DTensor's words."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TypeAlias

from .errors import ParseError
from .records import dataclass


@dataclass(frozen=True, slots=True)
class Replicate:
    """Every rank of the axis holds the whole tensor."""

    def __str__(self) -> str:
        """Print as `R`."""
        return "R"


@dataclass(frozen=True, slots=True)
class Shard:
    """Each rank of the axis holds an equal part of one dim.

    `packed` says that the dim is several tensors side by side (fused q, k and v; gate and up), each sharded on its
    own, so that the slices the model takes out of it stay sharded. A flattened dim whose inner factor is sharded is
    packed in the same way. `routed` says that rows lie with the expert they go to, not with their token.
    """

    dim: int
    packed: bool = False
    routed: bool = False

    def __str__(self) -> str:
        """Print as `S(1)`, `S(1p)` when packed, `S(0r)` when routed."""
        return f"S({self.dim}{'p' if self.packed else ''}{'r' if self.routed else ''})"


@dataclass(frozen=True, slots=True)
class Partial:
    """Each rank of the axis holds a summand of the tensor."""

    def __str__(self) -> str:
        """Print as `P`."""
        return "P"


Placement: TypeAlias = Replicate | Shard | Partial
REPLICATE = Replicate()
PARTIAL = Partial()

_SHARD = re.compile(r"S\(([0-9]+)(p?)(r?)\)")


def parse_placement(text: str) -> Placement:
    """Read what `str(placement)` prints.

    >>> parse_placement("S(1p)")
    Shard(dim=1, packed=True, routed=False)
    """
    if text == "R":
        return REPLICATE
    if text == "P":
        return PARTIAL
    match = _SHARD.fullmatch(text)
    if match is None:
        raise ParseError(f"'{text}' is not a placement; allowed: R, P, S(dim), S(dim p), S(dim r)")
    return Shard(int(match.group(1)), match.group(2) == "p", match.group(3) == "r")


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
