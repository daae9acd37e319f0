"""Mesh axes and groups of them; where a tensor lies along one: sharded, replicated or partial, in DTensor's words.

An *axis* is an axis of the mesh of ranks, a *dim* is a dimension of a tensor.
"""

from __future__ import annotations

import re
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from typing import TypeAlias

from .errors import ParseError
from .records import dataclass


class MeshAxis(StrEnum):
    """An axis of the mesh of ranks, innermost first; its text is the symbol of its degree in a lowered graph.

    `up` is the part of context parallelism that exchanges sequence for heads, `fsdp` the replicas that share states
    where groups are copies; `cp` and `dp` are what is left.
    """

    TP = "tp"
    UP = "up"
    CP = "cp"
    EP = "ep"
    FSDP = "fsdp"
    DP = "dp"
    PP = "pp"

    __repr__ = str.__repr__

    @property
    def group(self) -> AxisGroup:
        """The group of this axis alone."""
        return group_axes((self,))


TP, UP, CP, EP, FSDP, DP, PP = AXES = tuple(MeshAxis)
# The symbols of their degrees: plain texts, which tables of plans look up faster.
DEGREES: tuple[str, ...] = tuple(axis.value for axis in AXES)


class AxisGroup(str):
    """Mesh axes whose ranks form one group, innermost first, or the pieces that one axis falls into.

    It is its text, under which messages are sorted, kept and printed: `ep+dp`; `tp/8` where neighbours over `tp` hold
    a copy of the same one of 8 things, and nothing for no axis. ParseError for what is no axis.

    >>> AxisGroup("ep+dp").axes, AxisGroup("tp/8").pieces
    (('ep', 'dp'), 8)

    Attributes:
        axes: the mesh axes.
        pieces: things that the ranks of the axis share; 0 where all ranks form the group.
    """

    __slots__ = ("axes", "pieces")
    axes: tuple[MeshAxis, ...]
    pieces: int

    def __new__(cls, text: str = "") -> AxisGroup:
        """Read the text."""
        names, slash, pieces = text.partition("/")
        group = super().__new__(cls, text)
        try:
            group.axes = tuple(MeshAxis(name) for name in names.split("+")) if text else ()
            group.pieces = int(pieces) if slash else 0
        except ValueError as error:
            raise ParseError(f"'{text}' is no group of mesh axes; allowed: {', '.join(AXES)}, joined by +") from error
        return group

    @property
    def booked_on(self) -> str:
        """The axis that its messages are booked on: the outermost one, `cp` for `up`; empty without axes."""
        last = self.axes[-1] if self.axes else ""
        return CP if last == UP else last


NO_AXES = AxisGroup()


@lru_cache(maxsize=512)
def group_axes(axes: tuple[MeshAxis, ...], pieces: int = 0) -> AxisGroup:
    """Return the group of some axes in any order, or of those that hold one of so many pieces.

    >>> group_axes((DP, CP)), group_axes((TP,), 8)
    ('cp+dp', 'tp/8')
    """
    return AxisGroup("+".join(sorted(axes, key=AXES.index)) + (f"/{pieces}" if pieces else ""))


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
