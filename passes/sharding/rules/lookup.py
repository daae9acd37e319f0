"""Sharding of gathers and scatters by the letters of their spec: what is handed on keeps its shard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ....ir.graph import Phase
from ....ir.ops.tensors.lookup import LookupAttrs
from ..ask import (
    PARTIAL,
    REPLICATE,
    Answer,
    Ask,
    Partial,
    Placement,
    Rule,
    Shard,
    per_replica,
    replicate_all,
    samples_dim,
    shares_samples,
)


def gather(ask: Ask) -> Answer:
    """A letter of the result may be sharded, with the operands that have it; one that is looked up must be whole.

    Entries are moved and not changed, so that partial sums stay partial in the backward phase; counts over sharded
    entries are partial.
    """
    attrs = ask.call.attrs_as(LookupAttrs)
    if _moves_partial(ask, ask.given[:1], ask.given[1:]):
        return Answer((PARTIAL, *(REPLICATE,) * (len(ask.given) - 1)), (PARTIAL,))
    for letter in _sharded(ask, attrs, range(len(ask.given))):
        found = _along(ask, attrs, letter)
        if letter in attrs.letters[-1]:
            # Whether samples would be made whole that indices, sharded with them, look up: each its own.
            pairs = zip(ask.given, found.inputs, strict=True)
            gathers_samples = shares_samples(ask) and any(
                isinstance(p, Shard) and want == REPLICATE for p, want in pairs
            )
            return per_replica(ask) if gathers_samples else found
        if attrs.adds:
            return Answer(found.inputs, (PARTIAL,))
    return replicate_all(ask)


def scatter(ask: Ask) -> Answer:
    """A letter of the base may be sharded: of one that is written at indices, a rank takes what falls into its shard.

    What is added from sharded rows to all places is a partial sum, and the base a part of it on one rank.
    """
    attrs = ask.call.attrs_as(LookupAttrs)
    last = len(ask.given) - 1
    if last and _moves_partial(ask, (ask.given[0], ask.given[last]), ask.given[1:last]):
        return Answer((PARTIAL, *(REPLICATE,) * (last - 1), PARTIAL), (PARTIAL,))
    for letter in _sharded(ask, attrs, range(last, -1, -1)):
        if letter in attrs.letters[-1]:
            return _along(ask, attrs, letter)
        if shares_samples(ask) and samples_dim(ask.call.outputs[0].dims, ask.axis) is not None:
            return per_replica(ask)  # into rows of the same samples
        if attrs.adds:
            return Answer((PARTIAL, *_along(ask, attrs, letter).inputs[1:]), (PARTIAL,))
    return replicate_all(ask)


def _moves_partial(ask: Ask, moved: tuple[Placement, ...], indices: tuple[Placement, ...]) -> bool:
    """Whether what is moved is partial, or partly whole, and nothing is sharded; forward, sums are completed first."""
    if ask.phase is Phase.FORWARD or not any(isinstance(p, Partial) for p in moved):
        return False
    return all(isinstance(p, Partial) or p == REPLICATE for p in moved) and all(p == REPLICATE for p in indices)


def _sharded(ask: Ask, attrs: LookupAttrs, order: range) -> Iterator[str]:
    """Yield the letters of sharded dims, operand by operand; nothing without a spec."""
    for i in order if attrs.letters else ():
        p = ask.whole(i)
        if isinstance(p, Shard):
            yield attrs.letters[i][p.dim]


def _along(ask: Ask, attrs: LookupAttrs, letter: str) -> Answer:
    """All that have the letter are sharded along it, packed where one of them is."""
    given = (ask.whole(i) for i in range(len(ask.given)))
    pairs = zip(given, attrs.letters[:-1], strict=True)
    packed = any(isinstance(p, Shard) and p.packed and word[p.dim] == letter for p, word in pairs)
    lain = tuple(Shard(w.index(letter), packed) if letter in w else REPLICATE for w in attrs.letters)
    return Answer(lain[:-1], lain[-1:])


RULES: Mapping[str, Rule] = {"gather": gather, "scatter": scatter}
