"""An op as an index map: which dims of its tensors are the same, and what it sums over.

A dim is a product of factors, outermost first: `("b",)`, `("b", "s")` where two are flattened, `()` where it is never
cut. A factor that is cut over a mesh axis is cut in every tensor that has it. Its last character may be a mark:

    f*  several tensors lie side by side in the dim, each with f; cut, the dim is packed
    e@  rows lie with their expert; cut, the dim is routed
    n!  the factor must be whole: what a softmax, a norm or a scan runs along
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from functools import lru_cache
from typing import TypeAlias

from ..placement import CP, DP, EP, FSDP, PARTIAL, REPLICATE, UP, Placement, Shard
from ..records import dataclass
from ..types import TensorType

Factors: TypeAlias = tuple[str, ...]
Tensor: TypeAlias = tuple[Factors, ...]
# Mesh axes whose ranks have samples of their own, and those that cut the sequence.
SAMPLE_AXES = (DP, FSDP, EP)
SEQUENCE_AXES = (UP, CP)


@dataclass(frozen=True, slots=True)
class PlacementEntry:
    """Placements of inputs and those of the outputs that follow: on each rank the op itself makes these of those.

    `plain` says that shards are blocks, not packed.
    """

    inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]
    plain: bool = False

    def fits(self, inputs: Sequence[Placement], outputs: Sequence[Placement]) -> bool:
        """Whether given placements are these.

        Shards of the same dim are packed alike, and routed alike, all of them or none: the same entries on each rank.
        """
        wanted, given = (*self.inputs, *self.outputs), (*inputs, *outputs)
        if len(wanted) != len(given) or not all(_alike(w, g) for w, g in zip(wanted, given, strict=True)):
            return False
        packed, routed = ([getattr(g, flag) for g in given if isinstance(g, Shard)] for flag in ("packed", "routed"))
        says_packed, says_routed = (
            [getattr(w, flag) for w in wanted if isinstance(w, Shard)] for flag in ("packed", "routed")
        )
        if routed != says_routed if any(says_routed) else len(set(routed)) > 1:
            return False
        if any(says_packed):
            return packed == says_packed
        return not any(packed) if self.plain else len(set(packed)) < 2

    def __str__(self) -> str:
        """Print as `S(0), R -> S(0)`."""
        return f"{', '.join(map(str, self.inputs))} -> {', '.join(map(str, self.outputs))}"


def _alike(wanted: Placement, given: Placement) -> bool:
    if isinstance(wanted, Shard) and isinstance(given, Shard):
        return wanted.dim == given.dim
    return wanted == given


@dataclass(frozen=True, slots=True)
class IndexMap:
    """The factors of an op's tensors along one mesh axis, and what follows for the ways in which they may lie.

    Attributes:
        inputs: factors of each dim of each input.
        outputs: likewise; an output that lacks a factor must say so in `sums` or `same`, or the factor stays whole.
        sums: (factor, output): the output is a sum over it, so a partial one where it is cut.
        same: (factor, output): the output does not depend on it.
        added: inputs added to a sum (a bias): partial where it is.
        linear: groups of inputs in which the op is linear, all of a group together.
        untouched: (group, output): the output does not depend on the group.
        only: the factor that this axis cuts, and nothing else; empty for any.
        also: entries that no factor gives.
        exact: over data axes, too, everything lies as an entry says; else samples of a replica are its own there.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    sums: tuple[tuple[str, int], ...] = ()
    same: tuple[tuple[str, int], ...] = ()
    added: tuple[int, ...] = ()
    linear: tuple[tuple[int, ...], ...] = ()
    untouched: tuple[tuple[int, int], ...] = ()
    only: str = ""
    also: tuple[PlacementEntry, ...] = ()
    exact: bool = False
    _known: dict[str, PlacementEntry | None] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Inputs, then outputs."""
        return (*self.inputs, *self.outputs)

    @property
    def factors(self) -> tuple[str, ...]:
        """Names of all factors, in the order of their first dim."""
        return tuple(dict.fromkeys(name_of(f) for t in self.tensors for dim in t for f in dim if f))

    def entry(self, factor: str) -> PlacementEntry | None:
        """Return how everything lies where a factor is cut; None where it must be whole."""
        if factor not in self._known:
            self._known[factor] = self._entry(factor)
        return self._known[factor]

    def _entry(self, factor: str) -> PlacementEntry | None:
        if any(f == f"{factor}!" for t in self.tensors for dim in t for f in dim):
            return None
        summed = {i for f, i in self.sums if f == factor}
        same = {i for f, i in self.same if f == factor}
        made: list[Placement] = []
        for i, t in enumerate(self.outputs):
            lies = _place(t, factor) or (PARTIAL if i in summed else REPLICATE if i in same else None)
            if lies is None:
                return None
            made.append(lies)
        given = [
            _place(t, factor) or (PARTIAL if i in self.added and summed else REPLICATE)
            for i, t in enumerate(self.inputs)
        ]
        packed = any(isinstance(p, Shard) and p.packed for p in (*given, *made))
        return PlacementEntry(tuple(given), tuple(made), plain=not packed and self._is_flattened(factor))

    def _is_flattened(self, factor: str) -> bool:
        """Whether some dim is the factor and another."""
        flat = (dim for t in self.tensors for dim in t if len(dim) > 1 and not dim[-1].endswith("@"))
        return any(name_of(f) == factor for dim in flat for f in dim)

    def sum_entry(self, group: int) -> PlacementEntry:
        """Return how everything lies where a group of inputs are partial sums."""
        given = tuple(PARTIAL if i in self.linear[group] else REPLICATE for i in range(len(self.inputs)))
        made = tuple(REPLICATE if (group, i) in self.untouched else PARTIAL for i in range(len(self.outputs)))
        return PlacementEntry(given, made)

    def entries(self) -> Iterator[PlacementEntry]:
        """Yield the truth table: everything whole, each factor cut, each linear group partial, and what is said."""
        names = (self.only,) if self.only else self.factors
        if not self.only:
            yield PlacementEntry((REPLICATE,) * len(self.inputs), (REPLICATE,) * len(self.outputs))
        yield from (entry for name in names if (entry := self.entry(name)) is not None)
        if not self.only:
            yield from (self.sum_entry(group) for group in range(len(self.linear)))
            yield from self.also

    def fits(self, inputs: Sequence[Placement], outputs: Sequence[Placement]) -> bool:
        """Whether placements are one of the entries; the first shard names the factor, so that none is enumerated."""
        return self._fits_factor(inputs, outputs) or any(entry.fits(inputs, outputs) for entry in self.also)

    def _fits_factor(self, inputs: Sequence[Placement], outputs: Sequence[Placement]) -> bool:
        for t, lies in zip(self.tensors, (*inputs, *outputs), strict=True):
            if isinstance(lies, Shard):
                names = [name_of(f) for f in (t[lies.dim] if lies.dim < len(t) else ()) if f]
                cut = (self.entry(name) for name in names if self.only in ("", name))
                return any(entry is not None and entry.fits(inputs, outputs) for entry in cut)
        if self.only:
            return False
        if PARTIAL in inputs:
            return any(self.sum_entry(group).fits(inputs, outputs) for group in range(len(self.linear)))
        return PARTIAL not in outputs


def name_of(factor: str) -> str:
    """Return a factor without its mark."""
    return factor.rstrip("*@!")


def _place(tensor: Tensor, factor: str) -> Shard | None:
    for i, dim in enumerate(tensor):
        for k, f in enumerate(dim):
            if name_of(f) == factor:
                routed = f.endswith("@")
                return Shard(i, packed=f.endswith("*") or (k > 0 and not routed), routed=routed)
    return None


def tensor(factors: Iterable[str | None]) -> Tensor:
    """Return a tensor whose dims have one factor each, or none."""
    return tuple(() if f is None else (f,) for f in factors)


@lru_cache(maxsize=1024)
def tensors(text: str) -> tuple[Tensor, ...]:
    """Return the tensors that a text names, apart by commas; `.` is a dim that is never cut, `(b s)` a flattened one.

    >>> tensors("(b s) ., e f*")
    ((('b', 's'), ()), (('e',), ('f*',)))
    """
    return tuple(_dims(word) for word in text.split(","))


def _dims(text: str) -> Tensor:
    dims: list[Factors] = []
    for k, part in enumerate(text.replace(")", "(").split("(")):
        dims += [tuple(part.split())] if k % 2 else [() if f == "." else (f,) for f in part.split()]
    return tuple(dims)


def spec(text: str) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return inputs and outputs of `t h, e f* h -> t f*`."""
    given, made = text.split("->")
    return tensors(given), tensors(made)


def numbered(rank: int, *without: int) -> tuple[str | None, ...]:
    """Return a factor for each dim of a tensor, by its place, but for some."""
    return tuple(None if i in without else f"d{i}" for i in range(rank))


def aligned(operand: TensorType, factors: Sequence[str | None]) -> Tensor:
    """Return the factors of an operand that broadcasts: counted from the right, none where it has one entry."""
    own = factors[len(factors) - operand.rank :]
    return tensor(None if d == 1 else f for f, d in zip(own, operand.dims, strict=True))


def whole(types: Iterable[TensorType]) -> tuple[Tensor, ...]:
    """Return tensors of which nothing is ever cut."""
    return tuple(((),) * t.rank for t in types)


def lacking(outputs: Sequence[Tensor], factors: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Return (factor, output) for each output without a factor: what is summed over, or makes no difference."""
    have = [{name_of(f) for dim in t for f in dim} for t in outputs]
    return tuple((f, i) for f in factors for i, names in enumerate(have) if f not in names)
